// SPDX-License-Identifier: MIT

// Package seam lets the test kit and the laboratory do to a Leader what no program may: end its session, and move its clock.
// The root package sets the functions, so that none of this is in its API. Each takes a *leader.Leader, which it cannot name
// here, and panics for anything else.
package seam

import "time"

//nolint:gochecknoglobals // set once, when the root package is initialised, and only read after that
var (
	// Kill cuts the connection of the session, as a network that resets it does: the place of the locks frees them at once,
	// and the Leader finds out by itself. It neither blocks nor waits for that, and may be called concurrently. It returns
	// false if there is no session.
	Kill func(leader any) bool
	// Skew moves the wall clock of the Leader by d, as a machine that was suspended sees it on waking, or as somebody who
	// sets the clock does. Several add up. It never blocks, and may be called concurrently.
	Skew func(leader any, d time.Duration)
)
