// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

func TestTerminatePostgres(t *testing.T) {
	t.Parallel()
	db := pgtest.URL(t)
	status, _, errs := call(t, at(db), "terminate", "--name", "x", "--yes")
	assert.Equal(t, statusFailed, status)
	assert.Equal(t, "leader: nobody leads \"x\"\n", errs)

	p := hold(t, db, "x", "--node", "web-1")
	beside := hold(t, db, "y", "--node", "web-2")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP)) // it does not answer
	status, out, errs := call(t, at(db), "terminate", "--name", "x")
	assert.Equal(t, statusUsage, status)
	assert.Contains(t, out, `"x" is led by web-1 (server process `)
	assert.Contains(t, errs, "pass --yes")
	assert.True(t, overviewFrom(t, db, "x").Leads[0].Held)

	status, out, errs = call(t, at(db), "terminate", "--name", "x", "--yes")
	assert.Zero(t, status, errs)
	assert.Contains(t, out, "ended; nobody has taken over yet")
	o := overviewFrom(t, db, "x", "y")
	assert.False(t, o.Leads[0].Held)
	assert.True(t, o.Leads[1].Held, "nobody else was ended")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	assert.Equal(t, statusLost, p.status())
	require.NoError(t, beside.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 143, beside.status())
}

// TestTerminatePostgresOfAnotherStart: by now the server's process number is that of a session that has begun later, or that
// leads something else. Numbers are used again too seldom to wait for it.
func TestTerminatePostgresOfAnotherStart(t *testing.T) {
	t.Parallel()
	db := pgtest.URL(t)
	p := hold(t, db, "x")
	conn := pgtest.Connect(t, db)
	x := &target{name: "x", namespace: "public"}
	s, err := find(t.Context(), conn, x)
	require.NoError(t, err)
	require.NotNil(t, s)
	before, y := *s, *x
	since := s.since.Add(-time.Microsecond)
	before.since = &since
	y.key++
	a := &app{stdout: io.Discard, stderr: io.Discard}
	for _, row := range []struct {
		t *target
		s *session
	}{{x, &before}, {&y, s}} {
		_, err = a.end(t.Context(), conn, row.t, row.s)
		assert.EqualError(t, err, "that session does not lead it any more: nothing was ended")
	}
	assert.True(t, overviewFrom(t, db, "x").Leads[0].Held)
	_, err = a.end(t.Context(), conn, x, s)
	require.NoError(t, err)
	assert.Equal(t, statusLost, p.status())
}

func TestTerminatePostgresWithoutRights(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	db := server.Database(t)
	pgtest.Exec(t, db, "CREATE ROLE weak LOGIN")
	hold(t, db, "x")
	u, err := url.Parse(db)
	require.NoError(t, err)
	u.User = url.User("weak")
	status, _, errs := call(t, at(u.String()), "terminate", "--name", "x", "--yes")
	assert.Equal(t, statusFailed, status)
	assert.Contains(t, errs, "GRANT pg_read_all_stats, and pg_signal_backend, to this role")
	pgtest.Exec(t, db, "GRANT pg_read_all_stats TO weak")
	status, _, errs = call(t, at(u.String()), "terminate", "--name", "x", "--yes")
	assert.Equal(t, statusFailed, status)
	assert.Contains(t, errs, "GRANT pg_signal_backend to this role")
	assert.True(t, overviewFrom(t, db, "x").Leads[0].Held)
}

func TestTerminateAndResignOnSQLite(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "app.db")
	hold(t, db, "x", "--node", "web-1")
	for _, sub := range []string{"terminate", "resign"} {
		status, _, errs := call(t, at(db), sub, "--name", "x")
		assert.Equal(t, statusUnsupported, status)
		assert.Regexp(t, `on SQLite a lock ends with its process: stop process \d+ \(web-1\), which leads "x"`, errs)
		status, _, errs = call(t, at(db), sub, "--name", "y")
		assert.Equal(t, statusFailed, status)
		assert.Contains(t, errs, `nobody leads "y"`)
	}
}

func TestResignPostgres(t *testing.T) {
	t.Parallel()
	db := pgtest.URL(t)
	a := hold(t, db, "x", "--node", "web-1", "--restart")
	b := start(t, at(db), "run", "--verbose", "--name", "x", "--node", "web-2", "--", "sh", "-c", "echo lead; exec sleep 60")
	within(t, "b waits", func() bool { return strings.Contains(b.err.String(), "standing by") })
	status, out, errs := call(t, at(db), "resign", "--name", "x")
	assert.Zero(t, status, errs)
	assert.Contains(t, out, "asked web-1 (server process ")
	b.says("lead")
	assert.Contains(t, a.err.String(), "asked to hand over")

	// Back again: the first one stands by, and the second one, which does not start its command again, ends.
	status, out, errs = call(t, at(db), "resign", "--name", "x")
	assert.Zero(t, status, errs)
	assert.Contains(t, out, "asked web-2 (server process ")
	assert.Equal(t, 143, b.status())
	within(t, "a leads again", func() bool { return strings.Count(a.out.String(), "lead") == 2 })
}

// TestResignPostgresOfAStubbornHolder: a lock of a stranger, who hears nothing.
func TestResignPostgresOfAStubbornHolder(t *testing.T) {
	t.Parallel()
	db := pgtest.URL(t)
	conn := pgtest.Connect(t, db)
	_, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock($1)", newKeyOf("public", "x").Key)
	require.NoError(t, err)
	began := time.Now()
	status, out, errs := call(t, at(db), "resign", "--name", "x", "--wait", "500ms")
	assert.Equal(t, statusFailed, status)
	assert.Contains(t, out, "asked a stranger (server process ")
	assert.Contains(t, errs, "has not handed over within 500ms")
	assert.GreaterOrEqual(t, time.Since(began), 500*time.Millisecond)
	status, _, errs = call(t, at(db), "resign", "--name", "y")
	assert.Equal(t, statusFailed, status)
	assert.Contains(t, errs, `nobody leads "y"`)
}
