// SPDX-License-Identifier: MIT

//go:build unix

package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// stage is what the servers and proxies of the tests take for a test. What they would fail or skip a test with becomes an
// error of try.
type stage struct {
	testing.TB // for the method that only package testing can have: the others are below

	ctx context.Context //nolint:containedctx // what testing.TB.Context returns
	log func(string)
	dir string

	mu       sync.Mutex
	cleanups []func()
	failures []error
}

// ErrSkipped says that this machine lacks what an arena needs.
var ErrSkipped = errors.New("skipped")

// stageEnd is the panic that unwinds to try.
type stageEnd struct{ err error }

// try calls f, and returns why it ended the test, if it did.
func (s *stage) try(f func()) (err error) {
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

// end runs the cleanups, and returns what failed meanwhile and before.
func (s *stage) end() error {
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
		if err := s.try(cleanup); err != nil {
			s.Error(err)
		}
	}
}

func (s *stage) Helper()                  {}
func (s *stage) Name() string             { return "soak" }
func (s *stage) Context() context.Context { return s.ctx }

func (s *stage) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *stage) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failures) > 0
}

func (s *stage) Skipped() bool { return false }

func (s *stage) fail(text string) error {
	err := errors.New(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, err)
	return err
}

func (s *stage) Log(args ...any)                 { s.log(fmt.Sprint(args...)) }
func (s *stage) Logf(format string, args ...any) { s.log(fmt.Sprintf(format, args...)) }

func (s *stage) Error(args ...any)                 { _ = s.fail(fmt.Sprint(args...)) }
func (s *stage) Errorf(format string, args ...any) { _ = s.fail(fmt.Sprintf(format, args...)) }
func (s *stage) Fail()                             { _ = s.fail("failed") }

func (s *stage) Fatal(args ...any) { panic(stageEnd{s.fail(fmt.Sprint(args...))}) }
func (s *stage) Fatalf(format string, args ...any) {
	panic(stageEnd{s.fail(fmt.Sprintf(format, args...))})
}
func (s *stage) FailNow() { panic(stageEnd{s.fail("failed")}) }

func (s *stage) Skip(args ...any) {
	panic(stageEnd{fmt.Errorf("%w: %s", ErrSkipped, fmt.Sprint(args...))})
}
func (s *stage) Skipf(format string, args ...any) { s.Skip(fmt.Sprintf(format, args...)) }
func (s *stage) SkipNow()                         { s.Skip("now") }

func (s *stage) TempDir() string {
	dir, err := os.MkdirTemp(s.dir, "soak")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) }) // all of it lies in a folder that is removed
	return dir
}
