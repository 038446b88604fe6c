// SPDX-License-Identifier: MIT

package driver

import (
	"context"
	"time"
)

// Terms is implemented, too, by a [Driver] whose place can keep terms, for Options.Terms. The records are those of the place, not of
// a session, and outlive all of them. Its methods may be called concurrently, and return when ctx ends.
type Terms interface {
	// ReadTerms returns the records of keys, those that there are, or with nil all of the namespace. It reads at least what
	// had been stored when it was called, at whatever process.
	ReadTerms(ctx context.Context, namespace string, keys []int64) (map[int64]Term, error)
	// SwapTerm stores next as the record of key if the record has the number last now, or, for last 0, if there is none.
	// Otherwise it changes nothing and returns false. What it stores is durable before it returns true. After an
	// error it is not known whether it was stored.
	SwapTerm(ctx context.Context, key, last int64, next Term) (swapped bool, err error)
}

// Term is the record of the last leadership of one name.
type Term struct {
	Namespace string
	Name      string
	Number    int64 // above 0, and never lower than it was
	Node      string
	Addr      string
	PID       uint32
	Taken     time.Time // keep at least milliseconds of this and the next
	Released  time.Time // zero: nobody has said that the term has ended
	Ended     string    // a leader.EndReason
}
