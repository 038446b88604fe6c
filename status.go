// SPDX-License-Identifier: MIT

package leader

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// State of a name on this Leader.
type State string

const (
	// StateConnecting means that the name is wanted and there is no session to ask on.
	StateConnecting State = "connecting"
	// StateContending means that the name is wanted and asked for every Options.Retry.
	StateContending State = "contending"
	// StateCooling means that the name is wanted again after a pause that its task has asked for with [StepDown].
	StateCooling State = "cooling"
	// StateTakeover means that the lock is held, and that the term is being begun, or that Options.TakeoverDelay is waited
	// for. Only with Options.Terms.
	StateTakeover State = "takeover"
	// StateLeading means that the task runs, and has not been told to stop.
	StateLeading State = "leading"
	// StateStopping means that the task was told to stop and has not returned, or that its lock is being given back.
	StateStopping State = "stopping"
	// StateOverrun means that the task was told to stop more than Options.StopTimeout ago and has not returned.
	StateOverrun State = "overrun"
)

// Status is a snapshot of a Leader.
type Status struct {
	Node      string
	Addr      string // Options.Addr
	Namespace string // "" until the first connection, if Options.Namespace is not set
	Place     string // the database of the session, as people name it; "" until the first connection
	Resigned  bool

	Connected  bool      // there is a session
	Resting    bool      // there is none until the next try, on purpose: Options.Disconnect
	Since      time.Time // of the session, or of the lack of it
	SessionPID uint32    // of the server's process for the session; 0 where there is none
	Generation uint64    // of sessions: one higher after each loss
	Losses     uint64    // of sessions
	Retired    int       // sessions given up that are held open because tasks still run
	// ProofAge is the time since the last good proof of the session was sent; -1 ns without a session.
	ProofAge  time.Duration
	ProofTook time.Duration // that the last good proof took, from when it was sent; 0 before the first one
	Counts    Counts
	Lease     time.Duration // Options.Lease, or its default: leadership ends when ProofAge reaches it, but not on SQLite
	// Err is why there is no session, or what last went wrong on it and is being retried; nil if all is well.
	Err error

	Tasks []TaskStatus // by name
}

// TaskStatus is what a Leader knows of one name.
type TaskStatus struct {
	Name     string
	State    State
	Since    time.Time // of the state; in StateOverrun, since the task was told to stop
	Standbys int       // further calls of Run or Try for the name on this Leader
	Losses   uint64    // of the lock, by the calls of Run that are going on
	Err      error     // the last one that concerned this name, until it leads again
	Term     Term      // of the leadership, with Options.Terms; 0 if there is none
	Blocker  Blocker   // the transaction that a takeover waits for; zero if there is none
}

// Status returns a snapshot. It asks no one and never blocks for long.
func (l *Leader) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status{
		Node:       l.opts.Node,
		Addr:       l.opts.Addr,
		Namespace:  cmp.Or(l.namespace, l.opts.Namespace),
		Place:      l.place,
		Resigned:   l.resigned,
		Connected:  l.current != nil,
		Resting:    l.resting && !l.resigned && len(l.contenders) > 0,
		Since:      l.since,
		Generation: l.generation,
		Losses:     l.losses,
		Retired:    len(l.retired),
		ProofAge:   -1,
		ProofTook:  l.proofTook,
		Counts:     l.counts,
		Lease:      l.opts.Lease,
		Err:        l.err,
	}
	if w := l.current; w != nil {
		s.SessionPID = w.info.pid
		s.ProofAge = w.lease.age(l.clock.read())
	}
	for _, name := range slices.Sorted(maps.Keys(l.slots)) {
		s.Tasks = append(s.Tasks, l.taskLocked(l.slots[name]))
	}
	return s
}

func (l *Leader) taskLocked(s *slot) TaskStatus {
	c := s.first()
	t := TaskStatus{Name: s.name, State: c.state, Since: c.since, Standbys: len(s.queue) - 1, Losses: s.losses, Err: s.err}
	if g := c.grant; g != nil {
		t.Term = g.term
		if g.takeover != nil {
			t.Blocker = g.takeover.blocker
		}
	}
	switch {
	case c.state == StateContending && s.cooling(time.Now()):
		t.State = StateCooling
	case c.state == StateContending && l.current == nil && !l.resting:
		t.State = StateConnecting
		if l.since.After(t.Since) {
			t.Since = l.since
		}
	case c.state == StateLeading && !c.grant.leads():
		t.State = StateStopping // told by its caller or by the clock a moment ago, and not yet noted
	}
	return t
}

// leads reports whether the task of g holds the lock for sure and has not been told to stop.
func (g *grant) leads() bool { return g.ctx.Err() == nil && g.err() == nil }

// IsLeading reports whether this process leads name now: the task runs, has not been told to stop, and both clocks agree
// that its lock is held. It asks no one, neither blocks nor allocates, and takes no lock: a gate may call it per request.
func (l *Leader) IsLeading(name string) bool {
	return l.leads(name) != nil
}

// leads returns the leadership of name, if this process surely has it.
func (l *Leader) leads(name string) *grant {
	if g, ok := l.leading.Load(name); ok && g.(*grant).leads() {
		return g.(*grant)
	}
	return nil
}

// Leading returns the names that this process leads, sorted; see [Leader.IsLeading].
func (l *Leader) Leading() []string {
	var names []string
	l.leading.Range(func(name, g any) bool {
		if g.(*grant).leads() {
			names = append(names, name.(string))
		}
		return true
	})
	slices.Sort(names)
	return names
}

// Tasks returns the names that Run or Try are going on for, and those of [Leader.Note], sorted.
func (l *Leader) Tasks() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := slices.Collect(maps.Keys(l.notes))
	for name := range l.slots {
		if _, noted := l.notes[name]; !noted {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// notAnswered is the error of a call whose context ended before the database had answered.
func notAnswered(op, name string, ended, last error) error {
	return &unansweredError{op: op, name: name, ended: ended, last: last}
}

// unansweredError is formatted when somebody reads it, as lostError is: it is made under mu.
type unansweredError struct {
	op, name    string
	ended, last error
}

func (e *unansweredError) Error() string {
	if e.last != nil {
		return fmt.Sprintf("leader: %s %q: %v: last error: %v", e.op, e.name, e.ended, e.last)
	}
	return fmt.Sprintf("leader: %s %q: %v before the database answered", e.op, e.name, e.ended)
}

func (e *unansweredError) Unwrap() []error {
	if e.last != nil {
		return []error{e.ended, e.last}
	}
	return []error{e.ended}
}
