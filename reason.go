// SPDX-License-Identifier: MIT

package leader

import (
	"cmp"
	"errors"
	"time"
)

// Reason says in a word why a session or a leadership has ended: one of those below, for counting and filtering. Event.Err says more.
type Reason string

const (
	// ReasonConnection means that the server, or the network, has ended the session.
	ReasonConnection Reason = "connection"
	// ReasonLease means that the session was not proved in time: for Options.Lease.
	ReasonLease Reason = "lease"
	// ReasonSession means that the session was given up for what it has answered: it is behind a pooler now, the server
	// has become a standby or read-only, or a lock could not be given back.
	ReasonSession Reason = "session"
	// ReasonLock means that the database does not hold the lock any more, although the session lives.
	ReasonLock Reason = "lock"
	// ReasonTerm means that the term of the leadership is not in the table of terms any more.
	ReasonTerm Reason = "term"
	// ReasonCaller means that the context of the call of Run or Try has ended.
	ReasonCaller Reason = "caller"
	// ReasonResigned means that [Leader.Resign] was called.
	ReasonResigned Reason = "resigned"
	// ReasonHandOver means that somebody has asked for it: [ErrHandOver].
	ReasonHandOver Reason = "handover"
	// ReasonReturned means that the task has returned nil by itself.
	ReasonReturned Reason = "returned"
	// ReasonFailed means that the task has returned an error by itself, or panicked.
	ReasonFailed Reason = "failed"
)

// sessionReason is why a session is given up.
func sessionReason(err error) Reason {
	over, ok := errors.AsType[*sessionError](err)
	switch {
	case ok && (over.ended || over.cut):
		return ReasonConnection
	case errors.Is(err, errLeaseEnd):
		return ReasonLease
	case errors.Is(err, errLockGone):
		return ReasonLock
	}
	return ReasonSession
}

// stopReason is why the task of g has returned, whose session lives.
func (g *grant) stopReason() Reason {
	switch g.reason {
	case EndResigned: // before that was noted
		return cmp.Or(g.why, ReasonCaller)
	case EndError:
		return cmp.Or(g.why, ReasonFailed)
	}
	return cmp.Or(g.why, ReasonReturned)
}

// led is how long g has led.
func (g *grant) led() time.Duration { return time.Since(g.since) }

// Counts is what a Leader has done since it was made. Where Options.Disconnect closes sessions, they are opened again and counted.
type Counts struct {
	Connects      uint64        // sessions opened
	ConnectErrors uint64        // attempts to open one that have failed
	Proofs        uint64        // proofs that the session lives, and has its locks
	ProofErrors   uint64        // those that have failed, while the session lives
	ProofTime     time.Duration // that all good ones together took, from when each was sent
	Tries         uint64        // statements that have asked for locks
	TryErrors     uint64        // those that have failed, for all names or for some, while the session lives
}
