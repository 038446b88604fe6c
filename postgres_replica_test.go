// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// redial is how long a Leader whose last dials failed may take to try again, and what a busy machine adds: hosts that do not
// answer at once come on top.
const redial = 5*time.Second + 10*slack

// sessionsAt returns how many of leaders have their session at the server of dsn.
func sessionsAt(t *testing.T, dsn string, leaders ...*Leader) (n int) {
	t.Helper()
	conn := pgtest.Connect(t, dsn)
	for _, l := range leaders {
		var here bool
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND application_name = $2)`,
			int32(l.Status().SessionPID), applicationName(applicationPrefix, l.Status().Node)).Scan(&here))
		if here {
			n++
		}
	}
	return n
}

// TestPostgresPrimaryStops is C32: the primary goes and its replica is promoted. Whether the primary crashes or is stopped and
// comes back as a standby, its sessions are lost at once, and leadership is had again at the new primary, whatever the order of
// the hosts.
func TestPostgresPrimaryStops(t *testing.T) {
	for _, mode := range []string{"immediate", "fast"} {
		t.Run(mode, func(t *testing.T) {
			first := pgtest.Start(t)
			second := first.Replica(t)
			testPostgresPrimaryStops(t, first, second, mode)
		})
	}
}

func testPostgresPrimaryStops(t *testing.T, first, second *pgtest.Server, mode string) {
	t.Helper()
	a := newLeader(t, Postgres(pgtest.Hosts(first, second)), changeOptions(t, "a"))
	b := newLeader(t, Postgres(pgtest.Hosts(second, first)), changeOptions(t, "b")) // asks the replica first
	r := &recorder{}
	goRun(t.Context(), a, "x", r.task("a", "x", nil))
	r.await(t, "x", "a")
	goRun(t.Context(), b, "x", r.task("b", "x", nil))
	poll(t, soon, "b contends", contends(b, "x"))
	require.Equal(t, 2, sessionsAt(t, first.URL(), a, b), "nobody is at the replica")

	at := time.Now()
	first.Stop(mode)
	poll(t, soon, "the task is told", func() bool { return !r.of("x", "a")[0].told.IsZero() })
	was := r.of("x", "a")[0]
	assert.ErrorIs(t, was.cause, ErrLost)
	assert.Less(t, was.told.Sub(at), promptly+5*slack)
	poll(t, soon, "the replica is refused", func() bool { // a standby would grant locks
		return !a.Status().Connected && a.Status().Err != nil && taskOf(a.Status(), "x").State == StateConnecting
	})
	holdsFor(t, 2*changeCheck, "nobody leads without a primary", func() bool { return !a.IsLeading("x") && !b.IsLeading("x") })
	t.Logf("meanwhile: %v", a.Status().Err)

	second.Promote()
	promoted := time.Now()
	if mode == "fast" {
		first.Follow(second)
	}
	poll(t, redial, "led at the new primary", func() bool { return len(r.running("x")) == 1 })
	t.Logf("told %v after the stop began: %v; led %v after the promotion", was.told.Sub(at), was.cause, time.Since(promoted))
	poll(t, redial, "both are connected", func() bool { return a.Status().Connected && b.Status().Connected })
	assert.Equal(t, 2, sessionsAt(t, second.URL(), a, b))
	assert.Zero(t, r.overlap())

	if mode == "fast" { // the old primary answers again, as a standby, and stands first in a's list
		for range 3 {
			pid := a.Status().SessionPID
			pgtest.Exec(t, second.URL(), "SELECT pg_terminate_backend($1)", pid)
			poll(t, redial, "a is back", func() bool { s := a.Status(); return s.Connected && s.SessionPID != pid })
			assert.Equal(t, 1, sessionsAt(t, second.URL(), a))
			poll(t, soon, "led", func() bool { return len(r.running("x")) == 1 })
		}
		assert.LessOrEqual(t, r.overlap(), promptly+slack)
	}
}

// TestPostgresPrimaryVanishes is the longest overlap of G3: the primary's host is gone without a word, a replica is promoted, and a
// process that finds the new primary leads before the old leader's lease ends.
func TestPostgresPrimaryVanishes(t *testing.T) {
	first := pgtest.Start(t)
	second := first.Replica(t)
	proxy := pgtest.NewProxy(t, first.Addr())
	a := newLeader(t, Postgres(proxy.URL(first.URL())), changeOptions(t, "a"))
	r := &recorder{}
	goRun(t.Context(), a, "x", r.task("a", "x", nil))
	r.await(t, "x", "a")

	proxy.Swallow(true, true)
	second.Promote()
	b := newLeader(t, Postgres(second.URL()), changeOptions(t, "b"))
	goRun(t.Context(), b, "x", r.task("b", "x", nil))
	r.await(t, "x", "b")
	poll(t, soon, "a is told", func() bool { return !r.of("x", "a")[0].told.IsZero() })
	was := r.of("x", "a")[0]
	late := was.told.Sub(was.proved.Add(changeLease))
	t.Logf("told %v after the lease; overlap %v", late, r.overlap())
	assert.ErrorIs(t, was.cause, errLeaseEnd)
	assert.GreaterOrEqual(t, late, time.Duration(0))
	assert.LessOrEqual(t, late, promptly+5*slack)
	assert.LessOrEqual(t, r.overlap(), changeLease+promptly+5*slack)
	proxy.Heal()
}

// TestPostgresTwoPrimaries is what is not guaranteed: a replica is promoted while its old primary lives. Sessions there stay, new
// ones go to the first host that accepts writes, and there is a leader on either side until the old one is fenced.
func TestPostgresTwoPrimaries(t *testing.T) {
	first := pgtest.Start(t)
	second := first.Replica(t)
	a := newLeader(t, Postgres(pgtest.Hosts(first, second)), changeOptions(t, "a"))
	r := &recorder{}
	goRun(t.Context(), a, "x", r.task("a", "x", nil))
	r.await(t, "x", "a")
	pid := a.Status().SessionPID

	second.Promote()
	holdsFor(t, 3*changeCheck, "a leads on", func() bool { return a.IsLeading("x") })
	b := newLeader(t, Postgres(pgtest.Hosts(first, second)), changeOptions(t, "b"))
	goRun(t.Context(), b, "x", r.task("b", "x", nil))
	poll(t, soon, "b contends", contends(b, "x"))
	h, err := b.Holder(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, "a", h.Node, "b is at the old primary, where a leads")
	c := newLeader(t, Postgres(pgtest.Hosts(second, first)), changeOptions(t, "c"))
	goRun(t.Context(), c, "x", r.task("c", "x", nil))
	r.await(t, "x", "c")
	assert.True(t, a.IsLeading("x") && c.IsLeading("x"), "both sides have a leader")
	assert.Zero(t, a.Status().Losses)
	assert.Equal(t, pid, a.Status().SessionPID)

	first.Stop("immediate") // fenced
	poll(t, redial, "all are at the new primary", func() bool {
		return contends(a, "x")() && contends(b, "x")() && a.Status().Connected && b.Status().Connected
	})
	holdsFor(t, 3*changeCheck, "one leads", func() bool { return c.IsLeading("x") && !a.IsLeading("x") && !b.IsLeading("x") })
	require.NoError(t, c.Resign(context.WithoutCancel(t.Context())))
	poll(t, soon, "one of the others", func() bool { return len(r.running("x")) == 1 })
}

// TestPostgresReplicaIsPromoted: a Leader that knows only a replica gets no lock there, which would exclude nobody, and leads by
// itself when that becomes the primary.
func TestPostgresReplicaIsPromoted(t *testing.T) {
	first := pgtest.Start(t)
	second := first.Replica(t)
	l := newLeader(t, Postgres(second.URL()), changeOptions(t, "a"))
	choosy := newLeader(t, Postgres(pgtest.Hosts(second, first)+"&target_session_attrs=prefer-standby"), changeOptions(t, "b"))
	r := &recorder{}
	for node, l := range map[string]*Leader{"a": l, "b": choosy} {
		goRun(t.Context(), l, "x", r.task(node, "x", nil))
		poll(t, soon, "the cause is named", func() bool { return l.Status().Err != nil })
		assert.ErrorContains(t, l.Status().Err, "the server is a standby, in recovery")
		assert.NotErrorIs(t, l.Status().Err, ErrUnsupported, "it may be promoted")
	}
	holdsFor(t, 2*changeCheck, "not usable", func() bool {
		return len(r.get(nil)) == 0 && !l.Status().Connected && taskOf(l.Status(), "x").State == StateConnecting
	})
	assert.Zero(t, locks(t, second.URL()), "nothing is held there")

	first.Stop("immediate")
	second.Promote()
	promoted := time.Now()
	poll(t, redial, "led", func() bool { return len(r.running("x")) == 1 })
	t.Logf("led %v after the promotion", time.Since(promoted))
	poll(t, redial, "both are there", func() bool { return l.Status().Connected && choosy.Status().Connected })
	assert.NoError(t, l.Status().Err)
	assert.Equal(t, 2, sessionsAt(t, second.URL(), l, choosy))
	assert.Zero(t, r.overlap())
}
