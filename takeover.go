// SPDX-License-Identifier: MIT

package leader

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// markTimeout is how long the release of a lock waits for its term to be marked as ended.
const markTimeout = 200 * time.Millisecond

var errTermGone = errors.New("its term is not in leader_terms any more")

// takeover is what lies between a lock and its task: the beginning of a term.
type takeover struct {
	slot    *slot
	grant   *grant
	want    termWant
	granted time.Time
	startAt time.Time // with TakeoverDelay
	clean   bool      // the last term had ended for sure

	cancel  func() // of the goroutine that waits in the queue
	pid     uint32 // of the server's process that does
	blocker Blocker
	told    bool // of what it waits for
}

// Blocker is the transaction that a takeover waits for: one that has the row of the name locked, as [Fence] does.
type Blocker struct {
	PID         uint32        // of the server's process; 0 if nothing is waited for, or if that is not known (SQLite)
	Application string        // its application_name, "" if this role may not see it
	Age         time.Duration // of the transaction, when it was last looked at; 0 if this role may not see it
}

func (b Blocker) Error() string {
	text := "the term of the name is locked by a transaction"
	if b.PID != 0 {
		text += fmt.Sprintf(" of server process %d", b.PID)
	}
	if b.Application != "" {
		text += fmt.Sprintf(" (%s)", b.Application)
	}
	if b.Age != 0 {
		text += fmt.Sprintf(", open for %v", b.Age.Round(time.Millisecond))
	}
	return text
}

// void tells that the lock is not held any more, or that nobody wants it.
func (t *takeover) void() bool { return t.grant.over.Load() != nil || t.grant.takeover != t }

// takeoverLocked begins the takeover of a name whose lock was got.
func (l *Leader) takeoverLocked(s *slot) {
	c := s.first()
	c.become(StateTakeover)
	t := &takeover{slot: s, grant: c.grant, granted: c.since, want: termWant{key: s.key, name: s.name, last: unread}}
	c.grant.takeover = t
	l.beginLocked(t)
}

// beginLocked has the term of t begun: read on the session, if it can, as what is read there is read under the lock.
func (l *Leader) beginLocked(t *takeover) {
	if l.current.info.reads {
		l.reads = append(l.reads, t)
	} else {
		l.clerk.begins = append(l.clerk.begins, t)
	}
	l.poke()
}

// readLocked reads the last terms of the names whose locks were just got.
func (l *Leader) readLocked() {
	reads := l.reads
	l.reads = nil
	keys := make([]int64, len(reads))
	for i, t := range reads {
		keys[i] = t.want.key
	}
	var rows map[int64]termRow
	l.orderLocked(func(s session) (err error) {
		rows, err = s.terms(keys)
		return err
	}, func(err error) {
		if err != nil {
			l.takeoversFailedLocked(reads, err)
			return
		}
		for _, t := range reads {
			t.want.last = rows[t.want.key].term
			l.floor = max(l.floor, t.want.last+1)
			l.clerk.begins = append(l.clerk.begins, t)
		}
	})
}

// begunLocked takes up the answers to begins.
func (l *Leader) begunLocked(begins []*takeover, begun map[int64]termBegun, stuck, err error) {
	var failed []*takeover
	for _, t := range begins {
		b, answered := begun[t.want.key]
		switch {
		case answered && b.term != 0:
			l.begunOneLocked(t, b)
		case t.void():
		case err != nil:
			failed = append(failed, t)
		case answered: // somebody came in between: a late beginning of a former holder
			t.want.last = unread
			l.beginLocked(t)
		default:
			l.stuckLocked(t, stuck)
		}
	}
	if err != nil {
		l.takeoversFailedLocked(failed, err)
		return
	}
	l.clerk.failing &^= beginWork
}

// stuckLocked has t wait for a transaction of somebody else.
func (l *Leader) stuckLocked(t *takeover, why error) {
	if !l.store.queues() {
		l.blockedLocked(t, Blocker{}, why)
		l.clerk.begins = append(l.clerk.begins, t)
		l.clerk.notBefore = time.Now().Add(stuckGap)
		return
	}
	l.clerk.stuck = append(l.clerk.stuck, t)
}

// blockedLocked notes what t waits for, and tells it once.
func (l *Leader) blockedLocked(t *takeover, b Blocker, why error) {
	if t.void() {
		return
	}
	if why == nil {
		why = b
	}
	t.blocker, t.slot.err = b, why
	if !t.told {
		t.told = true
		l.emitLocked(t.grant.event(Event{Kind: Blocked, Err: why}))
	}
}

// begunOneLocked is the end of a takeover, but for its delay. What was begun for a lock that is not held any more is marked as
// unused, unless its successor has to wait as this one would have.
func (l *Leader) begunOneLocked(t *takeover, b termBegun) {
	l.floor = max(l.floor, b.term+1)
	own := t.slot.lastTerm != 0 && b.last == t.slot.lastTerm // our own task has returned, or we would not contend
	t.clean = b.clean || own
	if t.void() {
		if t.clean {
			l.endLocked(termEnd{key: t.want.key, name: t.want.name, term: b.term, reason: EndUnused})
		}
		return
	}
	t.grant.term = b.term
	t.blocker, t.slot.err = Blocker{}, nil
	t.startAt = t.granted
	if !t.clean {
		t.startAt = t.granted.Add(l.opts.TakeoverDelay)
	}
	if wait := time.Until(t.startAt); wait > 0 {
		t.slot.err = fmt.Errorf("nobody said that the last term has ended: its task may still be stopping, so the takeover waits for another %v", wait.Round(time.Millisecond))
		e := t.grant.event(Event{Kind: Delayed, Err: t.slot.err})
		e.more.wait = wait
		l.emitLocked(e)
	}
	l.delayed = append(l.delayed, t)
}

