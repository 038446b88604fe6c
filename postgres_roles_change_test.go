// SPDX-License-Identifier: MIT

package leader

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// setReadOnly has the server of admin refuse or take writes, as far as each session does not say otherwise, and returns when it
// has told its sessions so.
func setReadOnly(t *testing.T, admin *pgx.Conn, value string) {
	t.Helper()
	for _, sql := range []string{"RESET default_transaction_read_only", "ALTER SYSTEM SET default_transaction_read_only = " + value, "SELECT pg_reload_conf()"} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	poll(t, soon, "the setting", func() bool {
		var is string
		require.NoError(t, admin.QueryRow(t.Context(), "SHOW default_transaction_read_only").Scan(&is))
		return is == value
	})
}

// TestPostgresTurnsReadOnly: the connection survives, and the server takes no more writes (coder/coder#5370). Leader and standby
// leave it within one Check, with no overlap, say why, and are back when it takes writes.
func TestPostgresTurnsReadOnly(t *testing.T) {
	server := pgtest.Start(t)
	admin := pgtest.Connect(t, server.URL())
	r := &recorder{}
	const drain = 300 * time.Millisecond
	leaders := make(map[string]*Leader)
	for _, node := range []string{"a", "b"} {
		l := newLeader(t, Postgres(server.URL()), changeOptions(t, node))
		leaders[node] = l
		goRun(t.Context(), l, "x", r.task(node, "x", func(interval) time.Duration { return drain }))
		poll(t, soon, "asked", func() bool { return l.IsLeading("x") || contends(l, "x")() })
	}
	for range 2 {
		poll(t, redial, "led", func() bool { return len(r.running("x")) == 1 })
		poll(t, redial, "both are connected", func() bool { return leaders["a"].Status().Connected && leaders["b"].Status().Connected })
		before := len(r.get(nil)) - 1
		setReadOnly(t, admin, "on")
		at := time.Now()
		for node, l := range leaders {
			poll(t, changeNotice, node+" leaves", func() bool { return !l.Status().Connected })
		}
		// The standby may get the lock that the leader has left, if it has not had its own Check yet: it leaves as well.
		runs := r.get(nil)
		was := runs[before]
		require.LessOrEqual(t, len(runs), before+2)
		for _, i := range runs {
			require.False(t, i.told.IsZero())
		}
		assert.ErrorIs(t, was.cause, ErrLost)
		assert.ErrorContains(t, was.cause, "the session is read-only (default_transaction_read_only")
		assert.Less(t, was.told.Sub(at), changeNotice)
		holdsFor(t, 2*changeCheck, "nobody leads, and Status says why", func() bool {
			for _, l := range leaders {
				s := l.Status()
				if l.IsLeading("x") || s.Connected || s.Err == nil || !strings.Contains(s.Err.Error(), "read-only") {
					return false
				}
			}
			return len(r.get(nil)) == len(runs)
		})
		for _, l := range leaders {
			assert.Equal(t, StateConnecting, taskOf(l.Status(), "x").State)
			assert.NotErrorIs(t, l.Status().Err, ErrUnsupported)
		}
		setReadOnly(t, admin, "off")
		back := time.Now()
		poll(t, redial, "led again", func() bool { return len(r.running("x")) == 1 })
		t.Logf("told after %v; led again %v after writes were taken", was.told.Sub(at), time.Since(back))
	}
	assert.Zero(t, r.overlap(), "the lock was held until the task had returned")
}

// TestPostgresTurnsReadOnlyWithAnotherHost is C32 as it was reported: another host takes writes, and all must move there.
func TestPostgresTurnsReadOnlyWithAnotherHost(t *testing.T) {
	one, two := pgtest.Start(t), pgtest.Start(t)
	hosts := pgtest.Hosts(one, two)
	a, b := newLeader(t, Postgres(hosts), changeOptions(t, "a")), newLeader(t, Postgres(hosts), changeOptions(t, "b"))
	r := &recorder{}
	goRun(t.Context(), a, "x", r.task("a", "x", nil))
	r.await(t, "x", "a")
	goRun(t.Context(), b, "x", r.task("b", "x", nil))
	poll(t, soon, "b contends", contends(b, "x"))
	require.Equal(t, 2, sessionsAt(t, one.URL(), a, b))

	setReadOnly(t, pgtest.Connect(t, one.URL()), "on")
	at := time.Now()
	poll(t, changeNotice, "a is told", func() bool { return !r.of("x", "a")[0].told.IsZero() })
	poll(t, redial, "led", func() bool { return len(r.running("x")) == 1 })
	led := time.Since(at)
	poll(t, redial, "both have moved", func() bool { return a.Status().Connected && b.Status().Connected && backends(t, one.URL()) == 0 })
	assert.Equal(t, 2, sessionsAt(t, two.URL(), a, b))
	t.Logf("told after %v; led elsewhere %v after the change; overlap %v", r.of("x", "a")[0].told.Sub(at), led, r.overlap())
	assert.Less(t, led, changeNotice+takeoverTime)
	assert.LessOrEqual(t, r.overlap(), changeNotice, "no longer than until a noticed: the new host knows nothing of its lock")
	holdsFor(t, 2*changeCheck, "one leads", func() bool { return len(r.running("x")) == 1 })
}

// TestPostgresDatabaseTurnsReadOnly: ALTER DATABASE and ALTER ROLE concern new sessions only.
func TestPostgresDatabaseTurnsReadOnly(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	admin := pgtest.Connect(t, dsn)
	var database string
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT quote_ident(current_database())").Scan(&database))
	weak := weakRole(t, dsn)
	var role string
	require.NoError(t, pgtest.Connect(t, weak).QueryRow(t.Context(), "SELECT quote_ident(current_user)").Scan(&role))
	for _, object := range []string{"DATABASE " + database, "ROLE " + role} {
		l := newLeader(t, Postgres(weak), changeOptions(t, "a"))
		r := &recorder{}
		goRun(t.Context(), l, "x", r.task("a", "x", nil))
		r.await(t, "x", "a")
		alter := func(what string) {
			t.Helper()
			_, err := admin.Exec(t.Context(), fmt.Sprintf("ALTER %s %s", object, what))
			require.NoError(t, err)
		}
		alter("SET default_transaction_read_only = on")
		holdsFor(t, 2*changeCheck, "the session is as it was", func() bool { return l.IsLeading("x") })
		_, err := admin.Exec(t.Context(), "SELECT pg_terminate_backend($1)", l.Status().SessionPID)
		require.NoError(t, err)
		poll(t, soon, "the next one is refused, and Status says why", func() bool {
			s := l.Status()
			return !s.Connected && s.Err != nil && strings.Contains(s.Err.Error(), "read-only")
		})
		holdsFor(t, changeCheck, "nobody leads", func() bool { return len(r.running("x")) == 0 })
		alter("RESET default_transaction_read_only")
		poll(t, redial, "led again", func() bool { return len(r.running("x")) == 1 })
		assert.Zero(t, r.overlap())
		require.NoError(t, l.Resign(t.Context()))
	}
}
