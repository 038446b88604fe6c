// SPDX-License-Identifier: MIT

package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

var (
	// ErrLost is the cause of a task's context when its lock was lost, wrapped with the reason, and what [Confirm]
	// returns from then on.
	ErrLost = errors.New("leader: leadership lost")
	// ErrResigned is returned by calls on a Leader that has resigned, and is the cause of the contexts of the tasks
	// that [Leader.Resign] stops.
	ErrResigned = errors.New("leader: resigned")
	// ErrUnsupported is returned where a lock would exclude nobody, or cannot be had. The text says what was found
	// and what to do.
	ErrUnsupported = errors.New("leader: unsupported")
)

// Leader contends for named locks, on one session for all of them. Its methods may be called concurrently. It has no
// goroutine and no connection until the first [Leader.Run], [Leader.Try] or [Leader.Holder], and none a few seconds after
// the last one has returned; [Leader.Resign] ends them at once.
type Leader struct {
	backend Backend
	opts    Options
	clock   *clock
	store   termStore // nil without Options.Terms

	leading sync.Map // name -> *grant of a task that has started; read by IsLeading without mu

	wake chan struct{} // buffer 1: the loop is to look at what has changed

	known known

	mu sync.Mutex
	state
	hub    hub
	logs   *watcher      // of the loop that runs, if there is a Logger
	logged chan struct{} // closed when all that logs got has been written
	logSeq uint64        // of the last event that logs got
}

// New returns a Leader whose locks live where backend says. It validates backend and opts, with an error that names the
// field, and neither connects nor starts a goroutine.
func New(backend Backend, opts Options) (*Leader, error) {
	if backend == nil {
		return nil, errors.New("leader: the backend is nil")
	}
	opts, err := opts.withDefaults(backend)
	if err != nil {
		return nil, err
	}
	if err := backend.check(opts); err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}
	l := &Leader{
		backend: backend,
		opts:    opts,
		clock:   &clock{epoch: time.Now()},
		wake:    make(chan struct{}, 1),
		known:   known{stirred: make(chan struct{}, 1)},
	}
	if opts.Terms {
		l.store = backend.terms(opts, l.clock)
	}
	l.init()
	return l, nil
}

// Run contends for name and runs task, in the caller's goroutine, while this process holds the lock. It blocks until
//
//   - the task has returned by itself: the lock is given back, and Run returns the task's error. This call does
//     not run it again, but the next process that waits does: a task that is to go on leading must not return, and one that
//     cannot work here returns [StepDown].
//   - ctx ends: the task's context ends with it, the task is waited for, the lock is given back, and Run returns
//     ctx.Err().
//   - [Leader.Resign] is called: likewise, and Run returns [ErrResigned].
//   - the database cannot lock: [ErrUnsupported], with what was found and what to do.
//
// Any other trouble with the database, as a wrong password, ends no Run: it is logged, shown by [Leader.Status], and tried
// again. To fail at the start instead, ask [Leader.Holder] first, with a deadline.
//
// When the lock is lost, Run does not return: the task's context is cancelled with a cause that wraps [ErrLost], Run
// waits for the task to return, and contends again. So a task may be run several times, never twice at once, and should
// bring its work into a safe state when its context ends: nothing can make it stop. Its lock is never given away while it
// runs; docs/guarantees.md says when the database does so all the same.
//
// A panic or runtime.Goexit in task unwinds through Run; the lock is given back on the way, which takes at most a second. A
// second Run of a name on the same Leader stands by like one in another process, and Run of the name that a task leads,
// with the context of that task, is an error. A name is any non-empty UTF-8 text of up to 1,024 bytes without NUL.
func (l *Leader) Run(ctx context.Context, name string, task func(context.Context) error) error {
	_, err := l.run(ctx, name, false, task)
	return err
}

// Try runs task now if the lock of name is free, and returns false, nil at once if it is not: for jobs that some process
// of the fleet should run at this time. It excludes those who run it at the same time, and not who comes after the task has
// returned: where that matters, note in the database what has been done, as examples/cron does. It waits for the first
// connection until ctx ends; then, as whenever it could not ask, it returns false and an error, so that no job is skipped
// unseen. If task ran it returns true and what [Leader.Run]
// would return, but a task whose lock was lost is not run again: the error is then [ErrLost] joined with the task's own.
func (l *Leader) Try(ctx context.Context, name string, task func(context.Context) error) (ran bool, err error) {
	return l.run(ctx, name, true, task)
}

func (l *Leader) run(ctx context.Context, name string, once bool, task func(context.Context) error) (ran bool, err error) {
	c, err := l.enter(ctx, name, once, task)
	if err != nil {
		return false, err
	}
	defer l.leave(c)
	for {
		g, err := l.await(ctx, c)
		if g == nil {
			return ran, err
		}
		ran = true
		again, err := l.lead(ctx, c, g, task)
		if !again {
			return true, err
		}
	}
}

