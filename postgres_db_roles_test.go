// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"errors"
	"fmt"
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

// dbEvil is a schema whose functions, operators, views and types lie. The locking functions say yes and lock nothing. (A cast
// is in no schema: only the owner of the server's own types can make one that we could meet.)
const dbEvil = `CREATE SCHEMA evil;
	CREATE FUNCTION evil.pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
	CREATE FUNCTION evil.pg_advisory_unlock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
	CREATE FUNCTION evil.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT NULL::void';
	CREATE FUNCTION evil.pg_backend_pid() RETURNS int LANGUAGE sql AS 'SELECT 42';
	CREATE FUNCTION evil.pg_is_in_recovery() RETURNS boolean LANGUAGE sql AS 'SELECT true';
	CREATE FUNCTION evil.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE sql AS 'SELECT 1::bigint';
	CREATE FUNCTION evil.unnest(text[]) RETURNS SETOF text LANGUAGE sql AS 'SELECT ''evil''::text';
	CREATE FUNCTION evil.generate_subscripts(anyarray, int) RETURNS SETOF int LANGUAGE sql AS 'SELECT 1 WHERE false';
	CREATE FUNCTION evil.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT $2';
	CREATE FUNCTION evil.current_setting(text) RETURNS text LANGUAGE sql AS 'SELECT ''on''::text';
	CREATE FUNCTION evil.current_database() RETURNS name LANGUAGE sql AS 'SELECT ''evil''::name';
	CREATE FUNCTION evil.current_schema() RETURNS name LANGUAGE sql AS 'SELECT ''evil''::name';
	CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''infinity''::timestamptz';
	CREATE FUNCTION evil.statement_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''-infinity''::timestamptz';
	CREATE AGGREGATE evil.count(*) (SFUNC = int8inc, STYPE = bigint, INITCOND = 7);
	CREATE FUNCTION evil.no(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT false';
	CREATE FUNCTION evil.no(smallint, int) RETURNS boolean LANGUAGE sql AS 'SELECT false';
	CREATE FUNCTION evil.no(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false';
	CREATE FUNCTION evil.no(oid, oid) RETURNS boolean LANGUAGE sql AS 'SELECT false';
	CREATE FUNCTION evil.no(name, name) RETURNS boolean LANGUAGE sql AS 'SELECT false';
	CREATE FUNCTION evil.no(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
	CREATE FUNCTION evil.six(bigint, int) RETURNS bigint LANGUAGE sql AS 'SELECT 6::bigint';
	CREATE FUNCTION evil.six(bigint, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 6::bigint';
	CREATE FUNCTION evil.six(timestamptz, timestamptz) RETURNS interval LANGUAGE sql AS 'SELECT ''6 years''::interval';
	CREATE FUNCTION evil.six(numeric, numeric) RETURNS numeric LANGUAGE sql AS 'SELECT 6::numeric';
	CREATE FUNCTION evil.six(float8, float8) RETURNS float8 LANGUAGE sql AS 'SELECT 6::float8';
	CREATE OPERATOR evil.= (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.no);
	CREATE OPERATOR evil.= (LEFTARG = smallint, RIGHTARG = int, FUNCTION = evil.no);
	CREATE OPERATOR evil.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.no);
	CREATE OPERATOR evil.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = evil.no);
	CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = name, FUNCTION = evil.no);
	CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.no);
	CREATE OPERATOR evil.<< (LEFTARG = bigint, RIGHTARG = int, FUNCTION = evil.six);
	CREATE OPERATOR evil.| (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.six);
	CREATE OPERATOR evil.- (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = evil.six);
	CREATE OPERATOR evil.* (LEFTARG = numeric, RIGHTARG = numeric, FUNCTION = evil.six);
	CREATE OPERATOR evil.* (LEFTARG = float8, RIGHTARG = float8, FUNCTION = evil.six);
	CREATE VIEW evil.pg_locks AS SELECT * FROM pg_catalog.pg_locks WHERE false;
	CREATE VIEW evil.pg_stat_activity AS SELECT * FROM pg_catalog.pg_stat_activity WHERE false;
	CREATE VIEW evil.pg_database AS SELECT * FROM pg_catalog.pg_database WHERE false;
	CREATE DOMAIN evil.int8 AS text; CREATE DOMAIN evil.text AS int; CREATE DOMAIN evil.int4 AS text; CREATE DOMAIN evil.float8 AS text;
	GRANT USAGE ON SCHEMA evil TO PUBLIC; GRANT SELECT ON ALL TABLES IN SCHEMA evil TO PUBLIC`

