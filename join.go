// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"
)

// Joined is the context of work that is done under a leadership outside of its task, as a request that a gate lets pass: see
// [Leader.Join]. It must not be copied once it is in use.
//
// It is a type of its own to cost nothing where nobody asks for its end: no goroutine, no lock that others take, and no
// allocation but that of the struct that it is part of.
type Joined struct {
	parent context.Context //nolint:containedctx // it is a context itself
	grant  *grant          // nil: like parent

	mu     sync.Mutex
	own    context.Context //nolint:containedctx // made when somebody first asks for the end, or at the end
	cancel context.CancelCauseFunc
	leave  func() bool // the leadership
}

// Join returns a context for work that this process does because it leads name, and true; or false if it does not lead it,
// in the sense of [Leader.IsLeading]. The context is that of ctx, with the leadership added: [TermOf], [Confirm], [Deadline]
// and the Fence functions take it. It ends when ctx ends, and when the leadership does: when the lock is lost, or the task
// has returned. Its cause then wraps [ErrLost], and it stays ended when this process leads again. A task that was told to stop
// and has not returned leads still: so it may wait for such work, while Join lets in no more of it.
//
// The lock is not held for the work, and the task does not wait for it by itself: writes should be fenced. Give ctx an end,
// as a request's has, which is what lets go of the leadership. Join asks no one, and neither blocks nor allocates.
func (l *Leader) Join(ctx context.Context, name string) (work Joined, ok bool) {
	if g, found := l.leading.Load(name); found && g.(*grant).leads() {
		return Joined{parent: ctx, grant: g.(*grant)}, true
	}
	return Joined{parent: ctx}, false
}

// String says whose leadership was joined. Without it fmt would read all fields, while they change.
func (j *Joined) String() string {
	if j.grant == nil {
		return "leader.Joined"
	}
	return "leader.Joined(" + strconv.Quote(j.grant.name) + ")"
}

// Deadline returns that of the parent.
func (j *Joined) Deadline() (time.Time, bool) { return j.parent.Deadline() }

// Done returns a channel that is closed at the end.
func (j *Joined) Done() <-chan struct{} {
	if j.grant == nil {
		return j.parent.Done()
	}
	return j.context().Done()
}

// Err returns nil until the end. Unlike Done, it looks at both clocks: it knows when Confirm does.
func (j *Joined) Err() error {
	if j.grant == nil {
		return j.parent.Err()
	}
	if j.grant.err() == nil {
		if own := j.made(); own != nil {
			return own.Err()
		}
		return j.parent.Err()
	}
	own := j.context()
	j.end()
	return own.Err()
}

// Value returns that of the parent, but for the leadership.
func (j *Joined) Value(key any) any {
	if j.grant == nil {
		return j.parent.Value(key)
	}
	if key == (grantKey{}) {
		return j
	}
	if j.grant.err() != nil { // context.Cause looks for the cause here, before it asks for Err
		own := j.context()
		j.end()
		return own.Value(key)
	}
	if own := j.made(); own != nil {
		return own.Value(key)
	}
	return j.parent.Value(key)
}

func (j *Joined) made() context.Context {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.own
}

// context returns the context that stands behind j. It is in the hands of parent and of the grant.
func (j *Joined) context() context.Context {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.own == nil {
		j.own, j.cancel = context.WithCancelCause(j.parent)
		j.leave = context.AfterFunc(j.grant.life, j.end)
		context.AfterFunc(j.own, func() { j.leave() })
	}
	return j.own
}

func (j *Joined) end() { j.cancel(j.why()) }

// why is the cause of an end that the grant brought.
func (j *Joined) why() error {
	reason := j.grant.err()
	// What the task was told to stop for, if it was: there is none right after its return.
	if cause := context.Cause(j.grant.ctx); errors.Is(reason, errReturned) && cause != nil && !errors.Is(cause, context.Canceled) {
		reason = cause
	}
	return lost(reason)
}