// enter registers a caller who wants name.
func (l *Leader) enter(ctx context.Context, name string, once bool, task func(context.Context) error) (*candidate, error) {
	if err := validText("the name", name, 1024); err != nil {
		return nil, err
	}
	if task == nil {
		return nil, fmt.Errorf("leader: run %q: the task is nil", name)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	outer := insideOf(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	for g := outer; g != nil; g = g.outer {
		if g.name == name && l.candidateLocked(g) != nil {
			return nil, fmt.Errorf("leader: run %q: called from inside the task of that name, whose lock it would wait for", name)
		}
	}
	return l.enterLocked(name, once, outer) //nolint:contextcheck // the loop outlives the call
}

// await blocks until c leads, and returns the grant, or until it never will: nil, and the error of Run, which is nil for
// a Try that was refused.
func (l *Leader) await(ctx context.Context, c *candidate) (*grant, error) {
	for {
		select {
		case <-c.news:
		case <-ctx.Done():
		}
		// Made here, and in two layers, because deriving from the caller's context and leaving it again run its methods:
		// never under mu, where a task is cancelled.
		callers, release := context.WithCancel(ctx)
		own, cancel := context.WithCancelCause(callers)
		g, done, err := l.start(own, cancel, c)
		if g != nil {
			g.release = release
			return g, nil
		}
		release()
		if done {
			_ = l.release(c) // a grant that came too late: nobody has led
			return nil, err
		}
	}
}

// start starts the leadership of c if it has been granted and ctx, of its task, has not ended yet. Otherwise it tells
// whether c is done waiting: from then on nothing is granted to it.
func (l *Leader) start(ctx context.Context, cancel context.CancelCauseFunc, c *candidate) (g *grant, done bool, err error) {
	ended := ctx.Err()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch g := c.grant; {
	case ended != nil:
		err = l.endedLocked(c, ended)
		l.dismissLocked(c, err)
		return nil, true, err
	case c.dismissed:
		return nil, true, c.failed
	case g == nil || g.takeover != nil || g.err() != nil:
		return nil, false, nil
	default:
		g.ctx, g.cancel = context.WithValue(ctx, grantKey{}, g), cancel
		g.life, g.die = context.WithCancel(context.Background())
		l.startLocked(c)
		return g, true, nil
	}
}

// endedLocked is what a caller whose context ended before the task began gets: never less than ctx.Err().
func (l *Leader) endedLocked(c *candidate, ended error) error {
	if !c.once {
		return ended
	}
	return notAnswered("try", c.slot.name, ended, cmp.Or(c.slot.err, l.err))
}

// lead runs the task of a grant and gives the lock back. It tells whether to contend again.
func (l *Leader) lead(ctx context.Context, c *candidate, g *grant, task func(context.Context) error) (again bool, err error) {
	g.caller = ctx
	stopped := make(chan struct{})
	unwatch, returned := func() bool { return true }, false
	defer func() {
		if !returned { // a panic or Goexit is on its way through, of the task or of a method of ctx or of its error
			unwatch()
			l.abandon(c, g)
		}
		g.release()
	}()
	unwatch = context.AfterFunc(ctx, func() { // ends at once: it only takes a note
		defer close(stopped)
		l.stop(c, g, context.Cause(ctx))
	})
	taskErr := task(g.ctx) //nolint:contextcheck // derived from ctx in await
	failure, down := failed(taskErr), l.pause(g, taskErr)
	ended := ctx.Err() // before unwatch: the task may be told, and return, before the watch is
	if !unwatch() {
		<-stopped
	}
	returned = true
	return l.returned(c, g, ended, taskErr, failure, down)
}

// returned ends a leadership after the return of its task, and tells what becomes of its Run.
func (l *Leader) returned(c *candidate, g *grant, ended, taskErr, failure error, down *stepDown) (again bool, err error) {
	reason := endReason(ended, taskErr)
	if down != nil && down.pleaded {
		reason = EndResigned
	}
	o := l.finish(c, g, ended, failure, reason, down)
	if o.again {
		return true, nil
	}
	if o.lost == nil {
		o.lost = l.release(c)
	}
	switch {
	case c.once && o.lost != nil:
		return false, errors.Join(lost(o.lost), taskErr)
	case ended != nil:
		return false, ended
	case o.resigned:
		return false, ErrResigned
	case down != nil:
		if l.cool(c, down) {
			return true, nil
		}
		switch {
		case !c.once:
			return false, ErrResigned
		case down.pleaded:
			return false, errors.Join(ErrHandOver, taskErr)
		}
	}
	return false, taskErr
}

// Note makes name appear in [Leader.Tasks] from now on: for what this process does in the background without a lock, so that
// people who look there see all of it. It never blocks.
func (l *Leader) Note(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notes == nil { // a Leader that New has not made
		l.notes = make(map[string]struct{})
	}
	l.notes[name] = struct{}{}
}
