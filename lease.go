// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

var (
	errOutside  = errors.New("leader: the context is not that of a task")
	errReturned = errors.New("the task has returned")
	errLeaseEnd = errors.New("the lease has ended: the session was not proved in time, " +
		"as the database did not answer or this process stood still")
)

// reading is one look at both clocks. The monotonic clock stands still while the machine sleeps, and the wall clock can
// be set back: together they tell too short a time only if both happen at once.
type reading struct {
	mono, wall time.Duration
}

// since returns the time from earlier to r: the larger of what the two clocks say.
func (r reading) since(earlier reading) time.Duration {
	return max(r.mono-earlier.mono, r.wall-earlier.wall)
}

// clock reads the time. Its skew moves the wall clock away from the monotonic one: a test's way to suspend the machine.
type clock struct {
	epoch time.Time
	skew  atomic.Int64
}

// read looks at both clocks: one call of time.Now, which is most of what [Confirm] and [Leader.IsLeading] cost.
func (c *clock) read() reading {
	now := time.Now()
	return reading{mono: now.Sub(c.epoch), wall: time.Duration(now.UnixNano() + c.skew.Load())}
}

// lease is the trust in one session: it lasts for a time from when the last proof was sent, and ends for good with the
// session. All grants of the session share it, so that one store voids them all.
type lease struct {
	clock  *clock
	length time.Duration // 0 where locks do not expire: then only end ends it
	sent   atomic.Pointer[reading]
	ended  atomic.Pointer[error]
}

// renew counts the lease from sent, when a proof that has been answered was sent. The loop calls it only while the
// lease is valid: a late answer revives nothing.
func (s *lease) renew(sent reading) { s.sent.Store(&sent) }

// end voids the lease for good.
func (s *lease) end(reason error) { s.ended.Store(&reason) }

// age returns the time since the last proof was sent.
func (s *lease) age(now reading) time.Duration { return now.since(*s.sent.Load()) }

func (s *lease) expired(now reading) bool { return s.length > 0 && s.age(now) >= s.length }

// err returns nil while the session surely lives, and otherwise why not.
func (s *lease) err() error {
	if reason := s.ended.Load(); reason != nil {
		return *reason
	}
	if s.expired(s.clock.read()) {
		return errLeaseEnd
	}
	return nil
}

// leaseError is the end of a lease whose last proof was answered with an error. It is formatted when somebody reads it.
type leaseError struct{ last error }

func (e *leaseError) Error() string {
	return fmt.Sprintf("the lease has ended: the session was not proved in time, as the last proof failed: %v", e.last)
}
func (e *leaseError) Unwrap() []error { return []error{errLeaseEnd, e.last} }

// grant is one leadership of one name: from the lock to the return of the task.
type grant struct {
	leader *Leader
	name   string
	lease  *lease
	worker *worker
	outer  *grant // of the task that called Run, if one did
	key    int64
	site   termSite

	takeover *takeover // until the task may start; guarded by Leader.mu, like the next five
	reason   EndReason // of the term, when the task has returned
	kept     bool      // lost, but the session has the lock
	pleaded  bool      // somebody has asked for a handover
	pausing  bool      // the name is left to others now that its task has returned
	since    time.Time // when its task started
	why      Reason    // its task was told to stop; "" if it was not
	term     Term      // set before the task starts

	over   atomic.Pointer[error]   // why it is over: lost, or the task has returned
	ctx    context.Context         //nolint:containedctx // the task's: it is what a grant hands out and takes back
	cancel context.CancelCauseFunc // of ctx; nil until the task starts

	life context.Context    //nolint:containedctx // ends with the leadership, for those who have joined it
	die  context.CancelFunc // of life; nil until the task starts

	caller  context.Context //nolint:containedctx // of Run, from which ctx is derived
	release func()          // takes ctx off caller
}

type grantKey struct{}

// grantOf returns the leadership that ctx belongs to.
func grantOf(ctx context.Context) *grant {
	switch g := ctx.Value(grantKey{}).(type) {
	case *grant:
		return g
	case *Joined:
		return g.grant
	}
	return nil
}

// insideOf returns the leadership of the task that ctx was given to. Who has only joined is not inside a task.
func insideOf(ctx context.Context) *grant {
	switch g := ctx.Value(grantKey{}).(type) {
	case *grant:
		return g
	case *Joined:
		return insideOf(g.parent) //nolint:contextcheck // that of g is in front of it
	}
	return nil
}

// err returns nil while the lock is surely held: what the loop knows, and both clocks.
func (g *grant) err() error {
	if reason := g.over.Load(); reason != nil {
		return *reason
	}
	return g.lease.err()
}

// lose voids the grant and tells the task, if it has started. It runs no code of the user: a function that is to run
// after a context gets a goroutine of its own.
func (g *grant) lose(reason error) {
	g.over.Store(&reason)
	if g.cancel != nil {
		g.cancel(lost(reason))
		g.die()
	}
}

// lost wraps why a leadership ended in ErrLost.
func lost(reason error) error { return &lostError{reason} }

// lostError is formatted when somebody reads it: its reason may be an error of the user's, whose methods must not run
// where a task is told.
type lostError struct{ reason error }

func (e *lostError) Error() string   { return fmt.Sprintf("%v: %v", ErrLost, e.reason) }
func (e *lostError) Unwrap() []error { return []error{ErrLost, e.reason} }

// Confirm returns nil while the task that ctx was given to surely still leads, and otherwise an error: [ErrLost] with
// the reason, or another one if ctx is not a task's. It asks no one: it compares both clocks with the last proof of the
// session, so a process that was frozen or a machine that was suspended knows on waking. A task whose caller's context
// ended, or that [Leader.Resign] stops, still leads until it returns. What Confirm says is true when it is said; a write
// that must not happen later needs fencing (docs/guarantees.md). It neither blocks nor allocates, and may be called
// concurrently.
func Confirm(ctx context.Context) error {
	g := grantOf(ctx)
	if g == nil {
		return errOutside
	}
	if reason := g.err(); reason != nil {
		return lost(reason)
	}
	return nil
}

// Deadline returns until when the task that ctx was given to leads if nothing more is heard from the database: the
// start of the last good proof plus Options.Lease. It moves on with each proof. It is false where leadership does not
// expire (SQLite), where it has already ended, and for a context that is not a task's. It never blocks, and may be called
// concurrently.
func Deadline(ctx context.Context) (time.Time, bool) {
	g := grantOf(ctx)
	if g == nil || g.lease.length == 0 || g.err() != nil {
		return time.Time{}, false
	}
	return time.Now().Add(g.lease.length - g.lease.age(g.lease.clock.read())), true
}

// backoff is the pause after failure number n, counted from 0: full jitter under a bound that doubles from 100 ms to
// 5 s. It is never zero, so that a loop of failures always yields.
func backoff(n int) time.Duration {
	const first, most = 100 * time.Millisecond, 5 * time.Second
	bound := most
	if n < 6 {
		bound = min(most, first<<max(n, 0))
	}
	return 1 + rand.N(bound)
}

// jitter moves d by up to a fifth either way.
func jitter(d time.Duration) time.Duration {
	return d - d/5 + rand.N(2*(d/5)+1)
}
