// SPDX-License-Identifier: MIT

package leader

import "time"

const (
	// linger is for how long a session without work is kept: jobs that follow each other share it.
	linger = 5 * time.Second
	// herdGap is the least time between two tries that notifications ask for.
	herdGap = 20 * time.Millisecond
	// oneGo is how old a release may be that goes on in the same command. Where answers take longer, a proof comes in between.
	oneGo = 100 * time.Millisecond
	// clockGap is how often both clocks are compared while a task runs: timers stand still while a machine sleeps.
	clockGap = time.Second
	// hopeless is how much longer than its context a dial, or the last statement of a Resign, is waited for.
	hopeless = time.Second
)

// state is what the loop knows: all of it is guarded by Leader.mu. The loop is the only one to act on it; callers add to it
// and poke.
type state struct {
	slots      map[string]*slot
	keys       map[int64]*slot    // the slots by key, once the namespace is known
	contenders map[*slot]struct{} // whose first candidate waits for the lock
	fresh      []*slot            // contenders that are to be asked for now
	frees      []int64            // locks to give back
	tells      []int64            // locks given back, of which to tell
	heard      []*slot            // contenders whose lock a notification says is free
	asks       []*ask             // questions for Holder
	asked      []*ask             // those that the session is asking
	candidates int                // calls of Run and Try
	inside     int                // those of them whose tasks have called Resign
	stopping   []stopping         // told to stop, oldest first
	reads      []*takeover        // whose last terms are to be read on the session
	delayed    []*takeover        // whose terms have begun
	marking    []*slot            // whose release waits for the mark of a term
	notes      map[string]struct{}
	pauses     map[string]time.Time // until when names are left to others

	named     bool // the namespace is known
	namespace string
	place     string
	resigned  bool
	posted    []func()      // from workers, for the loop to run
	running   chan struct{} // closed when the loop that runs ends; nil when none does
	changed   chan struct{} // closed when a candidate has left

	current    *worker
	retired    []*worker // given up, and held open for tasks that still run
	workers    int       // goroutines of workers
	generation uint64    // counts sessions given up: what was granted in an older one is void
	dial       *dial
	deaf       int                 // dials that were abandoned and still go on
	troubles   map[string]struct{} // kinds of errors of dialing since there was a session
	failures   int                 // of dialing or of sessions that came to nothing, in a row
	dialAt     time.Time           // not before
	since      time.Time           // of current, or of the lack of it
	resting    bool                // the lack of it is on purpose, and nothing has gone wrong since; never beside current
	restUntil  time.Time           // then there is to be a session again; sooner if somebody asks
	err        error               // why there is no session; or the last error
	proofErr   error               // of the last proof
	losses     uint64
	counts     Counts
	proofTook  time.Duration // the last one

	clerk  clerk
	site   termSite // of the last session
	floor  Term     // what the next term must reach: no clock that was set back makes it lower than those we know
	verify bool     // the terms are to be compared

	checkAt     time.Time // the next proof
	tryAt       time.Time // the next try for all contenders
	notBefore   time.Time // a failed try backs off
	tries       uint64    // sent so far
	tryFailures int
	tryTook     time.Duration // what the last try took
	proved      bool          // the last command was a proof
	tried       bool          // the last command was a try
	heardAt     time.Time     // of the last try that notifications asked for
	idleAt      time.Time     // since when there is nothing to do; zero while there is
}

func (st *state) init() {
	st.slots = make(map[string]*slot)
	st.keys = make(map[int64]*slot)
	st.contenders = make(map[*slot]struct{})
	st.pauses = make(map[string]time.Time)
	st.notes = make(map[string]struct{})
	st.changed = make(chan struct{})
	st.since = time.Now()
}

// poke has the loop look at the state.
func (l *Leader) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// post has the loop run f under mu.
func (l *Leader) post(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.posted = append(l.posted, f)
	l.poke()
}

// startLoopLocked starts the loop if none runs. It ends when there has been nothing to do for a while, or after Resign,
// which waits for it.
func (l *Leader) startLoopLocked() {
	if l.running == nil {
		l.running = make(chan struct{})
		l.idleAt = time.Time{}
		go l.loop(l.running)
	}
	l.poke()
}

// loop owns the session. It waits only here, and does no I/O.
func (l *Leader) loop(ended chan struct{}) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		l.mu.Lock()
		l.startLogLocked() // again, where an old one was still at it
		posted := l.posted
		l.posted = nil
		for _, f := range posted {
			l.expireLocked() // before each answer: a late one revives nothing
			f()
		}
		l.expireLocked()
		now := time.Now()
		next, done := l.advanceLocked(now)
		if done {
			l.running = nil
			l.logs.stop()
			if l.resigned {
				l.hub.close() // here, because the last Resign may have given up, or been called by a task
			}
			close(ended)
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		timer.Reset(next.Sub(now))
		select {
		case <-l.wake:
		case <-timer.C:
		}
	}
}

