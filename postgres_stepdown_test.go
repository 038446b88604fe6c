// SPDX-License-Identifier: MIT

package leader

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresResignHandsOver is C24: who resigns, and contends again at once with a new Leader, comes after who has waited. Alone
// it is back without a pause, with a new term.
func TestPostgresResignHandsOver(t *testing.T) {
	dsn := pgtest.URL(t)
	const rounds = 50
	r := &recorder{}
	start := func(node string) (*Leader, *call) {
		l := newLeader(t, Postgres(dsn), Options{Node: node, Terms: true})
		return l, goRun(t.Context(), l, "x", r.task(node, "x", nil))
	}
	waits := func(l *Leader) { // not only connects: then it would race with who comes back
		poll(t, soon, "the other one waits", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			s := l.slots["x"]
			return s != nil && s.first() != nil && s.first().waiting
		})
	}
	lead, run := start("a")
	poll(t, soon, "somebody leads", func() bool { return lead.IsLeading("x") })
	first := taskOf(lead.Status(), "x").Term
	other, otherRun := start("b")
	won := 0
	for range rounds {
		waits(other)
		node := lead.opts.Node
		require.NoError(t, lead.Resign(t.Context()))
		require.ErrorIs(t, run.wait(t), ErrResigned)
		again, againRun := start(node)
		poll(t, soon, "somebody leads", func() bool { return other.IsLeading("x") || again.IsLeading("x") })
		if other.IsLeading("x") {
			won++
			lead, run, other, otherRun = other, otherRun, again, againRun
		} else {
			lead, run = again, againRun
		}
	}
	// Without the notification who comes back would win each time, as its connect takes less than a Retry. On a busy machine that
	// can happen now and then.
	assert.GreaterOrEqual(t, won, rounds*9/10)
	assert.Zero(t, r.overlap())
	waits(other)
	require.NoError(t, other.Resign(t.Context()))
	require.NoError(t, lead.Resign(t.Context()))
	began := time.Now()
	alone, _ := start("a")
	poll(t, soon, "it leads alone", func() bool { return alone.IsLeading("x") })
	assert.Less(t, time.Since(began), time.Second)
	assert.Greater(t, taskOf(alone.Status(), "x").Term, first)
}
