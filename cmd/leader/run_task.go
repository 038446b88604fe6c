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
	sig, told := terminate, false
	select {
	case <-c.exited: // by itself, even if it was to be told in this moment
	default:
		told = true
		if s, ok := errors.AsType[*signalError](context.Cause(ctx)); ok {
			sig = s.sig
		}
	}
	killed := c.end(sig, r.flags.grace)
	r.running.Store(nil)
	watched()
	r.guard.tell("end")
	if killed {
		r.app.note("the command or a process of its group had not ended %v after it was told, and was killed", r.flags.grace)
	}
	return r.ended(ctx, c, told)
}

// ended notes what becomes of the run, and returns the error of the task.
func (r *runner) ended(ctx context.Context, c *child, told bool) error {
	cause := context.Cause(ctx)
	lost := told && errors.Is(cause, leader.ErrLost)
	switch {
	case lost && r.flags.restart:
		r.app.note("%v: the command was stopped, and is started again when this process leads again", withoutPrefix(cause))
		return cause
	case lost:
		r.finish(0, &exitError{statusLost, fmt.Errorf("%w: the command was stopped", withoutPrefix(cause))})
		r.cancel(errDone) // do not contend again
		return cause
	}
	asked := told && errors.Is(cause, leader.ErrHandOver)
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
	case told:
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
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice == 0 {
		cmd.Stdin = os.Stdin // a terminal would stop a command that is not in its foreground
	}
	cmd.Env = os.Environ()
	if term, ok := leader.TermOf(ctx); ok && r.flags.termEnv != "" {
		cmd.Env = append(cmd.Env, r.flags.termEnv+"="+strconv.FormatInt(int64(term), 10))
	}
	c, err := startChild(cmd)
	if err != nil {
		return nil, err
	}
	r.guard.tell("run %d", cmd.Process.Pid)
	r.running.Store(c)
	return c, nil
}

// watch keeps the guard from killing the command as long as this process is awake and has its lock. The function that it returns
// ends that. Locks that do not expire need no such thing.
func (r *runner) watch(ctx context.Context) (stop func()) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // until stop
		tick := time.NewTicker(vigil)
		defer tick.Stop()
		for {
			if until, ok := leader.Deadline(ctx); ok {
				r.guard.expire(time.Until(until) + r.flags.grace)
			}
			select {
			case <-tick.C:
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
