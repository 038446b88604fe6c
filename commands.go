// SPDX-License-Identifier: MIT

package leader

import (
	"errors"
	"slices"
	"time"
)

var (
	errNotHeld  = errors.New("the lock was gone before it was given back")
	errLockGone = errors.New("the database does not hold the lock any more, although the session lives")
)

// commandLocked gives the session, which is at rest, the most urgent command that is due.
func (l *Leader) commandLocked(now time.Time, due func(time.Time)) {
	check := !now.Before(l.checkAt)
	switch {
	case check && !l.proved:
		l.proveLocked()
	case len(l.tells) > 0:
		l.tellLocked() // before more is given back: there may be no end of that
	case len(l.frees) > 0:
		l.unlockLocked()
	case len(l.reads) > 0:
		l.readLocked()
	case len(l.asks) > 0 && l.tried:
		l.askLocked() // between two tries: there may be no end of them
	case l.verify && l.current.info.reads:
		l.verifyLocked()
		if !l.current.busy {
			l.commandLocked(now, due) // there was nothing to compare
		}
	case l.triesLocked(now, due):
	case len(l.asks) > 0:
		l.askLocked()
	case check: // again, because there is nothing else to do: proofs that take longer than Check must not hold up the rest
		l.proveLocked()
	default:
		due(l.checkAt)
	}
}

// orderLocked has the current session run command, and the loop run answer unless the session is over by then.
func (l *Leader) orderLocked(command func(session) error, answer func(error)) {
	w := l.current
	w.busy = true
	l.proved, l.tried = false, false
	w.do(func(s session) func() {
		err := command(s)
		return func() {
			w.busy = false
			var over *sessionError
			switch {
			case errors.As(err, &over):
				l.brokenLocked(w, err)
			case w == l.current:
				answer(err)
			default: // given up meanwhile: what it took too late is nobody's
				w.unwanted(w.took...)
			}
			w.took = nil
		}
	})
}

// proveLocked asks for a proof. It counts from when it was sent, and finds what was lost without the session.
func (l *Leader) proveLocked() {
	var span struct{ sent, answered reading } // one variable, as it is allocated
	var gone []int64
	l.orderLocked(func(s session) (err error) {
		span.sent = l.clock.read()
		gone, err = s.prove()
		span.answered = l.clock.read()
		return err
	}, func(err error) {
		l.checkAt = time.Now().Add(max(l.opts.Check-l.clock.read().since(span.sent), 0))
		for _, key := range gone {
			if s := l.keys[key]; s != nil && !s.freeing {
				l.loseSlotLocked(s, ReasonLock, errLockGone)
			}
		}
		if err != nil {
			l.counts.ProofErrors++
			l.err, l.proofErr = err, err // the session lives, but has proved nothing: the lease goes on running down
			return
		}
		l.failures, l.proofErr = 0, nil
		if l.tryFailures == 0 {
			l.err = nil
		}
		l.current.lease.renew(span.sent)
		l.counts.Proofs++
		l.proofTook = span.answered.since(span.sent)
		l.counts.ProofTime += l.proofTook
		l.verify = l.store != nil
	})
	l.proved = true
}

// unlockLocked gives back all locks that are to be given back, and tells the standbys of other processes, in one go: each step of
// its own would cost a handover the way to the loop and back. What cannot be given back for sure is given up with the session.
func (l *Leader) unlockLocked() {
	w, keys := l.current, l.frees
	l.frees = nil
	var missing []int64
	var untold error
	told, began := false, time.Now()
	quick := func() bool { return time.Since(began) < oneGo && !w.givenUp() } // a session given up is silent
	l.orderLocked(func(s session) (err error) {
		if missing, err = s.unlock(keys); err != nil {
			return err
		}
		// Where one task returns, as after Resign, others do meanwhile: one notification for all.
		if more := l.moreFrees(w, quick); len(more) > 0 {
			gone, err := s.unlock(more)
			if err != nil {
				return err
			}
			keys, missing = append(keys, more...), append(missing, gone...)
		}
		if told = quick(); told {
			untold = s.tell(keys)
		}
		return nil
	}, func(err error) {
		if err != nil {
			l.loseLocked(err, false)
			return
		}
		for _, key := range missing {
			if s := l.keys[key]; s != nil && s.freeing {
				s.first().freeErr = errNotHeld
			}
		}
		if told {
			l.toldLocked(w, keys, untold)
		} else {
			l.tells = append(l.tells, keys...)
			for _, key := range keys {
				if s := l.keys[key]; s != nil {
					s.free = s.freeing
				}
			}
		}
	})
}