// dbSettings are settings that a role or a database may have for other reasons; those of one row belong together. The times
// are shorter than the silence between two statements of a leader in testSettings.
func dbSettings(major int) [][]string {
	parallel := []string{
		"parallel_setup_cost=0", "parallel_tuple_cost=0", "min_parallel_table_scan_size=0", "min_parallel_index_scan_size=0",
		"max_parallel_workers_per_gather=4", "force_parallel_mode=on",
	}
	if major >= 16 {
		parallel[5] = "debug_parallel_query=on"
	}
	rows := [][]string{
		{"statement_timeout='200ms'"},
		{"lock_timeout='100ms'"},
		{"idle_in_transaction_session_timeout='300ms'"},
		{"search_path=''"},
		{"search_path=evil,pg_catalog,public"},
		{"TimeZone='Asia/Kathmandu'"},
		{"client_encoding='LATIN1'"},
		{"client_encoding='EUC_JP'", "lc_messages='C'"},
		{"synchronous_commit=remote_apply"},
		{"default_transaction_isolation='serializable'"},
		{"default_transaction_isolation='serializable'", "default_transaction_deferrable=on"},
		{"default_transaction_isolation='repeatable read'"},
		{"DateStyle='German, DMY'", "IntervalStyle='sql_standard'"},
		{"standard_conforming_strings=off", "backslash_quote=off", "escape_string_warning=on", "quote_all_identifiers=on"},
		{"bytea_output='escape'", "extra_float_digits=-15", "array_nulls=off", "transform_null_equals=on"},
		{"tcp_user_timeout='300ms'"},
		{"tcp_keepalives_idle=1", "tcp_keepalives_interval=1", "tcp_keepalives_count=1"},
		{"session_replication_role=replica"},
		{"row_security=off"},
		parallel,
		{
			"enable_seqscan=off", "enable_indexscan=off", "enable_bitmapscan=off", "enable_hashjoin=off", "enable_mergejoin=off",
			"enable_nestloop=off", "enable_hashagg=off", "enable_sort=off", "enable_material=off",
			"plan_cache_mode=force_generic_plan", "from_collapse_limit=1", "work_mem='64kB'",
		},
		{
			"log_statement='all'", "log_duration=on", "log_min_duration_statement=0", "log_lock_waits=on", "log_error_verbosity=verbose",
			"log_min_messages=debug1", "debug_print_plan=on", "deadlock_timeout='1ms'",
		},
		{"client_min_messages=debug5"},
		{"exit_on_error=on"},
		{"track_activities=off", "track_counts=off"},
	}
	if major >= 14 {
		rows = append([][]string{{"idle_session_timeout='300ms'"}}, append(rows, []string{"client_connection_check_interval='1ms'"})...)
	}
	if major >= 17 {
		rows = append(rows, []string{"transaction_timeout='200ms'"})
	}
	rows = append(rows, slices.Concat(rows...)) // of two values, the last one counts
	// Not with the others: to compile our first statement alone takes longer than such a statement_timeout.
	return append(rows, []string{"jit=on", "jit_above_cost=0", "jit_inline_above_cost=0", "jit_optimize_above_cost=0"})
}

// TestPostgresSettingsOfOthers: what is set for a role or a database for other reasons must neither end the session nor fool
// it (electric-sql/electric#2685, prisma/orm#8038 and others). This is C17 and C38 (c).
func TestPostgresSettingsOfOthers(t *testing.T) {
	url := pgtest.URL(t)
	pgtest.Exec(t, url, dbEvil)
	rows := dbSettings(dbMajor(t, url))
	// The way that a setting takes is the same for both, so for the database the first rows and all at once are enough.
	few := append(slices.Clone(rows[:10]), rows[len(rows)-2:]...)
	for by, prepare := range map[string]func(t *testing.T, row []string) string{
		"Role": func(t *testing.T, row []string) string {
			t.Helper()
			return dbAs(t, url, dbRole(t, url, "", row...), "x")
		},
		"Database": func(t *testing.T, row []string) string {
			t.Helper()
			own := pgtest.URL(t)
			pgtest.Exec(t, own, dbEvil)
			name := dbQuery[string](t, pgtest.Connect(t, own), "SELECT current_database()::text")
			pgtest.Exec(t, url, "ALTER DATABASE "+name+" SET "+strings.Join(row, "; ALTER DATABASE "+name+" SET "))
			return own
		},
	} {
		n, rows := 0, rows
		if by == "Database" {
			rows = few
		}
		for some := range slices.Chunk(rows, 12) { // the server has 100 connections
			n++
			t.Run(fmt.Sprint(by, n), func(t *testing.T) {
				dbCheckLeaks(t, url)
				testSettings(t, url, some, prepare)
			})
		}
	}
}

