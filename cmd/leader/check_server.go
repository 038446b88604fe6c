// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// What to do, where more than one finding says so.
const (
	doLockTable = "raise max_locks_per_transaction, and see who holds so many: SELECT pid, count(*) FROM pg_locks GROUP BY 1 ORDER BY 2 DESC"
	doPooler    = "use a pool in session mode (PgBouncer: pool_mode=session, for an entry of its own), or connect to the server itself"
	doPrimary   = "connect to the primary, or list all hosts in the connection string: the first that takes writes is used"
)

// facts are what a server tells of itself and of this role.
type facts struct {
	version             int
	text                string
	pid                 uint32
	recovery            bool
	readOnly            string
	database, role      string
	maxLocks, locks     int // of the server's table
	maxConns, conns     int
	statementTimeout    int // ms
	seesOthers, signals bool
	missing             []string // functions that this role may not call
	namespace           string
	schema              bool // there is one for leader_terms
	table               bool
	create              bool // this role may make it
	lacking             []string
}

// examineServer looks at a PostgreSQL server, and reports whether it makes sense to try its locks.
func (d *database) examineServer(ctx context.Context, f checkFlags, r *report) (sound bool) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	began := time.Now()
	conn, err := d.connect(ctx)
	if err != nil {
		r.fail("connect", d.connectRemedy(err), "%s", plain(err))
		return false
	}
	defer goodbyeTo(conn) //nolint:contextcheck // also after ctx has ended
	r.ok("connect", "%s, in %v", d.host(), time.Since(began).Round(time.Millisecond))
	var v facts
	if sound = d.meet(ctx, conn, &v, r); !sound {
		return false
	}
	if v.version == 0 { // of something else that speaks the protocol, which the library knows
		return true
	}
	if err := reading(ctx, conn, f.namespace, func(tx pgx.Tx, namespace string) error {
		v.namespace = namespace
		return v.read(ctx, tx, cmp.Or(f.schema, namespace))
	}); err != nil {
		if strings.Contains(err.Error(), "statement pooling") {
			r.fail("pooler", doPooler, "there is one in statement mode: %s", plain(err))
			return false
		}
		r.fail("server", remedy(err), "%s", plain(err))
		return code(err) == codeNoMemory // the locks show it, too
	}
	if conn.PgConn().PID() == v.pid {
		r.ok("pooler", "none is to be seen: the server process is the one that the connection began with")
	} else {
		r.ok("pooler", "there is one; whether it is in session mode, the test of locks below tells")
	}
	v.judge(r, cmp.Or(f.schema, v.namespace))
	roundTrips(ctx, conn, r)
	return true
}

// connectRemedy is for what comes before a session.
func (d *database) connectRemedy(err error) string {
	do := remedy(err)
	switch text := err.Error(); {
	case code(err) == codeNoRight:
		return fmt.Sprintf("GRANT CONNECT ON DATABASE %s TO %s", quoted(d.config.Database), quoted(d.config.User))
	case code(err) != "" && do != "": // what a server has said is more than how it was reached
		return do
	case strings.Contains(text, "read only connection"), strings.Contains(text, "read-only"):
		return doPrimary
	case strings.Contains(text, "connection refused"), strings.Contains(text, "no such host"), strings.Contains(text, "timeout"), strings.Contains(text, "deadline"):
		return "is the address right, the server up, and no firewall in between?"
	case strings.Contains(text, "server refused TLS"):
		return "the server has no TLS: sslmode=prefer or disable, if the network may be trusted"
	}
	return do
}

