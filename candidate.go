// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

var (
	errPanic   = errors.New("the task panicked or called runtime.Goexit")
	errNotMade = errors.New("leader: a Leader is made by New")
	errStuck   = errors.New("the lock of a task that panicked could not be given back in time")
)

// candidate is one call of Run or Try. Its fields, but for the constant ones, are guarded by Leader.mu.
type candidate struct {
	slot  *slot         // constant
	once  bool          // constant: a Try
	outer *grant        // constant: of the task that made the call
	news  chan struct{} // buffer 1: something below has changed

	state   State
	since   time.Time
	wanted  time.Time // since when it waits, or has waited, for the leadership
	grant   *grant    // until the task has returned and the lock has been given back, or was lost
	waiting bool      // it has been told that another process leads
	entered uint64    // the number of tries sent before the call: their answers do not concern a Try
	// dismissed: it will not lead, because of failed or, nil, because it is a Try and the lock is not free.
	dismissed bool
	failed    error
	freed     bool  // the lock has been given back
	freeErr   error // or was found to be gone
	stopAt    time.Time
	// resigning counts the calls of Resign from inside its task: another Resign does not wait for it.
	resigning int
	left      bool // the call of Run or Try has ended
}

func (c *candidate) signal() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

func (c *candidate) become(state State) { c.state, c.since = state, time.Now() }

// slot is all that a Leader knows of one name: the callers who want it, of whom the first contends, and the lock. Two
// callers of one process exclude each other here: the database would say yes to both.
type slot struct {
	name  string
	key   int64
	keyed bool // key is known: it depends on the namespace, which the first connection may tell
	queue []*candidate
	// freeing: the lock is being given back. It is held as long as queue[0].grant is set or this is true.
	freeing bool
	free    bool // it has been, and others are to be told
	losses  uint64
	err     error // the last one that concerned this name
	refused bool  // its lock could not be asked for, the last time

	markBy    time.Time // until when the release waits for the mark of its term; zero when it does not
	lastTerm  Term      // under which a task of ours was started last
	failures  int       // of beginning a term, in a row
	notBefore time.Time // is the lock asked for again
	coolUntil time.Time // likewise, because a task has stepped down
}

func (s *slot) first() *candidate {
	if len(s.queue) == 0 {
		return nil
	}
	return s.queue[0]
}

func (l *Leader) enterLocked(name string, once bool, outer *grant) (*candidate, error) {
	if err := l.openLocked(); err != nil {
		return nil, err
	}
	s := l.slots[name]
	if s == nil {
		s = &slot{name: name, coolUntil: l.pauses[name]}
	}
	if err := l.keyLocked(s); err != nil {
		return nil, err
	}
	l.slots[name] = s
	c := &candidate{slot: s, once: once, outer: outer, entered: l.tries, news: make(chan struct{}, 1)}
	c.become(StateContending)
	c.wanted = c.since
	s.queue = append(s.queue, c)
	switch first := s.first(); {
	case once && (first.grant != nil || s.cooling(time.Now())): // it is held here, or left to others
		l.dismissLocked(c, nil)
	case first == c:
		l.contendLocked(s)
	case first.grant != nil:
		l.waitingLocked(c)
	case once:
		l.freshLocked(s) // whoever stands by can wait for the next Retry, but not a Try
	}
	l.candidates++
	l.startLoopLocked()
	return c, nil
}

// openLocked returns why nothing can be asked of l, if so.
func (l *Leader) openLocked() error {
	switch {
	case l.backend == nil:
		return errNotMade
	case l.resigned:
		return ErrResigned
	}
	return nil
}

// keyLocked computes the key of s once the namespace is known.
func (l *Leader) keyLocked(s *slot) error {
	if !l.named || s.keyed {
		return nil
	}
	key := Key(l.namespace, s.name)
	if other := l.keys[key]; other != nil {
		return fmt.Errorf("leader: %q and %q have the same key %016x: rename one", s.name, other.name, uint64(key))
	}
	s.key, s.keyed = key, true
	l.keys[key] = s
	return nil
}

// contendLocked has the loop ask for the lock of s, for its first candidate.
func (l *Leader) contendLocked(s *slot) {
	c := s.first()
	c.grant, c.waiting = nil, false
	c.become(StateContending)
	if c.dismissed {
		return // it is about to leave
	}
	l.contenders[s] = struct{}{}
	l.freshLocked(s)
}

// freshLocked has the lock of s asked for now.
func (l *Leader) freshLocked(s *slot) {
	l.restUntil = time.Time{}
	if l.current != nil { // a new session asks for all of them
		l.fresh = append(l.fresh, s)
	}
	l.poke()
}

// dismissLocked tells c that it will not lead.
func (l *Leader) dismissLocked(c *candidate, err error) {
	if c.dismissed {
		return
	}
	c.dismissed, c.failed = true, err
	if c.slot.first() == c {
		delete(l.contenders, c.slot) // or a grant that is under way would find nobody
	}
	c.signal()
}

// leave is the end of a call of Run or Try, whatever way it ends.
func (l *Leader) leave(c *candidate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := c.slot
	first := s.first() == c
	s.queue = slices.DeleteFunc(s.queue, func(other *candidate) bool { return other == c })
	if first {
		delete(l.contenders, s)
	}
	switch {
	case len(s.queue) == 0:
		delete(l.slots, s.name)
		if s.keyed {
			delete(l.keys, s.key)
		}
	case first:
		l.contendLocked(s)
	}
	l.candidates--
	if c.resigning > 0 { // the call of Resign outlives its task
		l.inside--
		c.left = true
	}
	l.changedLocked()
	l.poke()
}

