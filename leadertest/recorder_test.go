// SPDX-License-Identifier: MIT

package leadertest

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/driver"
)

// recorder is a test that may fail without failing the one that runs it.
type recorder struct {
	testing.TB

	mu       sync.Mutex
	failures []string
	skipped  bool
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprint(args...))
}
func (r *recorder) Errorf(format string, args ...any) { r.Error(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skip(...any) {
	r.skipped = true
	runtime.Goexit()
}

// record runs one test of the suite on d, and returns its failures.
func record(t *testing.T, name string, d driver.Driver) []string {
	t.Helper()
	i := slices.IndexFunc(driverTests, func(test struct {
		name string
		run  func(p *place)
	},
	) bool {
		return test.name == name
	})
	require.GreaterOrEqual(t, i, 0)
	r := &recorder{TB: t}
	c := storeControls()
	c.SessionTimeout, c.Slack = 300*time.Millisecond, 300*time.Millisecond
	p := newPlace(r, d, c)
	p.soon = time.Second
	done := make(chan struct{})
	go func() { // the end of the test
		defer close(done)
		driverTests[i].run(p)
	}()
	<-done
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	assert.False(t, r.skipped)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures
}
