// SPDX-License-Identifier: MIT

package leader

import (
	"errors"
	"time"
)

// stopping is a task that was told to stop, and when it is overrun.
type stopping struct {
	candidate *candidate
	at        time.Time
}

// expireLocked gives the session up when it has not been proved for the length of the lease.
func (l *Leader) expireLocked() {
	if l.current != nil && l.current.lease.expired(l.clock.read()) {
		reason := errLeaseEnd
		if l.proofErr != nil {
			reason = &leaseError{l.proofErr}
		}
		l.loseLocked(reason, false)
	}
}

// brokenLocked is the end of a session, seen by its worker.
func (l *Leader) brokenLocked(w *worker, err error) {
	var over *sessionError
	ended := errors.As(err, &over) && over.ended
	if w == l.current {
		l.loseLocked(err, ended)
		return
	}
	w.ended = w.ended || ended // nothing is left to hold open
}

// loseLocked gives the current session up and voids all that was granted in it. If the other side has ended it, it is
// closed. Otherwise its locks may still be held, and must be for as long as a task of it runs: it is held open, in silence.
func (l *Leader) loseLocked(reason error, ended bool) {
	w := l.current
	l.current = nil
	if w.retire() {
		w.busy = false
	}
	l.losses++
	w.lease.end(reason) // all at once, before any single one
	why := sessionReason(reason)
	l.emitLocked(Event{Kind: Disconnected, Reason: why, Err: reason, more: &more{names: l.namesHeldLocked(w)}})
	for _, s := range l.slots {
		l.loseSlotLocked(s, why, reason)
		s.refused = false
		l.forgetWaitLocked(s)
	}
	l.generation++ // after what is told of the old one
	w.unwanted(l.frees...)
	l.fresh, l.heard, l.frees, l.tells, l.reads, l.verify = nil, nil, nil, nil, nil, false
	l.askAgainLocked()
	if ended || w.running == 0 {
		w.kill()
	} else {
		l.retired = append(l.retired, w)
	}
	l.since, l.err = time.Now(), reason
	l.dialAt = l.since.Add(backoff(l.failures))
	l.failures++
	l.poke()
}

// loseSlotLocked voids what s was granted.
func (l *Leader) loseSlotLocked(s *slot, why Reason, reason error) {
	c := s.first()
	if c == nil || c.grant == nil || c.grant.over.Load() != nil && !s.freeing {
		return
	}
	if w := c.grant.worker; w != l.current && (s.freeing || c.grant.cancel == nil) {
		w.unwanted(s.key) // no task of it runs
	}
	if s.freeing { // its task has returned while the lock was held: nothing is lost
		l.freedLocked(s, Released, c.grant.stopReason(), reason)
		return
	}
	g := c.grant
	s.losses++
	s.err = reason
	g.lose(reason)
	if g.cancel == nil { // the task has not started, so nobody is told
		l.contendLocked(s)
		return
	}
	e := g.event(Event{Kind: Lost, Reason: why, Elapsed: g.led(), Err: reason})
	if g.why == ReasonCaller || g.why == ReasonResigned { // before
		e.more.variant = stopped
	}
	l.stopLocked(c, why)
	l.emitLocked(e)
}

// dropRetiredLocked closes the sessions whose tasks have returned, or whose locks the server has freed by now. Its time is
// that of the monotonic clock alone: a wall clock that is set forward frees no lock, and after a suspend the server says
// so itself.
func (l *Leader) dropRetiredLocked(now time.Time, due func(time.Time)) {
	kept := l.retired[:0]
	for _, w := range l.retired {
		left := clockGap // where locks do not expire, nobody else frees them
		if w.lease.length > 0 {
			left = l.opts.SessionTimeout - (l.clock.read().mono - w.session.sent().mono)
		}
		if w.running == 0 || w.ended || left <= 0 {
			w.end()
			continue
		}
		l.freeRetiredLocked(w)
		due(now.Add(min(left, clockGap)))
		kept = append(kept, w)
	}
	clear(l.retired[len(kept):])
	l.retired = kept
}

// freeRetiredLocked gives back what tasks of a session given up held that have returned, while others still run: where locks
// do not expire, they would wait for the last one for ever.
func (l *Leader) freeRetiredLocked(w *worker) {
	if len(w.frees) == 0 || w.busy {
		return
	}
	keys := w.frees
	w.frees, w.busy = nil, true
	w.do(func(s session) func() {
		_, _ = s.unlock(keys) // what fails goes with the session
		return func() { w.busy = false }
	})
}

// overrunLocked reports the tasks that were told to stop and have not returned in time.
func (l *Leader) overrunLocked(now time.Time, due func(time.Time)) {
	for len(l.stopping) > 0 {
		c, at := l.stopping[0].candidate, l.stopping[0].at
		if c.stopAt.Equal(at) && c.state == StateStopping && c.grant != nil {
			if now.Before(at) {
				due(at)
				return
			}
			if c.grant.over.Load() != &errReturned {
				c.state = StateOverrun
				l.emitLocked(c.grant.event(Event{Kind: Overrun, Reason: c.grant.why, Err: c.slot.err}))
			}
		}
		l.stopping = l.stopping[1:]
	}
}
