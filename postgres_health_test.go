// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresHealthDownAtStart is C42: the database is away when the process starts. Status says so, with the error, and Run goes
// on trying.
func TestPostgresHealthDownAtStart(t *testing.T) {
	server := pgtest.Start(t)
	server.Stop("fast")
	l := newLeader(t, Postgres(server.URL()), changeOptions(t, "a"))
	assert.NoError(t, l.Status().Err, "nobody has asked yet")
	r := &recorder{}
	run := goRun(t.Context(), l, "x", r.task("a", "x", nil))
	poll(t, soon, "the error", func() bool { return l.Status().Err != nil })
	s := l.Status()
	assert.ErrorContains(t, s.Err, "connect: ")
	assert.ErrorContains(t, s.Err, server.Addr())
	assert.Zero(t, s.SessionPID)
	assert.Empty(t, s.Place)
	holdsFor(t, 2*time.Second, "not connected, and not given up", func() bool {
		s := l.Status()
		return !s.Connected && s.Err != nil && s.ProofAge == -1 && taskOf(s, "x").State == StateConnecting && !run.returned()
	})
	ctx, cancel := context.WithTimeout(t.Context(), slack)
	defer cancel()
	_, err := l.Holder(ctx, "x")
	assert.ErrorIs(t, err, context.DeadlineExceeded, "and the holder is not known")
	assert.ErrorContains(t, err, server.Addr())

	server.Start()
	up := time.Now()
	poll(t, redial, "led", func() bool { return len(r.running("x")) == 1 })
	t.Logf("led %v after the server was up", time.Since(up))
	s = l.Status()
	assert.True(t, s.Connected)
	assert.NoError(t, s.Err)
	assert.Equal(t, "postgres@"+server.Addr(), s.Place)
	assert.Zero(t, s.Losses)
}

// TestPostgresHealthOfAStandby is C42: a standby that is cut off from the database is not healthy, and says so within the lease; one
// that is not is healthy though it does not lead. The states are kept apart: connected, contending, leading. Whether a task that
// leads serves already is for the task to say.
func TestPostgresHealthOfAStandby(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	proxy, a, b, r := leaderAndStandby(t, dsn)
	events := b.Watch(t.Context())
	proved := func(l *Leader) bool { return l.Status().Connected && l.Status().ProofAge < faultLease }
	holdsFor(t, 3*faultCheck, "a standby is connected, contends and does not lead", func() bool {
		return proved(b) && contends(b, "x")() && !b.IsLeading("x") && b.Status().Err == nil
	})
	h, err := b.Holder(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, "a", h.Node)

	d := dig(proxy, hole{up: true, down: true})
	d.open(t)
	cut := time.Now()
	var oldest time.Duration
	poll(t, soon, "b is not healthy any more", func() bool {
		s := b.Status()
		oldest = max(oldest, s.ProofAge) // tells before that for how long nothing was heard
		return !s.Connected
	})
	noticed := time.Since(cut)
	s := b.Status()
	t.Logf("not connected %v after the cut, the last proof %v old: %v", noticed, oldest, s.Err)
	assert.LessOrEqual(t, noticed, faultLease+promptly+2*slack)
	assert.Greater(t, oldest, faultLease/2)
	assert.ErrorIs(t, s.Err, errLeaseEnd)
	assert.EqualValues(t, -1, s.ProofAge)
	assert.Equal(t, StateConnecting, taskOf(s, "x").State)
	assert.Zero(t, taskOf(s, "x").Losses, "it had nothing to lose")
	e := <-events
	if e.Kind == Waiting {
		e = <-events
	}
	assert.Equal(t, Disconnected, e.Kind)
	ctx, cancel := context.WithTimeout(t.Context(), slack)
	defer cancel()
	_, err = b.Holder(ctx, "x")
	assert.ErrorIs(t, err, context.DeadlineExceeded, "the holder is not known, rather than a as before")
	assert.True(t, a.IsLeading("x"), "nobody else minds")

	proxy.OnClient(nil)
	proxy.Heal()
	poll(t, soon, "b is healthy again", func() bool { return proved(b) && contends(b, "x")() && b.Status().Err == nil })
	assert.Len(t, r.get(nil), 1)
}

// TestPostgresHealthInARollout replaces instances one by one, each when the next is connected: that must not wait for it to lead
// (jumpstarter-dev/jumpstarter#1012).
func TestPostgresHealthInARollout(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	r := &recorder{}
	old := newLeader(t, Postgres(dsn), faultOptions(t, "0"))
	goRun(t.Context(), old, "x", r.task("0", "x", nil))
	r.await(t, "x", "0")
	for n := range 5 {
		node := fmt.Sprint(n + 1)
		next := newLeader(t, Postgres(dsn), faultOptions(t, node))
		goRun(t.Context(), next, "x", r.task(node, "x", nil))
		poll(t, soon, "the next one is ready", func() bool { return next.Status().Connected })
		assert.True(t, old.IsLeading("x"), "although it does not lead")
		require.NoError(t, old.Resign(t.Context()))
		assert.False(t, old.Status().Connected)
		r.await(t, "x", node)
		old = next
	}
	assert.Zero(t, r.overlap())
}
