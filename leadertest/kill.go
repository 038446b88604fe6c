// SPDX-License-Identifier: MIT

package leadertest

import (
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/seam"
)

// noticed is how long Kill waits for a Leader to see that its session has ended.
const noticed = 10 * time.Second

// Kill ends the session of l, whatever its backend, as a network does that resets its connection. It returns when l has
// noticed: its tasks have been told, with leader.ErrLost as the cause of their contexts. Each Run contends again when its task
// has returned, on a new session. The locks are free as soon as the place of the locks hears of it, which is at once, so
// another process may lead before a task has stopped, as after any loss. Events tell it as leader.ReasonConnection. If l has no
// session the test fails at once, as Kill would do nothing.
func Kill(tb testing.TB, l *leader.Leader) {
	tb.Helper()
	before := l.Status().Losses
	if !seam.Kill(l) {
		tb.Fatalf("leadertest: kill: the Leader has no session: %v", l.Status().Err)
	}
	for end := time.Now().Add(noticed); ; time.Sleep(time.Millisecond) {
		switch s := l.Status(); {
		case s.Losses > before || !s.Connected:
			return
		case time.Now().After(end):
			tb.Fatalf("leadertest: kill: the Leader has not noticed within %v", noticed)
		}
	}
}
