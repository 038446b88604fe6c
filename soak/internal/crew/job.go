// SPDX-License-Identifier: MIT

// Package crew is what the laboratory and a process of its fleet agree on: the job, the orders, the tape and the clock.
package crew

import (
	"time"

	"github.com/oxygenhub/leader/soak/history"
)

// JobEnv is the variable that holds the Job of a worker, in JSON.
const JobEnv = "LEADER_SOAK_JOB"

// Job is what a process of the fleet does.
type Job struct {
	Node    string
	Place   int
	Version string // of the library that it was built with
	Tape    string

	Lock string // URL of the Leader; of SQLite, the path of the file
	App  string // URL of the pool that tasks write with
	SQL  string // driver: "" is PostgreSQL, "sqlite" the other

	Namespace string
	Timing    history.Timing
	StopTime  time.Duration
	Names     []string
	Seed      uint64
	Tasks     string        // of which kind all are; "" is a mix
	Shift     time.Duration // how long a short task lasts at most; 0 is the default
	Broken    string        // how the process is deliberately wrong; "" is not at all
}

// Orders that a worker takes from its standard input, a line each. The end of the input is Leave.
const (
	Resign = "resign" // and come back with a new Leader
	Leave  = "leave"
	Clock  = "clock" // with a duration: the wall clock jumps
	Storm  = "storm" // with a number: so many calls of Run and Try that end soon, at once
	Tasks  = "tasks" // with a kind, or nothing for a mix: from the next task on
)

// The kinds of tasks.
const (
	Ordinary = "ordinary" // goes on until it is told, and heeds that
	Short    = "short"    // returns by itself, after a while
	Slow     = "slow"     // likewise ordinary, but takes the most of the stop time
	Stubborn = "stubborn" // does not look at its context, for a while
	Panics   = "panics"   // after a while
)

// How a process may be deliberately wrong: each is what one of the checkers must see.
const (
	Early  = "early"  // the task returns, and so frees the lock, but its work goes on
	Select = "select" // a plain SELECT in place of Fence
	Lease  = "lease"  // heeds the end of its context only a SessionTimeout later
	Split  = "split"  // a namespace of its own in every second place
	Once   = "once"   // does not contend again after a loss
	Leak   = "leak"   // a goroutine and a file for each term
	Chatty = "chatty" // asks the database all the time
	Stale  = "stale"  // waits in a transaction, and with a statement that blocks
)

// Broken are all of these.
func Broken() []string { return []string{Early, Select, Lease, Split, Once, Leak, Chatty, Stale} }