// startLocked starts the leadership that was granted to c.
func (l *Leader) startLocked(c *candidate) {
	g := c.grant
	g.worker.running++
	c.become(StateLeading)
	c.slot.err = nil
	l.leading.Store(g.name, g)
	g.since = c.since
	l.emitLocked(g.event(Event{Kind: Gained, Elapsed: g.since.Sub(c.wanted)}))
}

// stop notes that the task of g was told to stop by its caller.
func (l *Leader) stop(c *candidate, g *grant, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.grant == g && c.state == StateLeading {
		l.stopLocked(c, ReasonCaller)
		l.emitLocked(g.event(Event{Kind: Stopping, Reason: g.why, Err: cause}))
	}
}

func (l *Leader) stopLocked(c *candidate, why Reason) {
	c.grant.why = why
	l.leading.CompareAndDelete(c.slot.name, c.grant)
	if c.state != StateLeading {
		return
	}
	c.become(StateStopping)
	c.stopAt = c.since.Add(l.opts.StopTimeout)
	l.stopping = append(l.stopping, stopping{c, c.stopAt})
	l.poke()
}

// outcome is how a leadership stands when its task has returned.
type outcome struct {
	lost     error // why the lock was lost; nil if it is still held
	resigned bool
	again    bool // the candidate contends again
}

// finish notes that the task of g has returned. It contends again after a loss, if the caller still wants to.
// failure is the error of a task that was told to stop, if it says more than that.
//
// reason is for the mark of its term.
func (l *Leader) finish(c *candidate, g *grant, ended, failure error, reason EndReason, down *stepDown) outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireLocked() // when in doubt whether the lock is held, it is not
	l.leading.CompareAndDelete(g.name, g)
	if c.state != StateLeading && failure != nil {
		l.emitLocked(g.event(Event{Kind: Failed, Reason: g.why, Err: failure}))
	}
	g.worker.running--
	l.poke() // its session may have been waiting for this task
	o := outcome{resigned: l.resigned}
	g.reason, g.pausing, c.wanted = reason, down != nil && !l.resigned && ended == nil, time.Now()
	if l.resigned && c.state != StateLeading {
		g.reason = EndResigned
	}
	if reason := g.over.Load(); reason != nil {
		o.lost = *reason
		o.again = !c.once && ended == nil && !l.resigned
		c.grant = nil
		l.endTermLocked(g, EndLost)
		switch {
		case g.worker != l.current:
			g.worker.unwanted(c.slot.key)
		case g.kept:
			l.frees = append(l.frees, c.slot.key) // before anything is asked for
		}
		if down != nil && ended == nil && !l.resigned {
			l.coolLocked(c.slot, down)
		}
		if o.again {
			l.contendLocked(c.slot)
		}
		return o
	}
	if c.state != StateStopping {
		c.become(StateStopping)
	}
	g.over.Store(&errReturned)
	g.cancel(nil)
	g.die()
	return o
}

// endReason is how a term has ended whose task has returned taskErr.
func endReason(ended, taskErr error) EndReason {
	switch {
	case ended != nil:
		return EndResigned
	case taskErr != nil:
		return EndError
	}
	return EndReturned
}

// failed returns err unless it only reports that the task was told to stop. It may run methods of the caller's error, so
// never under mu.
func failed(err error) error {
	for _, stop := range []error{context.Canceled, context.DeadlineExceeded, ErrLost, ErrResigned, ErrHandOver} {
		if errors.Is(err, stop) {
			return nil
		}
	}
	return err
}

// release gives the lock of c, whose task does not run, back. It returns an error if the lock turned out to be gone. It
// takes no longer than the lease: then the session is given up.
func (l *Leader) release(c *candidate) error {
	l.freeing(c)
	for {
		if freed, err := l.freed(c); freed {
			return err
		}
		<-c.news
	}
}

// abandon is release on the way of a panic, which waits at most a second.
func (l *Leader) abandon(c *candidate, g *grant) {
	if o := l.finish(c, g, errPanic, errPanic, EndError, nil); o.lost != nil {
		return
	}
	l.freeing(c)
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	for {
		if freed, _ := l.freed(c); freed {
			return
		}
		select {
		case <-c.news:
		case <-patience.C:
			l.giveUp(c, g.worker)
			return
		}
	}
}

// giveUp gives the session of w up, if it has not been yet: whether a lock of it is still held is not known.
func (l *Leader) giveUp(c *candidate, w *worker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case w != l.current || c.freed:
	case c.slot.free: // the lock, and only the others do not know yet
		l.givenBackLocked([]int64{c.slot.key})
	default:
		l.loseLocked(errStuck, false)
	}
}

// freeing has the loop give the lock of c back, if it is held.
func (l *Leader) freeing(c *candidate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := c.grant
	if g == nil || g.worker != l.current || lostAlready(g) {
		c.freed = true // gone with its session
		if g != nil && g.cancel != nil && !lostAlready(g) {
			l.endTermLocked(g, g.reason)
			l.emitLocked(g.event(Event{Kind: Released, Reason: g.stopReason(), Elapsed: g.led(), Err: g.lease.err()}))
		}
		return
	}
	g.over.Store(&errReturned)
	c.slot.freeing = true
	if !l.markLocked(c.slot, g) {
		l.frees = append(l.frees, c.slot.key)
	}
	l.poke()
}

func lostAlready(g *grant) bool {
	reason := g.over.Load()
	return reason != nil && reason != &errReturned
}

func (l *Leader) freed(c *candidate) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.freed, c.freeErr
}
