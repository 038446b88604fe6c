// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/oxygenhub/leader"
)

// vigil is how often the guard gets to know that this process lives and has its lock.
const vigil = 500 * time.Millisecond

// task runs the command for as long as ctx goes on, and returns when nothing of it is left.
func (r *runner) task(ctx context.Context) error {
	if r.done || !r.begun.CompareAndSwap(waiting, started) && r.begun.Load() == waitedEnough {
		return ctx.Err()
	}
	c, err := r.start(ctx)
	if err != nil {
		r.finish(0, cannotRun(err))
		return err
	}
	watched := r.watch(ctx)
	select {
	case <-c.exited:
	case <-ctx.Done():
	}
	cause := r.told(ctx, c)
	sig := terminate
	if s, ok := errors.AsType[*signalError](cause); ok {
		sig = s.sig
	}
	grace := r.grace(cause)
	killed := c.end(sig, grace)
	r.running.Store(nil)
	watched()
	r.guard.ended()
	if killed {
		r.app.note("the command or a process of its group had not ended %v after it was told, and was killed", max(grace, 0))
	}
	return r.ended(ctx, c, cause)
}

// told returns why the command has to end, or nil if it has ended by itself, even if it was to be told in this moment. If it was
// killed while the lock was lost, as the guard does while this process stands still, the loss is why.
func (r *runner) told(ctx context.Context, c *child) error {
	select {
	case <-c.exited:
	default:
		return context.Cause(ctx)
	}
	if err := leader.Confirm(ctx); c.killed() && errors.Is(err, leader.ErrLost) {
		<-ctx.Done() // the library looks at the clocks once a second
		return err
	}
	return nil
}

// grace is how long the command may go on. A process that has slept, and hears late that its lock was lost, does not add to that.
func (r *runner) grace(cause error) time.Duration {
	grace := r.flags.grace
	if until := r.until.Load(); until != nil && errors.Is(cause, leader.ErrLost) {
		left := min(time.Until(*until), until.Round(0).Sub(time.Now().Round(0))) // by both clocks
		grace = min(grace, left+grace)
	}
	return grace
}

// ended notes what becomes of the run, and returns the error of the task. It was told to end because of cause, if that is not nil.
func (r *runner) ended(ctx context.Context, c *child, cause error) error {
	lost := errors.Is(cause, leader.ErrLost)
	switch {
	case lost && r.flags.restart:
		r.app.note("%v: the command was stopped, and is started again when this process leads again", withoutPrefix(cause))
		return cause
	case lost:
		r.finish(0, &exitError{statusLost, fmt.Errorf("%w: the command was stopped", withoutPrefix(cause))})
		r.cancel(errDone) // do not contend again
		return cause
	}
	asked := errors.Is(cause, leader.ErrHandOver)
	if asked && r.flags.restart {
		r.app.note("asked to hand over: the command was stopped, and is started again when this process leads again")
		return cause
	}
	r.finish(c.status(), nil)
	switch {
	case asked:
		r.app.note("asked to hand over: the command was stopped")
		r.cancel(errDone) // do not contend again
		return cause
	case cause != nil:
		return ctx.Err()
	case r.status != 0:
		return fmt.Errorf("exit status %d", r.status)
	}
	return nil
}

// finish notes the result. Should the lock be lost while it is given back, nobody may wait for the next one without end.
func (r *runner) finish(status int, err error) {
	r.done, r.status, r.err = true, status, err
	time.AfterFunc(lease, func() { r.cancel(errDone) })
}

// start starts the command, and has the guard know of it.
func (r *runner) start(ctx context.Context) (*child, error) {
	cmd := &exec.Cmd{Path: r.path, Args: r.argv, Stdout: os.Stdout, Stderr: os.Stderr}
	if _, _, ok := terminal(os.Stdin); !ok { // which would stop a command that is not in its foreground
		cmd.Stdin = os.Stdin
	}
	cmd.Env = os.Environ()
	if term, ok := leader.TermOf(ctx); ok && r.flags.termEnv != "" {
		cmd.Env = append(cmd.Env, r.flags.termEnv+"="+strconv.FormatInt(int64(term), 10))
	}
	c, err := r.reaper.startChild(cmd)
	if err != nil {
		return nil, err
	}
	r.guard.began(c)
	r.running.Store(c)
	return c, nil
}

// watch keeps the guard from killing the command as long as this process is awake and has its lock. The function that it returns
// ends that. Locks that do not expire need no such thing, but a guard that hears.
func (r *runner) watch(ctx context.Context) (stop func()) {
	r.until.Store(nil)
	look := func() {
		if until, ok := leader.Deadline(ctx); ok {
			r.until.Store(&until)
			r.guard.expire(time.Until(until) + r.flags.grace)
		} else if r.until.Load() == nil {
			r.guard.wake()
		}
	}
	look()
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // until stop
		tick := time.NewTicker(vigil)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				look()
			case <-over:
				return
			}
		}
	})
	return func() {
		close(over)
		wg.Wait()
	}
}

// forward passes signals to this process on to the command, and has those that end a process end the run. The function that it
// returns ends that.
func (r *runner) forward() (stop func()) {
	survivePipes()
	signals := make(chan os.Signal, 16)
	var ending []os.Signal
	for _, sig := range endingSignals() {
		if !signal.Ignored(sig) { // as under nohup
			ending = append(ending, sig)
		}
	}
	if len(ending) > 0 {
		signal.Notify(signals, ending...)
	}
	also := make(chan os.Signal, 16)
	if more := passedOn(); len(more) > 0 {
		signal.Notify(also, more...)
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // until stop
		for told := false; ; {
			var sig os.Signal
			select {
			case sig = <-signals:
				if !told { // the task passes it on
					told = true
					r.cancel(&signalError{sig})
					continue
				}
			case sig = <-also:
			case <-over:
				return
			}
			if c := r.running.Load(); c != nil {
				c.signal(sig)
			}
		}
	})
	return func() {
		signal.Stop(signals)
		signal.Stop(also)
		close(over)
		wg.Wait()
	}
}

// withoutPrefix is err without the name of the library, which is also that of this program.
func withoutPrefix(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), "leader: "))
}
