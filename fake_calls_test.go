// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// call is a Run or Try that goes on in a goroutine of its own.
type call struct {
	done chan struct{}
	ran  bool
	err  error
}

func goRun(ctx context.Context, l *Leader, name string, task func(context.Context) error) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = l.Run(ctx, name, task)
	}()
	return c
}

func goTry(ctx context.Context, l *Leader, name string, task func(context.Context) error) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.ran, c.err = l.Try(ctx, name, task)
	}()
	return c
}

func (c *call) returned() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// job is a task that notes each of its runs. Two runs at once are an overlap, unless the job says that it is used to it.
type job struct {
	drain time.Duration // it goes on for, after its context has ended
	hold  chan struct{} // if set, it goes on until this is closed, whatever becomes of its context
	err   error         // it returns

	mu       sync.Mutex
	running  int
	overlaps int
	runs     []*jobRun
}

type jobRun struct {
	ctx           context.Context //nolint:containedctx // of the task, for the test to look at
	began         time.Time
	ended         time.Time
	cancelled     time.Time
	cause         error
	confirmedLate bool // Confirm said yes although the context had ended by a loss
}

func (j *job) task(ctx context.Context) error {
	r := &jobRun{ctx: ctx, began: time.Now()}
	j.mu.Lock()
	j.running++
	if j.running > 1 {
		j.overlaps++
	}
	j.runs = append(j.runs, r)
	j.mu.Unlock()
	<-ctx.Done()
	j.mu.Lock()
	r.cancelled, r.cause = time.Now(), context.Cause(ctx)
	r.confirmedLate = errors.Is(r.cause, ErrLost) && Confirm(ctx) == nil
	drain := j.drain
	j.mu.Unlock()
	if j.hold != nil {
		<-j.hold
	}
	time.Sleep(drain)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running--
	r.ended = time.Now()
	return j.err
}

// count returns how many runs have begun.
func (j *job) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.runs)
}

// run returns a copy of run number i, negative from the end.
func (j *job) run(i int) jobRun {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i < 0 {
		i += len(j.runs)
	}
	if i < 0 || i >= len(j.runs) {
		return jobRun{ctx: context.Background()}
	}
	return *j.runs[i]
}

func (j *job) setDrain(d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.drain = d
}

func (j *job) overlapped() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.overlaps
}

// obey is a task that stops when it is told to.
func obey(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// doneContext is one that has ended.
func doneContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// taskOf finds the task of name in a Status.
func taskOf(s Status, name string) TaskStatus {
	i := slices.IndexFunc(s.Tasks, func(t TaskStatus) bool { return t.Name == name })
	if i < 0 {
		return TaskStatus{}
	}
	return s.Tasks[i]
}

// nosyContext is a caller's context whose methods look at the Leader that runs them, which must not be under its mutex
// then.
type nosyContext struct {
	context.Context //nolint:containedctx // it is one
	t               *testing.T
	l               *Leader
}

// look fails instead of hanging: the mutex is held for moments only, unless it is held by the caller himself.
func (n nosyContext) look() {
	for range 10_000_000 {
		if n.l.mu.TryLock() {
			n.l.mu.Unlock()
			n.l.Status()
			return
		}
		runtime.Gosched()
	}
	n.t.Error("a method of the caller's context was called under the mutex")
}

func (n nosyContext) Deadline() (time.Time, bool) { n.look(); return n.Context.Deadline() }
func (n nosyContext) Done() <-chan struct{}       { n.look(); return n.Context.Done() }
func (n nosyContext) Err() error                  { n.look(); return n.Context.Err() }
func (n nosyContext) Value(key any) any           { n.look(); return n.Context.Value(key) }