// tellLocked tells of the locks that were not given back in one go.
func (l *Leader) tellLocked() {
	w, keys := l.current, l.tells
	l.tells = nil
	var untold error
	l.orderLocked(func(s session) error {
		untold = s.tell(keys)
		return nil
	}, func(error) { l.toldLocked(w, keys, untold) })
}

// toldLocked lets the callers go, so late that a process that exits next has told the standbys, or has tried to.
func (l *Leader) toldLocked(w *worker, keys []int64, untold error) {
	_, over := errors.AsType[*sessionError](untold)
	if untold != nil && !over {
		l.emitLocked(Event{Kind: Untold, Err: untold, more: &more{names: l.namesLocked(keys)}})
	}
	l.givenBackLocked(keys)
	if over { // only then: these locks did not end with it
		l.brokenLocked(w, untold)
	}
}

// moreFrees takes what is to be given back by now, for the command of w that is at it, if that is quick.
func (l *Leader) moreFrees(w *worker, quick func() bool) []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w != l.current || !quick() {
		return nil
	}
	more := l.frees
	l.frees = nil
	return more
}

// givenBackLocked lets the callers go whose locks are not held any more.
func (l *Leader) givenBackLocked(keys []int64) {
	for _, key := range keys {
		switch s := l.keys[key]; {
		case s == nil || !s.freeing: // nobody waits for it
		case s.first().freeErr != nil:
			l.freedLocked(s, Lost, ReasonLock, s.first().freeErr)
		default:
			l.freedLocked(s, Released, s.first().grant.stopReason(), nil)
		}
	}
}

// freedLocked lets the caller go whose lock is not held any more.
func (l *Leader) freedLocked(s *slot, kind EventKind, why Reason, err error) {
	c := s.first()
	g := c.grant
	s.freeing, s.free, s.markBy = false, false, time.Time{}
	c.grant = nil
	c.freed = true
	if g.cancel != nil { // its task had started
		e := g.event(Event{Kind: kind, Reason: why, Elapsed: g.led(), Err: err})
		if g.pausing {
			e.more.variant = pausing
		}
		l.emitLocked(e)
	}
	c.signal()
}

// triesLocked asks for the locks of contenders when it is time: of all, every Retry; of those that are new or that a
// notification named, now. It tells whether it did.
func (l *Leader) triesLocked(now time.Time, due func(time.Time)) bool {
	if len(l.contenders) == 0 {
		return false
	}
	due(l.checkAt)
	if now.Before(l.notBefore) {
		due(l.notBefore)
		return false
	}
	if calm := l.heardAt.Add(herdGap); len(l.heard) > 0 && now.Before(calm) {
		due(calm)
	} else if len(l.heard) > 0 {
		l.fresh = append(l.fresh, l.heard...)
		l.heard, l.heardAt = nil, now
	}
	all := !now.Before(l.tryAt)
	if all {
		l.heard = nil
	}
	keys := l.wantedLocked(now, all)
	if len(keys) == 0 {
		if all { // they back off, each for itself
			l.tryAt = now.Add(jitter(l.opts.Retry))
		}
		due(l.tryAt)
		return false
	}
	l.tryLocked(keys, all)
	return true
}

// wantedLocked returns the keys to ask for, each once, and forgets who is new.
func (l *Leader) wantedLocked(now time.Time, all bool) []int64 {
	var keys []int64
	if all {
		for s := range l.contenders {
			if s.ready(now) {
				keys = append(keys, s.key)
			}
		}
	} else {
		for _, s := range l.fresh {
			if _, waits := l.contenders[s]; waits && s.ready(now) {
				keys = append(keys, s.key)
			}
		}
		slices.Sort(keys)
		keys = slices.Compact(keys)
	}
	l.fresh = nil
	return keys
}

