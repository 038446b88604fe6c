// SPDX-License-Identifier: MIT

package leadergocron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/oxygenhub/leader"
)

var errUnlocked = errors.New("leadergocron: unlocked")

// LockerOptions of a [Locker]. The zero value is ready to use.
type LockerOptions struct {
	// Wait is how long [Locker.Lock] waits for the database to say whether a lock is free. Default 5 s; at most 24 h.
	Wait time.Duration
	// MinHold is how long a lock is kept at least, counted from when it was got: also when its job has returned. It keeps
	// nodes whose clocks are late by less from running a short job again for the same tick, as long as the process, its
	// session and Run last. Keep it well below the time between two ticks of any job: this process finds the lock
	// taken, too. Default 0; at most 24 h.
	MinHold time.Duration
}

// Locker is a gocron.Locker: each run of a job takes a lock of the job's name. Make one with [NewLocker], give it to
// gocron.WithDistributedLocker or WithDistributedJobLocker, and call [Locker.Run]. The package comment says why an [Elector] is
// the better choice for most. Its methods may be called concurrently.
type Locker struct {
	l    *leader.Leader
	opts LockerOptions

	holds atomic.Pointer[work] // of Run; nil if it is not running
	held  sync.Map             // key -> *hold
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker whose locks are names of l, the same as those of [leader.Leader.Run]: do not give a job the name of
// something else. It fails if l is nil or an option is out of its range, and starts nothing.
func NewLocker(l *leader.Leader, opts LockerOptions) (*Locker, error) {
	if l == nil {
		return nil, errNil
	}
	opts.Wait = cmp.Or(opts.Wait, 5*time.Second)
	if opts.Wait < 0 || opts.Wait > 24*time.Hour {
		return nil, fmt.Errorf("leadergocron: LockerOptions.Wait is %v: it must be between 0 and 24h", opts.Wait)
	}
	if opts.MinHold < 0 || opts.MinHold > 24*time.Hour {
		return nil, fmt.Errorf("leadergocron: LockerOptions.MinHold is %v: it must be between 0 and 24h", opts.MinHold)
	}
	return &Locker{l: l, opts: opts}, nil
}

// Run owns the locks of [Locker.Lock]. It blocks until ctx ends. Then no lock is given any more and wrapped tasks are told to stop,
// and Run returns ctx.Err() when all locks have been unlocked and given back: so it does not return while a job runs that
// has one. [leader.Leader.Resign] ends no Run, but Lock returns [leader.ErrResigned] from then on. A second Run at the same
// time is an error.
func (k *Locker) Run(ctx context.Context) error {
	var holds work
	if !k.holds.CompareAndSwap(nil, &holds) {
		return errRunning
	}
	<-ctx.Done()
	holds.end(fmt.Errorf("%w any more: %w", ErrNotRunning, context.Cause(ctx)))
	k.holds.Store(nil)
	return ctx.Err()
}

// Lock takes the lock of key, the name of a job, and returns when it has it, or knows that it will not: with [ErrLocked] if the lock
// is held, here or elsewhere; [ErrUnanswered] if that is not known after [LockerOptions.Wait]; [ErrNotRunning] if [Locker.Run]
// is not called, or ends; ctx.Err() if ctx ends; or an error of the Leader, as [leader.ErrUnsupported] or [leader.ErrResigned].
// gocron skips the run and calls the job's listener gocron.AfterLockError. Once the lock is held, the end of ctx does not matter.
func (k *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	holds := k.holds.Load()
	if holds == nil {
		return nil, ErrNotRunning
	}
	wait, stop := context.WithTimeoutCause(ctx, k.opts.Wait, ErrUnanswered)
	defer stop()
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	done, ok := holds.begin(cancel)
	if !ok {
		cancel(nil)
		return nil, ErrNotRunning
	}
	h := newHold(key)
	go func() { // until it is refused, or unlocked; Run waits for it
		defer done()
		defer cancel(nil)
		k.hold(own, h)
	}()
	select {
	case <-h.got:
		return h, nil
	case <-h.ended:
	case <-wait.Done():
		h.release() // a lock that comes too late
		cancel(context.Cause(wait))
		select {
		case <-h.got:
			return nil, cmp.Or(ctx.Err(), ErrUnanswered)
		case <-h.ended: // soon, as its context has
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return nil, h.refusal()
}

// hold takes the lock of h and holds it until it is unlocked, or lost.
func (k *Locker) hold(ctx context.Context, h *hold) {
	defer close(h.ended)
	h.ran, h.err = k.l.Try(ctx, h.key, func(ctx context.Context) error {
		since := time.Now()
		k.held.Store(h.key, h)
		close(h.got)
		cause := errUnlocked
		select {
		case <-h.unlock:
		case <-ctx.Done():
			cause = context.Cause(ctx)
		}
		h.tasks.end(cause)
		<-h.unlock
		k.held.Delete(h.key)
		k.keep(ctx, h, k.opts.MinHold-time.Since(since))
		return nil
	})
	h.cause = context.Cause(ctx)
}

// keep waits for rest before the lock of h is given back, if there is one. Unlock does not.
func (k *Locker) keep(ctx context.Context, h *hold, rest time.Duration) {
	if rest <= 0 {
		return
	}
	close(h.kept)
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Task wraps the function of the job of that name, for gocron.NewTask, so that it hears of the loss of its lock. The job needs the
// same name, by gocron.WithName: its default is not it. The context of task is that of the job, with the lock added, as
// [Elector.Task] has it: it ends when the lock is lost, with a cause that wraps [leader.ErrLost], when the context of Run
// ends, and when Resign is called. If the lock of name is not held when the run begins, task is not called, and the error is
// [ErrStandby]. If it was lost during the run, the error wraps leader.ErrLost, joined with that of task.
func (k *Locker) Task(name string, task func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		h, ok := k.held.Load(name)
		if !ok {
			return fmt.Errorf("%w: the lock of %q is not held: it was lost, or this is not the name that gocron.WithName gives the job", ErrStandby, name)
		}
		return h.(*hold).tasks.run(ctx, k.l, name, task)
	}
}