// meet finds out what has answered.
func (d *database) meet(ctx context.Context, conn *pgx.Conn, v *facts, r *report) (sound bool) {
	var pid int64
	if err := conn.QueryRow(ctx, `SELECT pg_catalog.version(), pg_catalog.pg_backend_pid()`).Scan(&v.text, &pid); err != nil {
		r.fail("server", remedy(err), "%s", plain(err))
		return false
	}
	v.pid = uint32(pid)
	if !strings.HasPrefix(v.text, "PostgreSQL ") || strings.Contains(v.text, "CockroachDB") || strings.Contains(v.text, "Redshift") {
		return true // the library knows what it is
	}
	err := conn.QueryRow(ctx, `SELECT pg_catalog.current_setting('server_version_num')::pg_catalog.int4, pg_catalog.pg_is_in_recovery(),
		pg_catalog.current_setting('transaction_read_only'), pg_catalog.current_database()::pg_catalog.text, current_user::pg_catalog.text`).
		Scan(&v.version, &v.recovery, &v.readOnly, &v.database, &v.role)
	if err != nil {
		r.fail("server", remedy(err), "%s", plain(err))
		return false
	}
	judgeVersion(v.version, v.text, r)
	switch {
	case v.recovery:
		r.fail("primary", doPrimary, "this server is a replica: its locks exclude only those who ask it")
	case v.readOnly != "off":
		r.fail("primary", "ALTER ROLE or ALTER DATABASE ... RESET default_transaction_read_only, or on the server, if this is the primary; else "+doPrimary,
			"sessions are read-only here")
	default:
		r.ok("primary", "database %q, role %q, takes writes", v.database, v.role)
	}
	return !r.failed()
}

// judgeVersion judges the version of a server.
func judgeVersion(version int, text string, r *report) {
	short, _, _ := strings.Cut(text, " on ")
	switch {
	case version < 130000:
		r.fail("server", "use PostgreSQL 14 or newer", "%s: 13 is the oldest that will do", short)
	case version < 140000:
		r.warn("server", "use PostgreSQL 14 or newer", "%s has no idle_session_timeout: the locks of a frozen process, or of one that is cut off behind a proxy, stay held", short)
	default:
		r.ok("server", "%s", short)
	}
}

// What is read in a transaction whose names are the server's.
const (
	sqlNumbers = `SELECT current_setting('max_locks_per_transaction')::int4
			* (SELECT sum(setting::int4) + 1 FROM pg_settings WHERE name IN ('max_connections', 'max_prepared_transactions',
				'autovacuum_max_workers', 'max_worker_processes', 'max_wal_senders'))::int4,
		(SELECT count(*) FROM pg_locks WHERE NOT fastpath), current_setting('max_connections')::int4,
		(SELECT sum(numbackends) FROM pg_stat_database)::int4,
		(SELECT setting::int4 FROM pg_settings WHERE name = 'statement_timeout'),
		pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), pg_has_role(current_user, 'pg_signal_backend', 'USAGE'),
		ARRAY(SELECT f FROM unnest($1::text[]) AS f WHERE NOT has_function_privilege(f, 'EXECUTE'))`
	sqlTermsTable = `SELECT c.oid IS NOT NULL, has_schema_privilege(n.oid, 'CREATE'),
		ARRAY(SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS p WHERE NOT has_table_privilege(c.oid, p))
		|| CASE WHEN has_schema_privilege(n.oid, 'USAGE') THEN '{}'::text[] ELSE ARRAY['USAGE'] END
		FROM pg_namespace AS n LEFT JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = 'leader_terms' AND c.relkind IN ('r', 'p')
		WHERE n.nspname = $1`
)

// functions are those that a session calls, but for what everybody has.
func functions() []string {
	return []string{
		"pg_catalog.pg_try_advisory_lock(bigint)", "pg_catalog.pg_advisory_unlock(bigint)", "pg_catalog.pg_notify(text,text)",
		"pg_catalog.set_config(text,text,boolean)", "pg_catalog.pg_is_in_recovery()", "pg_catalog.pg_backend_pid()",
	}
}

func (v *facts) read(ctx context.Context, tx pgx.Tx, schema string) error {
	err := tx.QueryRow(ctx, sqlNumbers, functions()).Scan(&v.maxLocks, &v.locks, &v.maxConns, &v.conns, &v.statementTimeout,
		&v.seesOthers, &v.signals, &v.missing)
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, sqlTermsTable, schema)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, []any{&v.table, &v.create, &v.lacking}, func() error {
		v.schema = true
		return nil
	})
	return err
}

