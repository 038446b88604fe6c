// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testLeadersStepDown is C24: who steps down leaves the name to the other one, each time, and alone it comes back.
func testLeadersStepDown(t *testing.T, p *leaderPlace) {
	t.Helper()
	const rounds, pause = 6, 500 * time.Millisecond
	type leadership struct {
		node string
		end  chan struct{}
	}
	led := make(chan leadership)
	run := func(ctx context.Context, node string) *Leader {
		l := p.leader(t, Options{Node: node, Retry: 30 * time.Millisecond})
		goRun(ctx, l, "x", func(ctx context.Context) error {
			end := make(chan struct{})
			select {
			case led <- leadership{node, end}:
			case <-ctx.Done():
				return nil
			}
			select {
			case <-end:
				return StepDown(nil, pause)
			case <-ctx.Done():
				return nil
			}
		})
		return l
	}
	next := func() (l leadership) {
		select {
		case l = <-led:
		case <-time.After(soon):
			require.Fail(t, "nobody leads")
		}
		return l
	}
	leaders := map[string]*Leader{"a": run(t.Context(), "a")}
	first := next()
	ctx, cancel := context.WithCancel(t.Context())
	leaders["b"] = run(ctx, "b")
	last := first
	for range rounds {
		other := "b"
		if last.node == "b" {
			other = "a"
		}
		poll(t, soon, other+" contends", func() bool { return taskOf(leaders[other].Status(), "x").State == StateContending })
		close(last.end)
		last = next()
		require.Equal(t, other, last.node)
	}
	cancel() // of b, which does not lead now: rounds are even
	require.Equal(t, "a", last.node)
	began := time.Now()
	close(last.end)
	require.Equal(t, "a", next().node)
	assert.GreaterOrEqual(t, time.Since(began), pause)
}

func testLeadersJoin(t *testing.T, p *leaderPlace) {
	t.Helper()
	r := &recorder{}
	a, b, _, _, _ := p.pair(t, r, 0)
	_, ok := b.Join(t.Context(), "x")
	require.False(t, ok)
	work, ok := a.Join(t.Context(), "x")
	require.True(t, ok)
	require.NoError(t, Confirm(&work))
	p.lose(t, a, "x")
	select {
	case <-work.Done():
	case <-time.After(soon):
		require.Fail(t, "the work goes on")
	}
	assert.ErrorIs(t, context.Cause(&work), ErrLost)
	poll(t, soon, "somebody leads again", func() bool { return a.IsLeading("x") || b.IsLeading("x") })
	assert.Error(t, work.Err())
}
