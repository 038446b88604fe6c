// SPDX-License-Identifier: MIT

// Package history is what a run of the laboratory leaves behind: what each process of the fleet did, what was done to it, and
// what the database committed. The checkers of package check know nothing else.
//
// Every process appends to a file of its own, a line at a time, which no fault of the laboratory touches and which outlives
// a SIGKILL. Times are those of the machine's monotonic clock, which all of its processes share, which stands still for
// nobody and which no jump of the wall clock moves.
package history

import "time"

// Kind says what an Event is.
type Kind string

// What a process of the fleet says of itself.
const (
	Up       Kind = "up"       // the process has begun: Node, PID, Version
	Contend  Kind = "contend"  // Run or Try (Once) of Name has been called: Op
	Start    Kind = "start"    // its task has begun: Op, Name, Term
	Told     Kind = "told"     // the task's context has ended, as the process has seen: Op, Name, Term, Cause, Text
	Stop     Kind = "stop"     // the task's work is over: Op, Name, Term; right before it returns
	Done     Kind = "done"     // Run or Try has returned: Op, Name, Ran (of Try), Text of the error
	Resign   Kind = "resign"   // Resign has been called; Done with the same Op when it has returned
	Fenced   Kind = "fenced"   // a transaction was refused by its fence: Name, Term, Text
	Broken   Kind = "broken"   // what must never happen, as the process has seen it itself: Text
	Sample   Kind = "sample"   // each second: Goroutines, Heap, Files
	Sessions Kind = "sessions" // a transition of the Leader's session (Cause: connected, disconnected, ...): Text
	Down     Kind = "down"     // the process leaves by itself, as told: its last line
)

// What the laboratory says.
const (
	Begin Kind = "begin" // an episode begins: Text says which
	Fault Kind = "fault" // something is done: Fault. Written before it is done
	Heal  Kind = "heal"  // and is undone: the same Fault. Written after it is undone
	Calm  Kind = "calm"  // everything is undone: from now on the bounds of a healthy fleet hold
	Close Kind = "close" // the fleet is told to leave: no more takeovers are due
	End   Kind = "end"   // all processes are gone; one Load follows, when what they have left has had time to go
	Load  Kind = "load"  // each second, of the database: Backends, Locks, Statements, Snapshots, Open
)

// Cause is why a task's context has ended.
type Cause string

// The causes that differ for the bounds.
const (
	CauseLost     Cause = "lost"     // ErrLost
	CauseResigned Cause = "resigned" // ErrResigned
	CauseCaller   Cause = "caller"   // the caller's context
)

// Event is one line.
type Event struct {
	At   time.Duration `json:"at"` // of the machine's monotonic clock
	Kind Kind          `json:"kind"`

	Node    string `json:"node,omitempty"` // the process; "" for the laboratory. Never used twice
	PID     int    `json:"pid,omitempty"`
	Version string `json:"version,omitempty"` // of the library
	Place   int    `json:"place,omitempty"`   // from which the process reaches the database; a network fault is one of a place

	Op    int64  `json:"op,omitempty"` // a call of Run, Try or Resign, counted by the process
	Once  bool   `json:"once,omitempty"`
	Ran   bool   `json:"ran,omitempty"`
	Name  string `json:"name,omitempty"`
	Term  int64  `json:"term,omitempty"`
	Cause Cause  `json:"cause,omitempty"`
	Text  string `json:"text,omitempty"`

	// Stubborn is set in Start of a task that does not look at its context: it ends when it has done its work.
	Stubborn bool `json:"stubborn,omitempty"`

	Fault *Injury `json:"fault,omitempty"`

	Goroutines int   `json:"goroutines,omitempty"`
	Heap       int64 `json:"heap,omitempty"` // bytes that are in use after a collection
	Files      int   `json:"files,omitempty"`

	Backends   int   `json:"backends,omitempty"`   // sessions of the library
	Locks      int   `json:"locks,omitempty"`      // advisory ones that they hold
	Statements int64 `json:"statements,omitempty"` // that the database has run for lock sessions, so far in the episode
	Snapshots  int   `json:"snapshots,omitempty"`  // lock sessions that hold a snapshot while they wait
	Open       int   `json:"open,omitempty"`       // lock sessions that are idle in a transaction
}

// Reach is what an injury takes away, as far as the bounds care.
type Reach string

// The reaches that differ for the bounds.
const (
	ReachProcess Reach = "process" // the process dies: its locks are free at once
	ReachFreeze  Reach = "freeze"  // the process stands still
	ReachNetwork Reach = "network" // nothing gets through, in one way or in both
	ReachDelay   Reach = "delay"   // it gets through late
	ReachCut     Reach = "cut"     // connections are reset: the process knows at once, and so does the server
	ReachSession Reach = "session" // the server ends the session, and says so
	ReachServer  Reach = "server"  // the server ends all sessions, and may be away for a time
	ReachWrites  Reach = "writes"  // the server is there, and has turned read-only, or its disk is full
	ReachLocks   Reach = "locks"   // the server gives no more locks; those that it has given stay
	ReachPrimary Reach = "primary" // another server takes over
	ReachClock   Reach = "clock"   // the wall clock of a process jumps
	ReachLoad    Reach = "load"    // nothing is broken, but much happens: storms, many starts, slow tasks
)

// Injury is one fault.
type Injury struct {
	ID    int           `json:"id"`
	Kind  string        `json:"kind"` // as the plan names it
	Reach Reach         `json:"reach"`
	Node  string        `json:"node,omitempty"`  // the process that has it; "" is all of a place, or of the fleet
	Place int           `json:"place,omitempty"` // 1, 2, ...; 0 is everywhere
	For   time.Duration `json:"for"`             // until it is healed, as planned
}

// Commit is a row that a transaction wrote and committed, in the order of the database: a row of the ledger, which tasks
// append to under a fence, or the begin of a term in leader_terms.
type Commit struct {
	Wrote     uint64 `json:"wrote"`     // where the row is in the database's log
	Committed uint64 `json:"committed"` // where the commit of its transaction is
	Name      string `json:"name"`
	Term      int64  `json:"term"`
	Node      string `json:"node"`
	Begun     bool   `json:"begun,omitempty"`  // of leader_terms: a term begins, or is marked as ended
	Shared    bool   `json:"shared,omitempty"` // fenced with FenceShared: rows of one term may overlap
}

// Episode is one fleet on one database, from its start to its end.
type Episode struct {
	Seed     uint64        `json:"seed"`             // repeats it
	Backend  string        `json:"backend"`          // postgres, sqlite
	Arena    string        `json:"arena"`            // direct, pooler, replica, remote, sqlite
	Server   string        `json:"server"`           // version of the database
	Broken   string        `json:"broken,omitempty"` // the deliberate fault of the fleet, for a control
	Options  Timing        `json:"options"`          // of every process
	StopTime time.Duration `json:"stopTime"`         // within which a task that heeds its context returns
	Names    []string      `json:"names"`
	Places   int           `json:"places"`
	Events   []Event       `json:"-"` // by At
	Commits  []Commit      `json:"-"` // by Committed
}

// Timing is those of leader.Options that bounds depend on.
type Timing struct {
	Retry, Check, Lease, SessionTimeout time.Duration
}
