// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// terminated ends all sessions of locks in the database of db, and returns how many.
func terminated(t *testing.T, db string) (n int) {
	t.Helper()
	conn := pgtest.Connect(t, db)
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'leader/%'`).Scan(&n))
	return n
}

func TestRunPostgresLost(t *testing.T) {
	t.Parallel()
	db := pgtest.URL(t)
	a := start(t, at(db), "run", "--name", "x", "--kill-after", "200ms", "--", "sh", "-c", group)
	shell, child := a.pid("shell"), a.pid("child")
	require.Equal(t, 1, terminated(t, db))
	assert.Equal(t, statusLost, a.status())
	assert.Contains(t, a.err.String(), "leader: leadership lost")
	assert.Contains(t, a.err.String(), "the command was stopped")
	assert.False(t, alive(shell))
	assert.False(t, alive(child))
}

func TestRunPostgresRestart(t *testing.T) {
	t.Parallel()
	db := pgtest.URL(t)
	a := start(t, at(db), "run", "--name", "x", "--restart", "--term-env", "TERM_OF_MINE", "--", "sh", "-c", "echo lead $TERM_OF_MINE; exec sleep 60")
	a.says("lead")
	require.Equal(t, 1, terminated(t, db))
	within(t, "a second run", func() bool { return strings.Count(a.out.String(), "lead") == 2 })
	assert.Contains(t, a.err.String(), "is started again when this process leads again")
	var terms []int
	for text := range strings.FieldsSeq(strings.ReplaceAll(a.out.String(), "lead", "")) {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		terms = append(terms, n)
	}
	require.Len(t, terms, 2)
	assert.Greater(t, terms[1], terms[0])
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 143, a.status())
}

func TestRunPostgresUnsupported(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	bouncer := server.Bounce(t, "pool_mode=transaction")
	status, out, errs := call(t, at(bouncer.URL(server.Database(t))), "run", "--name", "x", "--", "echo", "ran")
	assert.Equal(t, statusUnsupported, status)
	assert.Empty(t, out)
	assert.Contains(t, errs, "leader: unsupported: there is a pooler in between that is not in session mode")
}

func TestRunUnavailable(t *testing.T) {
	t.Parallel()
	status, out, errs := call(t, at("postgres://me@127.0.0.1:1/db"), "run", "--wait", "500ms", "--name", "x", "--", "echo", "ran")
	assert.Equal(t, statusUnavailable, status)
	assert.Empty(t, out)
	assert.Contains(t, errs, "leader: no database (after 500ms): ")
}

// TestRunPostgresFindsTheDatabase: by all the ways of psql.
func TestRunPostgresFindsTheDatabase(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(pgtest.URL(t))
	require.NoError(t, err)
	service := filepath.Join(t.TempDir(), "services")
	database := strings.TrimPrefix(u.Path, "/")
	require.NoError(t, os.WriteFile(service, []byte("[jobs]\nhost="+u.Hostname()+"\nport="+u.Port()+"\nuser=postgres\ndbname="+database+"\nsslmode=disable\n"), 0o600))
	keyed := "host=" + u.Hostname() + " port=" + u.Port() + " user=postgres sslmode=disable dbname=" + database
	for name, row := range map[string]struct {
		env  []string
		args []string
	}{
		"url":      {nil, []string{"--db", u.String()}},
		"keys":     {nil, []string{"--db", keyed}},
		"variable": {[]string{"DATABASE_URL=" + keyed}, nil},
		"psql":     {[]string{"PGHOST=" + u.Hostname(), "PGPORT=" + u.Port(), "PGUSER=postgres", "PGDATABASE=" + database, "PGSSLMODE=disable"}, nil},
		"service":  {[]string{"PGSERVICE=jobs", "PGSERVICEFILE=" + service}, nil},
		"of --db":  {[]string{"PGSERVICEFILE=" + service}, []string{"--db", "service=jobs"}},
	} {
		args := append(append([]string{"run", "--wait", "10s", "--name", "x", "--node", name, "--verbose"}, row.args...), "--", "echo", "ran")
		status, out, errs := call(t, row.env, args...)
		assert.Zero(t, status, "%s: %s", name, errs)
		assert.Equal(t, "ran\n", out)
		assert.Contains(t, errs, "place="+database+"@", name)
	}
}

// TestRunPostgresShowsNoPassword: neither on the screen nor in the list of processes.
func TestRunPostgresShowsNoPassword(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(pgtest.URL(t))
	require.NoError(t, err)
	const password = "ge/heim&s"
	for _, host := range []string{u.Host, "127.0.0.1:1"} {
		u.Host = host
		u.User = url.UserPassword("postgres", password)
		for _, row := range [][]string{
			{"--db", u.String()},
			{"--db=" + u.String()},
			{"-db", "host=" + u.Hostname() + " port=" + u.Port() +
				" user=postgres sslmode=disable password='" + password + "' dbname=" + strings.TrimPrefix(u.Path, "/")},
			{"--db", "postgres://me:other" + url.QueryEscape(password) + "@elsewhere/db", "--db", u.String()},
		} {
			args := append(append([]string{"run", "--verbose", "--wait", "500ms", "--name", "x"}, row...), "--", "sh", "-c", `echo ran; env; exec sleep 60`)
			p := start(t, nil, args...)
			if host == "127.0.0.1:1" {
				assert.Equal(t, statusUnavailable, p.status())
			} else {
				p.says("ran")
				within(t, "all of it", func() bool { return strings.Contains(p.out.String(), "PATH=") })
				if line, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/cmdline"); err == nil {
					assert.Contains(t, string(line), "xxxxx")
					assert.NotContains(t, string(line), "heim")
				}
				require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
				assert.Equal(t, 143, p.status())
				assert.NotContains(t, p.out.String(), "heim")
			}
			assert.Contains(t, p.err.String(), "put it into DATABASE_URL, PGPASSFILE or a service file")
			assert.NotContains(t, p.err.String(), "heim")
		}
	}
}