// advanceLocked starts what is due, and returns when to look again, or that the loop is done.
func (l *Leader) advanceLocked(now time.Time) (next time.Time, done bool) {
	next = now.Add(time.Hour)
	due := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	l.overrunLocked(now, due)
	l.dropRetiredLocked(now, due)
	l.clerkLocked(now, due)
	if len(l.slots) == 0 && len(l.asks) == 0 {
		return next, l.idleLocked(now, due)
	}
	l.idleAt = time.Time{}
	if l.verify && l.current != nil && !l.current.info.reads {
		l.verifyLocked()
		l.clerkLocked(now, due)
	}
	switch {
	case l.current == nil:
		l.connectLocked(now, due)
	case !l.current.busy && !l.restLocked(now, due):
		l.commandLocked(now, due)
		l.restLocked(now, due)
	}
	if l.current != nil {
		due(l.leaseEndLocked(now))
	}
	return next, false
}

// leaseEndLocked returns when to see whether the lease of the current session has ended.
func (l *Leader) leaseEndLocked(now time.Time) time.Time {
	left := clockGap
	if s := l.current.lease; s.length > 0 {
		left = min(left, s.length-s.age(l.clock.read()))
	}
	return now.Add(left)
}

// hangUpLocked closes the session, of which nobody wants anything.
func (l *Leader) hangUpLocked(now time.Time) {
	w := l.current
	l.current = nil
	w.lease.end(errReturned)
	l.since, l.err = now, nil
	l.askAgainLocked() // after a hung statement
	w.end()
}

// restLocked closes the session of a process that only waits until the next try, with Options.Disconnect, and tells whether it
// did. Whoever watches is not told: it would be all that they read.
func (l *Leader) restLocked(now time.Time, due func(time.Time)) bool {
	orders := len(l.frees) + len(l.reads) + len(l.tells) + len(l.asks) + len(l.fresh) + len(l.heard)
	waits := len(l.contenders) == len(l.slots)
	// While tries fail the session is kept: how long to back off is its own.
	if !l.opts.Disconnect || l.current.busy || !waits || orders > 0 || l.tryFailures > 0 || !now.Before(l.tryAt) {
		return false
	}
	l.hangUpLocked(now)
	l.failures = 0 // it has answered, as to a proof
	l.resting, l.restUntil = true, l.tryAt
	if ready := l.readyAtLocked(); ready.After(l.restUntil) {
		l.restUntil = ready // there would be nothing to ask for
	}
	due(l.restUntil)
	return true
}

// readyAtLocked returns when the first of the contenders may be asked for.
func (l *Leader) readyAtLocked() (first time.Time) {
	for s := range l.contenders {
		at := s.readyAt()
		if at.IsZero() {
			return at // at once
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// idleLocked is advanceLocked when nobody wants anything: the session is kept for a while, then the loop ends.
func (l *Leader) idleLocked(now time.Time, due func(time.Time)) (done bool) {
	if l.idleAt.IsZero() {
		l.idleAt = now
	}
	end := l.idleAt.Add(linger)
	if l.resigned {
		end = l.idleAt
	}
	w := l.current
	hung := l.resigned && !now.Before(end.Add(hopeless))
	switch {
	case w != nil && w.busy && !hung:
		due(l.leaseEndLocked(now)) // its answer comes first
	case w != nil && !w.busy && (len(l.frees) > 0 || len(l.tells) > 0):
		l.commandLocked(now, due)
	case now.Before(end):
		due(end)
		if w != nil {
			due(l.leaseEndLocked(now))
			l.commandLocked(now, due)
		}
	case w != nil:
		l.hangUpLocked(now)
		e := Event{Kind: Disconnected}
		if l.resigned {
			e.more = &more{variant: resigned}
		}
		l.emitLocked(e)
	case l.dial != nil:
		l.dial.cancel()
		l.dial.unwanted = true
		if now.Before(end.Add(hopeless)) {
			due(end.Add(hopeless))
			return false
		}
		l.abandonDialLocked()
		return l.emptyLocked(now, end, due)
	default:
		return l.emptyLocked(now, end, due)
	}
	return false
}

// emptyLocked is whether all is gone that the loop had. A connection whose methods, which may be the user's, hang is not
// waited for without end.
func (l *Leader) emptyLocked(now, end time.Time, due func(time.Time)) bool {
	gone := end.Add(3 * hopeless)
	if l.resigned {
		due(gone)
	}
	return l.workers == 0 && l.clerk.restsLocked() || l.resigned && !now.Before(gone)
}
