// SPDX-License-Identifier: MIT

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// Stage is what the servers and proxies of this package take for a test where there is none, as in the laboratory and the
// benchmark. What they would fail or skip a test with becomes an error of Try. Its methods may be called concurrently.
type Stage struct {
	testing.TB // for the method that only package testing can have: the others are below

	ctx  context.Context //nolint:containedctx // what testing.TB.Context returns
	name string
	dir  string
	log  func(string)

	mu       sync.Mutex
	cleanups []func()
	failures []error
}

// ErrSkipped says that this machine lacks what was asked for.
var ErrSkipped = errors.New("skipped")

// stageEnd is the panic that unwinds to Try.
type stageEnd struct{ err error }

// NewStage returns a stage whose temporary folders lie in dir, or in the default place if dir is "".
func NewStage(ctx context.Context, name, dir string, log func(string)) *Stage {
	return &Stage{ctx: ctx, name: name, dir: dir, log: log}
}

// Try calls f, and returns why it ended the test, if it did.
func (s *Stage) Try(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case stageEnd:
			err = p.err
		default:
			panic(p)
		}
	}()
	f()
	return nil
}

// End runs the cleanups, and returns what failed meanwhile and before.
func (s *Stage) End() error {
	for {
		s.mu.Lock()
		n := len(s.cleanups)
		if n == 0 {
			err := errors.Join(s.failures...)
			s.mu.Unlock()
			return err
		}
		cleanup := s.cleanups[n-1]
		s.cleanups = slices.Delete(s.cleanups, n-1, n)
		s.mu.Unlock()
		if err := s.Try(cleanup); errors.Is(err, ErrSkipped) { // any other has been noted
			s.Error(err)
		}
	}
}

// Helper does nothing.
func (s *Stage) Helper() {}

// Name is the name that the stage was given.
func (s *Stage) Name() string { return s.name }

// Context is the one that the stage was given.
func (s *Stage) Context() context.Context { return s.ctx }

// Cleanup has f called by End, the last one first.
func (s *Stage) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

// Failed reports whether End will return an error.
func (s *Stage) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failures) > 0
}

// Skipped is false: a skip ends Try, not the stage.
func (s *Stage) Skipped() bool { return false }

func (s *Stage) fail(text string) error {
	err := errors.New(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, err)
	return err
}

// Log gives a line to the log.
func (s *Stage) Log(args ...any) { s.log(fmt.Sprint(args...)) }

// Logf gives a line to the log.
func (s *Stage) Logf(format string, args ...any) { s.log(fmt.Sprintf(format, args...)) }

// Error notes a failure, and goes on.
func (s *Stage) Error(args ...any) { _ = s.fail(fmt.Sprint(args...)) }

// Errorf notes a failure, and goes on.
func (s *Stage) Errorf(format string, args ...any) { _ = s.fail(fmt.Sprintf(format, args...)) }

// Fail notes a failure, and goes on.
func (s *Stage) Fail() { _ = s.fail("failed") }

// Fatal notes a failure, and ends Try.
func (s *Stage) Fatal(args ...any) { panic(stageEnd{s.fail(fmt.Sprint(args...))}) }

// Fatalf notes a failure, and ends Try.
func (s *Stage) Fatalf(format string, args ...any) {
	panic(stageEnd{s.fail(fmt.Sprintf(format, args...))})
}

// FailNow notes a failure, and ends Try.
func (s *Stage) FailNow() { panic(stageEnd{s.fail("failed")}) }

// Skip ends Try with ErrSkipped.
func (s *Stage) Skip(args ...any) {
	panic(stageEnd{fmt.Errorf("%w: %s", ErrSkipped, fmt.Sprint(args...))})
}

// Skipf ends Try with ErrSkipped.
func (s *Stage) Skipf(format string, args ...any) { s.Skip(fmt.Sprintf(format, args...)) }

// SkipNow ends Try with ErrSkipped.
func (s *Stage) SkipNow() { s.Skip("now") }

// TempDir makes a folder, which End removes.
func (s *Stage) TempDir() string {
	dir, err := os.MkdirTemp(s.dir, s.name)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			s.Error(err)
		}
	})
	return dir
}