// judge judges what was read.
func (v *facts) judge(r *report, schema string) {
	if len(v.missing) > 0 {
		r.fail("rights", fmt.Sprintf("GRANT EXECUTE ON FUNCTION %s TO %s", strings.Join(v.missing, ", "), quoted(v.role)),
			"the role %q may not call %s", v.role, strings.Join(v.missing, ", "))
	} else {
		r.ok("rights", "the role %q may lock, unlock and notify", v.role)
	}
	if !v.seesOthers {
		r.warn("rights", fmt.Sprintf("GRANT pg_read_all_stats TO %s, if people are to see it", quoted(v.role)),
			"this role cannot see since when and from which address others are connected; leading does not need it")
	}
	if v.namespace == "" {
		r.fail("namespace", "set Options.Namespace, or pass --namespace", "this role has no current schema to take it from")
	} else {
		r.ok("namespace", "%q", v.namespace)
	}
	switch share := 100 * v.locks / max(v.maxLocks, 1); {
	case share >= 70:
		r.warn("lock table", doLockTable, "%d of about %d locks of the server are held: when it is full, no name can be led anew", v.locks, v.maxLocks)
	default:
		r.ok("lock table", "%d of about %d locks of the server are held; each name that is led takes one", v.locks, v.maxLocks)
	}
	switch left := v.maxConns - v.conns; {
	case left < max(v.maxConns/10, 3):
		r.warn("connections", "raise max_connections, or use Options.Disconnect where many stand by", "%d of %d are in use; each process takes one", v.conns, v.maxConns)
	default:
		r.ok("connections", "%d of %d are in use; each process takes one", v.conns, v.maxConns)
	}
	if v.statementTimeout > 0 && v.statementTimeout < 1000 {
		r.warn("settings", "ALTER ROLE or ALTER DATABASE ... RESET statement_timeout", "statement_timeout is %d ms: opening a session may not get through", v.statementTimeout)
	}
	v.judgeTerms(r, schema)
}

// judgeTerms is about what only Options.Terms needs.
func (v *facts) judgeTerms(r *report, schema string) {
	const what = "terms"
	table := quoted(schema, "leader_terms")
	var grants []string
	for _, right := range v.lacking {
		if right == "USAGE" {
			grants = append(grants, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", quoted(schema), quoted(v.role)))
		}
	}
	if rights := slices.DeleteFunc(slices.Clone(v.lacking), func(right string) bool { return right == "USAGE" }); len(rights) > 0 {
		grants = append(grants, fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(rights, ", "), table, quoted(v.role)))
	}
	switch {
	case schema == "":
	case !v.schema:
		r.warn(what, "create it, or name another one with --schema (Options.Schema)", "only for --term-env and Options.Terms: there is no schema %q", schema)
	case v.table && len(grants) > 0:
		r.warn(what, strings.Join(grants, "; "), "only for --term-env and Options.Terms: on %s the role %q lacks %s", table, v.role, strings.Join(v.lacking, ", "))
	case v.table:
		r.ok(what, "%s is there, and this role may use it, for --term-env and Options.Terms", table)
	case v.create:
		r.ok(what, "%s is not there; --term-env and Options.Terms make it", table)
	default:
		r.warn(what, fmt.Sprintf("GRANT CREATE ON SCHEMA %s TO %s, or have its owner make the table (leader.TermsSQL), and GRANT SELECT, INSERT, UPDATE ON %s TO %s",
			quoted(schema), quoted(v.role), table, quoted(v.role)), "only for --term-env and Options.Terms: %s is not there, and this role may not make it", table)
	}
}

// quoted is a name as in SQL.
func quoted(parts ...string) string { return pgx.Identifier(parts).Sanitize() }

// roundTrips measures how fast the server answers.
func roundTrips(ctx context.Context, conn *pgx.Conn, r *report) {
	const check = 2 * time.Second
	var took []time.Duration
	for range 5 {
		began := time.Now()
		if _, err := conn.Exec(ctx, "SELECT 1"); err != nil {
			r.fail("round trip", remedy(err), "%s", plain(err))
			return
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	median := took[len(took)/2].Round(10 * time.Microsecond)
	if median > check/4 {
		r.warn("round trip", "set Check and Lease to many times that", "%v: a proof every %v has little room", median, check)
		return
	}
	r.ok("round trip", "%v", median)
}