// testSettings has two Leaders under each row of settings. One leads, is proved, and hands over to the other.
func testSettings(t *testing.T, admin string, rows [][]string, prepare func(*testing.T, []string) string) {
	t.Helper()
	opts := leader.Options{Retry: 300 * time.Millisecond, Check: 700 * time.Millisecond, Lease: 5 * time.Second, SessionTimeout: 8 * time.Second}
	type pair struct {
		what string
		a, b *leader.Leader
		run  *dbRun
	}
	var pairs []pair
	conn := pgtest.Connect(t, admin)
	for _, row := range rows {
		what := strings.Join(row, ", ")
		url, opts := prepare(t, row), opts
		opts.Namespace = what[:min(len(what), 1000)]
		p := pair{what: what}
		p.a, p.b = dbLeader(t, leader.Postgres(url), opts), dbLeader(t, leader.Postgres(url), opts)
		p.run = dbStart(t, p.a, "a")
		pairs = append(pairs, p)
	}
	for _, p := range pairs {
		dbLeads(t, p.a, "a")
		dbStart(t, p.b, "a")
		held := dbQuery[int](t, conn, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1", int32(p.a.Status().SessionPID))
		require.Equal(t, 1, held, p.what)
	}
	for _, p := range pairs {
		dbWithin(t, dbPatience, "connected", func() bool { return p.b.Status().Connected })
	}
	dbHolds(t, 3*opts.Check, func() bool {
		for _, p := range pairs {
			if !p.a.IsLeading("a") || p.b.IsLeading("a") || !p.b.Status().Connected {
				t.Logf("%s: %+v, %+v", p.what, p.a.Status(), p.b.Status())
				return false
			}
		}
		return true
	})
	for _, p := range pairs {
		h, err := p.b.Holder(t.Context(), "a")
		require.NoError(t, err, p.what)
		assert.Equal(t, p.a.Status().Node, h.Node, p.what)
		assert.WithinDuration(t, time.Now(), h.Since, time.Minute, p.what)
		p.run.stop()
		took := dbLeads(t, p.b, "a")
		assert.Less(t, took, opts.Retry*13/10+dbSlack, p.what)
		assert.Zero(t, p.a.Status().Losses+p.b.Status().Losses, p.what)
	}
}

func TestPostgresWithoutASchemaRunSaysWhatToDo(t *testing.T) {
	url := pgtest.URL(t)
	dbCheckLeaks(t, url)
	role := dbRole(t, url, "", "search_path=''")
	l := dbLeader(t, leader.Postgres(dbAs(t, url, role, "x")), dbTimings())
	err := l.Run(t.Context(), "a", func(context.Context) error { return nil })
	require.ErrorIs(t, err, leader.ErrUnsupported)
	assert.ErrorContains(t, err, "set Options.Namespace")
}

// TestPostgresRoleWithATinyStatementTimeoutGetsThrough: setting the session up is under the role's limit, what follows is not.
func TestPostgresRoleWithATinyStatementTimeoutGetsThrough(t *testing.T) {
	url := pgtest.URL(t)
	dbCheckLeaks(t, url)
	role := dbRole(t, url, "", "statement_timeout='20ms'", "lock_timeout='1ms'") // mostly more than a statement takes on a busy machine
	l := dbLeader(t, leader.Postgres(dbAs(t, url, role, "x")), dbTimings())
	run := dbStart(t, l, "a")
	t.Logf("leads after %v", dbLeads(t, l, "a"))
	dbHolds(t, time.Second, func() bool { return l.IsLeading("a") })
	start := time.Now()
	require.ErrorIs(t, dbResign(l), nil)
	assert.Less(t, time.Since(start), dbSlack)
	<-run.done
	require.ErrorIs(t, run.err, leader.ErrResigned)
	assert.Zero(t, dbLocks(t, pgtest.Connect(t, url)))
}

func dbResign(l *leader.Leader) error {
	ctx, cancel := context.WithTimeout(context.Background(), dbPatience)
	defer cancel()
	return l.Resign(ctx)
}

func TestPostgresConnectionLimitIsWaitedFor(t *testing.T) {
	url := pgtest.URL(t)
	dbCheckLeaks(t, url)
	role := dbRole(t, url, "CONNECTION LIMIT 1")
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	proxy := pgtest.NewProxy(t, dbHostPort(config))
	first := pgtest.Connect(t, dbAs(t, url, role, "x"))
	log := &dbLog{}
	opts := dbTimings()
	opts.Logger = log.logger()
	l := dbLeader(t, leader.Postgres(proxy.URL(dbAs(t, url, role, "x"))), opts)
	dbStart(t, l, "a")
	dbHolds(t, 2*time.Second, func() bool { return !l.IsLeading("a") })
	var refused *pgconn.PgError
	require.True(t, errors.As(l.Status().Err, &refused), "%v", l.Status().Err)
	assert.Equal(t, "53300", refused.Code)
	assert.Equal(t, leader.StateConnecting, dbTask(t, l, "a").State)
	t.Logf("%d attempts in 2 s", proxy.Accepted())
	assert.LessOrEqual(t, proxy.Accepted(), 25, "it backs off")
	require.NoError(t, first.Close(t.Context()))
	t.Logf("leads %v after the slot was free", dbLeads(t, l, "a"))
	assert.Equal(t, map[string]int{"database session not opened, retrying": 1, "database session opened": 1, "leadership gained": 1}, log.settled(t, l))
}

func TestPostgresHolder(t *testing.T) {
	url := pgtest.URL(t)
	dbCheckLeaks(t, url)
	opts := dbTimings()
	opts.Node = "node 7"
	l := dbLeader(t, leader.Postgres(url), opts)
	dbStart(t, l, "a")
	dbLeads(t, l, "a")
	want := leader.Holder{Name: "a", Held: true, Node: "node 7", PID: l.Status().SessionPID}

	h, err := l.Holder(t.Context(), "a")
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), h.Since, time.Minute)
	h.Since = time.Time{}
	assert.Equal(t, want, h)

	poor := dbLeader(t, leader.Postgres(dbAs(t, url, dbRole(t, url, ""), "x")), dbTimings())
	h, err = poor.Holder(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, want, h, "without pg_read_all_stats, no Since")

	h, err = poor.Holder(t.Context(), "b")
	require.NoError(t, err)
	assert.Equal(t, leader.Holder{Name: "b"}, h)

	stranger := pgtest.Connect(t, url)
	require.True(t, dbQuery[bool](t, stranger, "SELECT pg_try_advisory_lock($1)", leader.Key(l.Status().Namespace, "b")))
	dbStart(t, l, "b")
	h, err = poor.Holder(t.Context(), "b")
	require.NoError(t, err)
	assert.Equal(t, leader.Holder{Name: "b", Held: true, PID: stranger.PgConn().PID()}, h)
	dbHolds(t, 500*time.Millisecond, func() bool { return !l.IsLeading("b") })
	require.NoError(t, stranger.Close(t.Context()))
	dbLeads(t, l, "b")

	// The same key elsewhere is another lock: two numbers, another database, a shared lock.
	pgtest.Exec(t, url, "SELECT pg_advisory_lock(1, 2)")
	other := pgtest.Connect(t, pgtest.URL(t))
	require.True(t, dbQuery[bool](t, other, "SELECT pg_try_advisory_lock($1)", leader.Key(l.Status().Namespace, "c")))
	h, err = poor.Holder(t.Context(), "c")
	require.NoError(t, err)
	assert.False(t, h.Held)
	require.NoError(t, other.Close(t.Context()))
}

