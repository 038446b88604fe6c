// SPDX-License-Identifier: MIT

package leadergocron

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/oxygenhub/leader"
)

var (
	// ErrStandby is what [Elector.IsLeader] returns in a process that does not lead, and a run of a wrapped task whose lock
	// is not held when it begins.
	ErrStandby = errors.New("leadergocron: not leading")
	// ErrLocked is what [Locker.Lock] returns if the job runs elsewhere, or here, or if its lock is kept for
	// [LockerOptions.MinHold].
	ErrLocked = errors.New("leadergocron: the job is locked")
	// ErrUnanswered is what [Locker.Lock] returns if the database did not say in time whether the lock is free. It is
	// wrapped with what went wrong last.
	ErrUnanswered = errors.New("leadergocron: the database has not answered")
	// ErrNotRunning is what [Elector.IsLeader] and [Locker.Lock] return if Run was not called, or has been told to stop.
	ErrNotRunning = errors.New("leadergocron: Run is not running")
)

var (
	errRunning = errors.New("leadergocron: Run is running already")
	errNil     = errors.New("leadergocron: the Leader is nil: make one with leader.New")
)

// work is what is done under something that ends: it is told, and waited for. The zero value is ready to use.
type work struct {
	going sync.WaitGroup

	mu    sync.Mutex
	ended bool
	last  uint64
	tell  map[uint64]context.CancelCauseFunc
}

// begin adds a piece of work that cancel tells to stop, and that is done when done is called; or returns false if no more may
// begin.
func (w *work) begin(cancel context.CancelCauseFunc) (done func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil, false
	}
	if w.tell == nil {
		w.tell = make(map[uint64]context.CancelCauseFunc)
	}
	w.last++
	number := w.last
	w.tell[number] = cancel
	w.going.Add(1)
	return func() {
		w.mu.Lock()
		delete(w.tell, number)
		w.mu.Unlock()
		w.going.Done()
	}, true
}

// end tells all that goes on to stop, and returns when it has.
func (w *work) end(cause error) {
	w.mu.Lock()
	w.ended = true
	var all []context.CancelCauseFunc
	for _, cancel := range w.tell {
		all = append(all, cancel)
	}
	w.mu.Unlock()
	for _, cancel := range all { // not under mu, as methods of the user's contexts may be run
		cancel(cause)
	}
	w.going.Wait()
}

// run runs task under the leadership of name, which w belongs to.
func (w *work) run(ctx context.Context, l *leader.Leader, name string, task func(context.Context) error) error {
	refused := fmt.Errorf("%w: %q", ErrStandby, name)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done, ok := w.begin(cancel)
	if !ok {
		return refused
	}
	defer done()
	// No other leadership of the name can have begun: that of w waits for done.
	joined, ok := l.Join(ctx, name)
	if !ok {
		return refused
	}
	return lead(&joined, task) //nolint:contextcheck // joined is derived from ctx
}

// lead runs task with the context of a leadership. The error tells of a loss, also if task does not.
func lead(ctx context.Context, task func(context.Context) error) error {
	err := task(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, leader.ErrLost) {
		return errors.Join(cause, err)
	}
	return err
}
