// SPDX-License-Identifier: MIT

package leadergocron

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/go-co-op/gocron/v2"

	"github.com/oxygenhub/leader"
)

// Elector is a gocron.Elector: the jobs of a scheduler run in the process that leads a name. Make one with [NewElector], give it to
// gocron.WithDistributedElector, and call [Elector.Run]. Its methods may be called concurrently.
type Elector struct {
	l    *leader.Leader
	name string

	running atomic.Bool
	leads   atomic.Pointer[work] // tasks of the leadership of Run; nil if there is none
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector whose process leads when it leads name on l. All processes of the fleet must give the same name; a
// scheduler with other jobs needs another. It fails if l is nil or name is none, and starts nothing: [Elector.Run] does.
func NewElector(l *leader.Leader, name string) (*Elector, error) {
	switch {
	case l == nil:
		return nil, errNil
	case name == "" || len(name) > 1024 || !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return nil, fmt.Errorf("leadergocron: the name of the Elector is %.50q: it must be 1 to 1,024 bytes of UTF-8 without NUL", name)
	}
	return &Elector{l: l, name: name}, nil
}

// Run contends for the name, by [leader.Leader.Run], and leads until ctx ends, again after a loss. It blocks, and returns what that
// returns: ctx.Err(), [leader.ErrResigned], or [leader.ErrUnsupported]. When the leadership ends, wrapped tasks are told to
// stop; the lock is given back, or contended for again, when all of them have returned. Jobs that are not wrapped are not
// known: call Shutdown of the scheduler before ctx ends. A second Run at the same time is an error.
func (e *Elector) Run(ctx context.Context) error {
	if !e.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer e.running.Store(false)
	return e.l.Run(ctx, e.name, func(ctx context.Context) error {
		var tasks work
		e.leads.Store(&tasks)
		<-ctx.Done()
		tasks.end(context.Cause(ctx))
		e.leads.Store(nil)
		return nil
	})
}

// IsLeader returns nil while this process leads, in the sense of [leader.Leader.IsLeading], and otherwise [ErrStandby], or
// [ErrNotRunning] if [Elector.Run] is not called. It asks no one and never blocks. gocron calls it before each run and drops
// the error: jobs of a scheduler whose Elector is not running are skipped without a word.
func (e *Elector) IsLeader(context.Context) error {
	switch {
	case !e.running.Load():
		return ErrNotRunning
	case e.leads.Load() == nil || !e.l.IsLeading(e.name):
		return ErrStandby
	}
	return nil
}

// Task wraps the function of a job, for gocron.NewTask, so that it hears of the end of the leadership. Its context is that of the
// job, with the leadership added: it ends when the lock is lost, with a cause that wraps [leader.ErrLost], when the context of
// Run ends, and when Resign is called; [leader.TermOf], [leader.Confirm] and the Fence functions take it. Run then waits for
// task. If this process does not lead any more when the run begins, task is not called, and the error is [ErrStandby]. If the
// lock was lost during the run, the error wraps leader.ErrLost, joined with that of task.
func (e *Elector) Task(task func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		tasks := e.leads.Load()
		if tasks == nil {
			return fmt.Errorf("%w: %q", ErrStandby, e.name)
		}
		return tasks.run(ctx, e.l, e.name, task)
	}
}