// delayedLocked starts the tasks whose takeover has been delayed for long enough.
func (l *Leader) delayedLocked(now time.Time, due func(time.Time)) {
	kept := l.delayed[:0]
	for _, t := range l.delayed {
		switch {
		case t.void():
		case now.Before(t.startAt):
			due(t.startAt)
			kept = append(kept, t)
		default:
			t.grant.takeover = nil
			t.slot.failures, t.slot.lastTerm = 0, t.grant.term
			t.slot.first().signal()
		}
	}
	clear(l.delayed[len(kept):])
	l.delayed = kept
}

// takeoversFailedLocked gives locks back under which no term could be begun: another process may have better luck.
func (l *Leader) takeoversFailedLocked(failed []*takeover, err error) {
	failed = slices.DeleteFunc(failed, (*takeover).void)
	if len(failed) == 0 {
		return
	}
	err = fmt.Errorf("begin a term: %w", err)
	var names []string
	for _, t := range failed {
		names = append(names, t.slot.name)
	}
	e := Event{Kind: TermsRefused, Err: err}
	if len(names) == 1 {
		e.Name = names[0]
	} else {
		e.more = &more{names: names}
	}
	l.clerkFailsLocked(beginWork, e)
	for _, t := range failed {
		s, c := t.slot, t.slot.first()
		s.err = err
		s.notBefore = time.Now().Add(backoff(s.failures))
		s.failures++
		t.grant.takeover = nil
		if c.once { // its call gives the lock back
			l.dismissLocked(c, fmt.Errorf("leader: try %q: %w", s.name, err))
			continue
		}
		t.grant.over.Store(&errReturned)
		c.grant = nil
		c.become(StateContending)
		l.contenders[s] = struct{}{} // with the next Retry
		l.frees = append(l.frees, s.key)
	}
	l.poke()
}

// verifyLocked compares the terms of all that lead with the table. Whoever finds another term there, or none, leads no more:
// its fence is gone.
func (l *Leader) verifyLocked() {
	l.verify = false
	leading := l.termsLocked()
	if len(leading) == 0 {
		return
	}
	if !l.current.info.reads {
		l.clerk.reads = leading
		return
	}
	keys := keysOf(leading)
	var rows map[int64]termRow
	l.orderLocked(func(s session) (err error) {
		rows, err = s.terms(keys)
		return err
	}, func(err error) { l.verifiedLocked(leading, rows, err) })
	l.proved = true // it belongs to the proof: both together must not hold up the rest
}

// termsLocked returns the grants whose terms go on.
func (l *Leader) termsLocked() (leading []*grant) {
	for _, s := range l.slots {
		if c := s.first(); c.grant != nil && c.grant.cancel != nil && c.grant.over.Load() == nil {
			leading = append(leading, c.grant)
		}
	}
	return leading
}

func keysOf(grants []*grant) []int64 {
	keys := make([]int64, len(grants))
	for i, g := range grants {
		keys[i] = g.key
	}
	return keys
}

// verifiedLocked is the answer. An error proves nothing: locks are proved by the session, and Fence asks the table itself.
func (l *Leader) verifiedLocked(leading []*grant, rows map[int64]termRow, err error) {
	if err != nil {
		m := &more{variant: checking, names: l.namesLocked(keysOf(leading))}
		l.clerkFailsLocked(checkWork, Event{Kind: TermsRefused, Err: fmt.Errorf("check the terms: %w", err), more: m})
		l.err = err
		return
	}
	l.clerk.failing &^= checkWork
	for _, g := range leading {
		row, s := rows[g.key], l.slots[g.name]
		l.floor = max(l.floor, row.term+1) // the row may be gone when the next term is begun
		if row.term == g.term || s == nil || s.first().grant != g || g.over.Load() != nil {
			continue
		}
		reason := errTermGone
		if row.term != 0 {
			reason = fmt.Errorf("%w: it has %d of %q instead of %d: somebody else writes to the table", errTermGone, row.term, row.node, g.term)
		}
		g.kept = g.worker == l.current && g.over.Load() == nil
		l.loseSlotLocked(s, ReasonTerm, reason)
	}
}

// endTermLocked has the end of g marked, without waiting for that.
func (l *Leader) endTermLocked(g *grant, reason EndReason) {
	if g.term != 0 {
		l.endLocked(termEnd{key: g.key, name: g.name, term: g.term, reason: reason})
	}
}

func (l *Leader) endLocked(e termEnd) {
	e.by = time.Now().Add(markTimeout)
	l.clerk.ends = append(l.clerk.ends, e)
}

// markLocked has the end of g marked before its lock is given back, and tells whether there is something to wait for.
func (l *Leader) markLocked(s *slot, g *grant) bool {
	switch {
	case g.term == 0:
		return false
	case g.cancel == nil && g.takeover != nil: // its delay is not over: the next one has to wait, too
		return false
	case g.cancel == nil:
		g.reason = EndUnused
	}
	l.endTermLocked(g, g.reason)
	s.markBy = time.Now().Add(markTimeout)
	l.marking = append(l.marking, s)
	return true
}

// markedLocked goes on with the release of s.
func (l *Leader) markedLocked(s *slot) {
	if s.markBy.IsZero() {
		return
	}
	s.markBy = time.Time{}
	if s.freeing && s.first().grant.worker == l.current {
		l.frees = append(l.frees, s.key)
	}
}

// marksLocked goes on without the marks that take too long.
func (l *Leader) marksLocked(now time.Time, due func(time.Time)) {
	l.marking = slices.DeleteFunc(l.marking, func(s *slot) bool {
		if !s.markBy.IsZero() && now.Before(s.markBy) {
			due(s.markBy)
			return false
		}
		l.markedLocked(s)
		return true
	})
}