func TestPostgresNewReportsBadConfigs(t *testing.T) {
	byHand := &pgx.ConnConfig{}
	for what, backend := range map[string]leader.Backend{
		"a URL without a port number": leader.Postgres("postgres://me:secret@host:port/db"),
		"no URL":                      leader.Postgres("host=a port=b password=secret"),
		"a quoted password":           leader.Postgres("host=a port=b password='se secret'"),
		"an escaped password":         leader.Postgres(`host=a port=b password=secret\ secret`),
		"an escaped quoted password":  leader.Postgres(`host=a port=b password='it\'s secret'`),
		"blanks around the sign":      leader.Postgres(`host=a port=b password = secret`),
		"a bad escape":                leader.Postgres("postgres://me:secret%zz@host/db"),
		"a password with a slash":     leader.Postgres("postgres://me:sec/secret@host/db"),
		"a password with a blank":     leader.Postgres("postgres://me:sec secret@host/db"),
		"a password in the query":     leader.Postgres("postgres://host:port/db?password=secret"),
		"sslpassword":                 leader.Postgres("postgres://host:port/db?sslpassword=secret"),
		"sslmode":                     leader.Postgres("postgres://me:secret@host/db?sslmode=perhaps"),
		"an unquoted password":        leader.Postgres("host=a password=my secret user=me"),
		"an unquoted evil password":   leader.Postgres("host=a password=my sec\"`ret\" user=me"),
		"no string":                   leader.Postgres("postgres//me:secret@host"),
		"a nil config":                leader.PostgresConfig(nil),
		"a config by hand":            leader.PostgresConfig(byHand),
		"a nil pool":                  leader.PostgresPool(nil),
		"nil":                         nil,
	} {
		l, err := leader.New(backend, leader.Options{})
		require.Error(t, err, what)
		assert.Nil(t, l, what)
		assert.NotContains(t, err.Error(), "secret", what)
		assert.NotContains(t, err.Error(), "ret\"", what)
		assert.True(t, strings.HasPrefix(err.Error(), "leader: "), err.Error())
	}
}
