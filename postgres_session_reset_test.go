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

// The timings of tests in which the session or its server changes. A proof notices, and the lease is so long that nothing else
// can be the reason.
const (
	changeCheck = 500 * time.Millisecond
	changeLease = 5 * time.Second
	// changeNotice is how long a change may go unnoticed on a busy machine.
	changeNotice = changeCheck + 5*slack
)

func changeOptions(t *testing.T, node string) Options {
	t.Helper()
	return Options{
		Node: node, Namespace: t.Name(),
		Retry: 300 * time.Millisecond, Check: changeCheck, Lease: changeLease, SessionTimeout: 8 * time.Second,
	}
}

// resets is what somebody may run on our own session: a pooler that lends it to others, or code that shares its configuration.
var resets = []struct {
	name, sql string
	locks     bool   // are gone with it
	says      string // the cause
}{
	{"DiscardAll", "DISCARD ALL", true, "DISCARD ALL"},
	{"UnlockAll", "SELECT pg_catalog.pg_advisory_unlock_all()", true, "none of 2"},
	{"ResetAll", "RESET ALL", false, "the setting "},
	{"SearchPath", "SET search_path = evil, pg_catalog", false, "the setting search_path "},
	{"StatementTimeout", "SET statement_timeout = '1h'", false, "the setting statement_timeout "},
	{"Unlisten", "UNLISTEN *", false, "does not listen"},
	{"ReadOnly", "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", false, "read-only"},
}

// TestPostgresSessionReset is C07 and C32: the connection is fine, and the session is not what it was. It is noticed within one
// Check, and the session is not used any more, because what frees its locks when this host dies may be gone.
func TestPostgresSessionReset(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	for _, c := range resets {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testPostgresSessionReset(t, dsn, func(a *Leader) { execOn(t, a, c.sql) }, c.says, c.locks)
		})
	}
	t.Run("BetweenTwoCounts", func(t *testing.T) { // of the locks, which are seldom counted where there are many
		t.Parallel()
		testPostgresSessionReset(t, dsn, func(a *Leader) {
			onSession(t, a, func(s *pgSession) error {
				s.dear, s.took, s.counted = time.Minute, time.Minute, time.Now()
				_, err := s.conn.Exec(context.Background(), "DISCARD ALL")
				return err
			})
		}, "DISCARD ALL", true)
	})
}

// TestPostgresStatementsForgotten: what a session does over and over is prepared from its first proof on. A session that the server
// has made to forget it may have lost more.
func TestPostgresStatementsForgotten(t *testing.T) {
	dsn := pgtest.URL(t)
	testPostgresSessionReset(t, dsn, func(a *Leader) {
		poll(t, soon, "a proof is prepared", func() (prepared bool) {
			onSession(t, a, func(s *pgSession) error {
				return s.conn.QueryRow(context.Background(), "SELECT EXISTS (SELECT FROM pg_prepared_statements WHERE statement = $1)", sqlProve).Scan(&prepared)
			})
			return prepared
		})
		execOn(t, a, "DEALLOCATE ALL")
	}, "DEALLOCATE ALL", false)
}

func testPostgresSessionReset(t *testing.T, dsn string, reset func(a *Leader), says string, locks bool) {
	t.Helper()
	a := newLeader(t, Postgres(dsn), changeOptions(t, "a"))
	b := newLeader(t, Postgres(dsn), changeOptions(t, "b"))
	r := &recorder{}
	const drain = 300 * time.Millisecond
	for _, name := range []string{"x", "y"} {
		goRun(t.Context(), a, name, r.task("a", name, func(interval) time.Duration { return drain }))
		r.await(t, name, "a")
		goRun(t.Context(), b, name, r.task("b", name, nil))
		poll(t, soon, "b contends", contends(b, name))
	}
	pid := a.Status().SessionPID
	require.NotZero(t, pid)
	reset(a)
	at := time.Now()
	poll(t, soon, "both are told", func() bool { return !r.of("x", "a")[0].told.IsZero() && !r.of("y", "a")[0].told.IsZero() })
	var notice time.Duration
	for _, name := range []string{"x", "y"} {
		was := r.of(name, "a")[0]
		notice = max(notice, was.told.Sub(at))
		assert.ErrorIs(t, was.cause, ErrLost)
		assert.ErrorContains(t, was.cause, says)
	}
	s := a.Status()
	assert.EqualValues(t, 1, s.Losses, "of the session, not of a lock")
	assert.Less(t, notice, changeNotice)
	for _, name := range []string{"x", "y"} {
		poll(t, soon, name+" is led again", func() bool { return len(r.running(name)) == 1 })
	}
	poll(t, soon, "a has another session", func() bool {
		s = a.Status()
		return s.Connected && s.SessionPID != pid && s.Retired == 0
	})
	t.Logf("told after %v: %v; overlap %v", notice, r.of("x", "a")[0].cause, r.overlap())
	if locks {
		assert.LessOrEqual(t, r.overlap(), notice+drain+slack, "until it was noticed, and the task had stopped")
	} else {
		assert.Zero(t, r.overlap(), "the locks were held until the tasks had returned")
	}
	assert.NoError(t, s.Err)
}

// TestPostgresProofKnowsTheSettings resets each setting by itself.
func TestPostgresProofKnowsTheSettings(t *testing.T) {
	s := openSession(t, Postgres(pgtest.URL(t)), "a").(*pgSession)
	take(t, s, 1)
	assert.Empty(t, proof(t, s))
	assert.GreaterOrEqual(t, len(s.names), 9)
	assert.Contains(t, s.names, "tcp_user_timeout")
	set := func(name, value string) {
		t.Helper()
		_, err := s.conn.Exec(t.Context(), "SELECT set_config($1, $2, false)", name, value)
		require.NoError(t, err)
	}
	for i, name := range s.names {
		_, err := s.conn.Exec(t.Context(), "RESET "+name)
		require.NoError(t, err)
		_, err = s.prove()
		var over *sessionError
		require.ErrorAs(t, err, &over, name)
		assert.False(t, over.ended, name)
		assert.ErrorContains(t, err, fmt.Sprintf("the setting %s of the session is not %q any more", name, s.values[i]))
		set(name, s.values[i])
		assert.Empty(t, proof(t, s), name)
	}
	set("application_name", "leader/another") // what we did not set is nobody's business
	set("TimeZone", "Asia/Kathmandu")
	_, err := s.conn.Exec(t.Context(), "LISTEN another")
	require.NoError(t, err)
	assert.Empty(t, proof(t, s))
}