func (l *Leader) tryLocked(keys []int64, all bool) {
	l.tries++
	l.counts.Tries++
	number, started := l.tries, time.Now()
	w := l.current
	var held []int64
	l.orderLocked(func(s session) (err error) {
		held, err = s.try(keys)
		w.took = held
		return err
	}, func(err error) {
		now := time.Now()
		took := now.Sub(started)
		if all {
			l.tryAt = now.Add(max(jitter(l.opts.Retry), l.stretchLocked(took)))
		}
		l.tryTook = took
		for _, key := range held {
			l.grantLocked(key)
		}
		var some *keysError
		if err != nil {
			l.counts.TryErrors++
		}
		if err != nil && !errors.As(err, &some) {
			l.tryFailedLocked(keys, err, now)
			return
		}
		if l.tryFailures > 0 {
			l.tryFailures, l.err = 0, nil
		}
		l.answeredLocked(keys, some, number)
	})
	l.tried = true
}

// stretchLocked returns how long to wait for the next try so that tries take at most a twentieth of the time. One slow
// answer is not enough, and the stretch has an end: a standby must not forget to ask.
func (l *Leader) stretchLocked(took time.Duration) time.Duration {
	return min(20*min(took, l.tryTook), 10*l.opts.Retry)
}

// answeredLocked is the answer to try number: those of keys that were not got are held by somebody, but for some that
// could not be asked for, whose names alone have that trouble.
func (l *Leader) answeredLocked(keys []int64, some *keysError, number uint64) {
	troubled := make(map[int64]struct{})
	if some != nil {
		for _, key := range some.keys {
			troubled[key] = struct{}{}
		}
	}
	for _, key := range keys {
		s := l.keys[key]
		_, trouble := troubled[key]
		switch {
		case s == nil:
		case !trouble:
			if _, waits := l.contenders[s]; waits {
				l.waitingLocked(s.first())
			}
			s.refused = false
			l.refuseLocked(s, number)
		default:
			if !s.refused {
				s.refused = true
				l.forgetWaitLocked(s)
				l.emitLocked(Event{Kind: Refused, Name: s.name, Err: some.err, more: &more{wait: l.opts.Retry}})
			}
			s.err = some.err
		}
	}
}

// tryFailedLocked backs off: the session lives, and so do the tasks.
func (l *Leader) tryFailedLocked(keys []int64, err error, now time.Time) {
	if l.tryFailures == 0 {
		l.emitLocked(Event{Kind: Refused, Err: err, more: &more{names: l.namesLocked(keys)}})
	}
	l.err = err
	for _, key := range keys {
		if s := l.keys[key]; s != nil {
			if _, waits := l.contenders[s]; waits {
				s.err = err
				l.forgetWaitLocked(s)
			}
		}
	}
	l.notBefore = now.Add(backoff(l.tryFailures))
	l.tryAt = l.notBefore
	l.tryFailures++
}

// grantLocked gives a lock that was got to whoever still wants it.
func (l *Leader) grantLocked(key int64) {
	s := l.keys[key]
	if _, wanted := l.contenders[s]; !wanted || l.resigned {
		l.frees = append(l.frees, key)
		return
	}
	delete(l.contenders, s)
	c := s.first()
	c.grant = &grant{
		leader: l, name: s.name, key: s.key, site: l.site,
		lease: l.current.lease, worker: l.current, outer: c.outer,
	}
	if l.store != nil {
		l.takeoverLocked(s)
	} else {
		c.signal()
	}
	l.refuseLocked(s, l.tries+1)
}

// refuseLocked sends those away who only try, and did so before try number was sent: the lock is held, by another process
// or by this one.
func (l *Leader) refuseLocked(s *slot, number uint64) {
	for _, c := range s.queue {
		if c.once && c.grant == nil && c.entered < number {
			l.dismissLocked(c, nil)
		}
	}
}

// heardLocked has those ask at once who wait for one of keys, but not too often.
func (l *Leader) heardLocked(w *worker, keys []int64) {
	if w != l.current {
		return // the next session asks for all
	}
	for _, key := range keys {
		s := l.keys[key]
		if _, waits := l.contenders[s]; waits {
			l.heard = append(l.heard, s)
			l.known.stir()
		}
	}
}
