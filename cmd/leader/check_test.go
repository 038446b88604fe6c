// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// checked runs the doctor.
func checked(t *testing.T, db string) (status int, r report) {
	t.Helper()
	status, out, errs := call(t, []string{"DATABASE_URL=" + db}, "check", "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &r.findings), "%s%s", out, errs)
	assert.Empty(t, errs)
	assert.Equal(t, r.failed(), status == statusFailed)
	return status, r
}

// of returns the worst finding about what.
func (r *report) of(t *testing.T, what string) finding {
	t.Helper()
	var worst finding
	for _, level := range []level{levelOK, levelWarn, levelFail} {
		for _, f := range r.findings {
			if f.What == what && f.Level == level {
				worst = f
			}
		}
	}
	require.NotEmpty(t, worst.What, "nothing is said of %s: %+v", what, r.findings)
	return worst
}

func versionOf(t *testing.T, db string) (version int) {
	t.Helper()
	require.NoError(t, pgtest.Connect(t, db).QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version))
	return version
}

func TestCheckPostgresThatIsWell(t *testing.T) {
	t.Parallel()
	db := pgtest.URL(t)
	status, r := checked(t, db)
	assert.Zero(t, status, "%+v", r.findings)
	for _, f := range r.findings {
		if f.What == "server" && versionOf(t, db) < 140000 {
			assert.Equal(t, levelWarn, f.Level)
			assert.Equal(t, "use PostgreSQL 14 or newer", f.Do)
			assert.Contains(t, f.Found, "has no idle_session_timeout")
			continue
		}
		assert.Equal(t, levelOK, f.Level, "%+v", f)
	}
	for _, what := range []string{"connect", "server", "primary", "pooler", "rights", "namespace", "lock table", "connections", "terms", "round trip", "locks", "timings"} {
		r.of(t, what)
	}
	status, out, _ := call(t, []string{"DATABASE_URL=" + db}, "check")
	assert.Zero(t, status)
	assert.Regexp(t, `(?m)^ok    locks        a lock that was taken here is held here`, out)
	conn := pgtest.Connect(t, db)
	assert.Eventually(t, func() bool { // the server may be about to end the session
		var left int
		err := conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_class WHERE relname = 'leader_terms')
			+ (SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
				WHERE l.locktype = 'advisory' AND d.datname = current_database())`).Scan(&left)
		return err == nil && left == 0
	}, 5*time.Second, 10*time.Millisecond, "it changes nothing")
}

func TestCheckSQLite(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "app.db")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	status, r := checked(t, file)
	assert.Zero(t, status)
	assert.Equal(t, levelOK, r.of(t, "locks").Level)
	require.NoError(t, os.Link(file, file+".2")) // which SQLite itself cannot live with
	status, r = checked(t, file)
	assert.Equal(t, statusFailed, status)
	assert.Contains(t, r.of(t, "locks").Found, "keep one name")
}

func TestCheckPostgresPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	db := server.Database(t)
	for mode, want := range map[string]level{"transaction": levelFail, "statement": levelFail, "session": levelOK} {
		status, r := checked(t, server.Bounce(t, "pool_mode="+mode).URL(db))
		what := "locks"
		if mode == "statement" {
			what = "pooler"
		}
		f := r.of(t, what)
		assert.Equal(t, want, f.Level, "%s: %+v", mode, r.findings)
		if want == levelOK {
			assert.Zero(t, status)
			assert.Contains(t, r.of(t, "pooler").Found, "there is one")
			continue
		}
		assert.Equal(t, statusFailed, status)
		assert.Contains(t, f.Do, "pool_mode=session")
		_, out, _ := call(t, at(db), "status")
		assert.Contains(t, out, "nothing is led")
		assert.NotContains(t, out, checkNode, "a check stands not by, though the pooler's session keeps its name")
	}
}

func TestCheckPostgresReplica(t *testing.T) {
	t.Parallel()
	replica := pgtest.Start(t).Replica(t)
	status, r := checked(t, replica.URL())
	assert.Equal(t, statusFailed, status)
	f := r.of(t, "primary")
	assert.Equal(t, levelFail, f.Level)
	assert.Contains(t, f.Found, "replica")
	assert.Contains(t, f.Do, "connect to the primary")
}

func TestCheckPostgresReadOnly(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "default_transaction_read_only=on")
	status, r := checked(t, server.URL())
	assert.Equal(t, statusFailed, status)
	assert.Contains(t, r.of(t, "primary").Do, "RESET default_transaction_read_only")
}

func TestCheckPostgresFullLockTable(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "max_locks_per_transaction=10", "max_connections=10", "max_prepared_transactions=0", "autovacuum=off",
		"max_worker_processes=0", "max_wal_senders=0", "autovacuum_max_workers=1")
	fill(t, pgtest.Connect(t, server.URL()))
	status, r := checked(t, strings.Replace(server.URL(), "sslmode=disable", "sslmode=prefer", 1))
	assert.Equal(t, statusFailed, status, "%+v", r.findings)
	assert.True(t, slices.ContainsFunc(r.findings, func(f finding) bool {
		return f.Level == levelFail && strings.Contains(f.Do, "max_locks_per_transaction") && strings.Contains(f.Found, "out of shared memory")
	}), "%+v", r.findings)
}

// fill takes locks until there is no room for one more.
func fill(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for n, step := 0, 64; step > 0; {
		_, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock(7, g) FROM generate_series($1::int, $2::int) g", n, n+step-1)
		var full *pgconn.PgError
		switch {
		case err == nil:
			n += step
		case errors.As(err, &full) && full.Code == codeNoMemory:
			step /= 2 // what it has taken stays taken
			n += 1000
		default:
			require.NoError(t, err)
		}
	}
}

func TestCheckPostgresRoleWithoutRights(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	admin := server.Database(t)
	pgtest.Exec(t, admin, "CREATE ROLE weak LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	u, err := url.Parse(admin)
	require.NoError(t, err)
	u.User = url.User("weak")
	u.RawQuery = "" // as in the README: TLS is tried, and what a server without it says of that is no remedy
	status, r := checked(t, u.String())
	assert.Zero(t, status, "it may lead: %+v", r.findings)
	assert.Contains(t, r.of(t, "rights").Do, "pg_read_all_stats")
	assert.Equal(t, levelWarn, r.of(t, "terms").Level)
	assert.Contains(t, r.of(t, "terms").Do, `GRANT CREATE ON SCHEMA "public" TO "weak"`)

	pgtest.Exec(t, admin, leader.TermsSQL+"; GRANT SELECT ON leader_terms TO weak; REVOKE USAGE ON SCHEMA public FROM PUBLIC")
	status, out, _ := call(t, at(u.String()), "check", "--namespace", "public")
	assert.Zero(t, status, out)
	grants := regexp.MustCompile(`do: (GRANT USAGE .*)`).FindStringSubmatch(out)
	require.NotEmpty(t, grants, out)
	pgtest.Exec(t, admin, grants[1]) // what it says will do
	_, r = checked(t, u.String())
	assert.Equal(t, levelOK, r.of(t, "terms").Level, "%+v", r.findings)

	pgtest.Exec(t, admin, "REVOKE EXECUTE ON FUNCTION pg_try_advisory_lock(bigint) FROM PUBLIC")
	status, r = checked(t, u.String())
	assert.Equal(t, statusFailed, status)
	assert.Contains(t, r.of(t, "rights").Do, `GRANT EXECUTE ON FUNCTION pg_catalog.pg_try_advisory_lock(bigint) TO "weak"`)
	assert.Equal(t, levelFail, r.of(t, "locks").Level)

	pgtest.Exec(t, admin, "REVOKE CONNECT ON DATABASE "+strings.TrimPrefix(u.Path, "/")+" FROM PUBLIC")
	status, r = checked(t, u.String())
	assert.Equal(t, statusFailed, status)
	assert.Equal(t, "GRANT CONNECT ON DATABASE "+pgx.Identifier{strings.TrimPrefix(u.Path, "/")}.Sanitize()+` TO "weak"`, r.of(t, "connect").Do)
	pgtest.Exec(t, admin, r.of(t, "connect").Do+"; ALTER ROLE weak CONNECTION LIMIT 0")
	_, r = checked(t, u.String())
	assert.Contains(t, r.of(t, "connect").Do, "CONNECTION LIMIT")
	assert.NotContains(t, r.of(t, "connect").Found, "TLS")
}

func TestCheckPostgresThatIsAway(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	gone := server.URL()
	u, err := url.Parse(gone)
	require.NoError(t, err)
	u.Path = "/no_such_database"
	_, r := checked(t, u.String())
	assert.Contains(t, r.of(t, "connect").Do, "name of the database")
	u.Host = "127.0.0.1:1," + u.Host // nobody is there: what a server has said is more than that
	_, r = checked(t, u.String())
	assert.Contains(t, r.of(t, "connect").Do, "name of the database")
	server.Stop("fast")
	status, r := checked(t, gone)
	assert.Equal(t, statusFailed, status)
	assert.Contains(t, r.of(t, "connect").Do, "is the address right")
	assert.Equal(t, 1, strings.Count(r.of(t, "connect").Found, "connection refused"), "said once")
}

func TestCheckJudgesVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[int]level{120022: levelFail, 130014: levelWarn, 140000: levelOK, 180001: levelOK} {
		r := &report{}
		judgeVersion(version, "PostgreSQL of a kind on a machine", r)
		require.Len(t, r.findings, 1)
		f := r.findings[0]
		assert.Equal(t, want, f.Level)
		if want != levelOK {
			assert.Equal(t, "use PostgreSQL 14 or newer", f.Do)
		}
	}
}
