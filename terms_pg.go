// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// termsPrefix is for the application_name of connections that begin terms: they hold no lock of a name.
	termsPrefix = "leader-terms/"
	// termsBatch is how many terms are begun in one transaction, each with a lock of its own in the server's table.
	termsBatch = 500
	// queueTimeout is how long a statement for many names waits for a lock, and SQLite for its writer.
	queueTimeout = 2 * time.Second
	// waitTimeout is how long a takeover waits in the queue for its row before it lets another one have the place: it
	// queues up anew then, so this is longer than writers that follow each other need.
	waitTimeout = 8 * time.Second
)

var errOtherServer = errors.New("the connection for terms has reached another server than the locks are on")

// All of these run with search_path = pg_catalog, pg_temp. %s is leader_terms.
const (
	sqlTryOnes = `SELECT pg_try_advisory_xact_lock(f) FROM unnest($1::int8[]) AS f`
	// sqlBump begins the terms of the rows that have the term that was read, and that nobody has locked.
	sqlBump = `WITH free AS MATERIALIZED (
			SELECT t.key, t.released_at IS NOT NULL AS clean FROM %[1]s AS t JOIN unnest($1::int8[], $2::int8[]) AS w(key, last)
			ON t.key = w.key AND t.term = w.last ORDER BY t.key FOR NO KEY UPDATE OF t %[2]s)
		UPDATE %[1]s AS t SET term = greatest(t.term + 1, (extract(epoch FROM clock_timestamp()) * 1000)::int8, $3),
			ended = CASE WHEN free.clean THEN t.ended ELSE 'died' END, released_at = NULL,
			taken_at = clock_timestamp(), node = $4, addr = $5, pid = $6
		FROM free WHERE t.key = free.key RETURNING t.key, t.term, free.clean`
	sqlAdd = `INSERT INTO %[1]s (key, namespace, name, term, node, addr, pid, taken_at)
		SELECT k, $4, n, greatest((extract(epoch FROM clock_timestamp()) * 1000)::int8, $3), $5, $6, $7, clock_timestamp()
		FROM unnest($1::int8[], $2::text[]) AS w(k, n) ORDER BY k ON CONFLICT (key) DO NOTHING RETURNING key, term, true`
	sqlLast = `SELECT key, term FROM %s WHERE key = ANY ($1::int8[])`
	sqlMark = `WITH free AS MATERIALIZED (
			SELECT t.key, w.reason FROM %[1]s AS t JOIN unnest($1::int8[], $2::int8[], $3::text[]) AS w(key, term, reason)
			ON t.key = w.key AND t.term = w.term ORDER BY t.key FOR NO KEY UPDATE OF t SKIP LOCKED)
		UPDATE %[1]s AS t SET released_at = clock_timestamp(), ended = free.reason FROM free WHERE t.key = free.key`
	sqlUnmarked = `SELECT t.key FROM %s AS t JOIN unnest($1::int8[], $2::int8[]) AS w(key, term)
		ON t.key = w.key AND t.term = w.term WHERE t.released_at IS NULL`
	// sqlBlockers follows who waits for whom, and takes the oldest transaction: the others wait for it, too.
	sqlBlockers = `WITH RECURSIVE b(waiter, pid) AS (
			SELECT w, unnest(pg_blocking_pids(w)) FROM unnest($1::int4[]) AS w
			UNION SELECT b.waiter, unnest(pg_blocking_pids(b.pid)) FROM b)
		SELECT DISTINCT ON (b.waiter) b.waiter, b.pid, 
			coalesce(a.application_name, CASE WHEN b.pid = 0 THEN 'prepared transaction' ELSE '' END),
			coalesce((extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::int8, 0)
		FROM b LEFT JOIN pg_stat_activity AS a ON a.pid = b.pid WHERE b.pid <> ALL ($1::int4[])
		ORDER BY b.waiter, a.xact_start NULLS LAST`
)

// pgTerms keeps terms on PostgreSQL. Its connection is not that of the locks, and holds no lock for longer than a
// transaction.
type pgTerms struct {
	backend *postgres
	opts    Options
	clock   *clock
	own     *pgSession // kept between calls, but for those of wait
	site    termSite   // that own was opened for
}

func (p *postgres) terms(opts Options, clock *clock) termStore {
	return &pgTerms{backend: p, opts: opts, clock: clock}
}

func (p *pgTerms) queues() bool { return true }

func (p *pgTerms) close() {
	if p.own != nil {
		p.own.close()
		p.own = nil
	}
}

// connect opens a connection to the server that has the locks.
func (p *pgTerms) connect(ctx context.Context, site termSite) (*pgSession, error) {
	s, err := p.backend.dialAs(ctx, termsPrefix, p.opts, p.clock)
	if err != nil {
		return nil, err
	}
	if err := p.furnish(ctx, s, site); err != nil {
		s.close() //nolint:contextcheck // also after ctx has ended
		return nil, fmt.Errorf("set up the connection for terms: %w", err)
	}
	return s, nil
}

func (p *pgTerms) furnish(ctx context.Context, s *pgSession, site termSite) error {
	var version int
	var commit, server string
	err := s.conn.QueryRow(ctx, `SELECT pg_catalog.current_setting('server_version_num')::pg_catalog.int4,
		pg_catalog.current_setting('synchronous_commit'), pg_catalog.pg_backend_pid()`).Scan(&version, &commit, &s.info.pid)
	if err != nil {
		return err
	}
	s.pooled = s.conn.PgConn().PID() != s.info.pid
	if commit != "remote_apply" {
		commit = "on" // a term is durable before a task has it
	}
	own := map[string]string{
		"synchronous_commit": commit,
		"lock_timeout":       strconv.FormatInt(queueTimeout.Milliseconds(), 10),
		"statement_timeout":  strconv.FormatInt(clerkTimeout.Milliseconds(), 10),
	}
	names, values := []string{"default_transaction_isolation"}, []string{"read committed"}
	for _, setting := range s.settings(version) {
		if value, ok := own[setting[0]]; ok {
			setting[1] = value
		}
		if setting[0] != "idle_session_timeout" || p.opts.SessionTimeout > linger {
			names, values = append(names, setting[0]), append(values, setting[1])
		}
	}
	if err := s.set(ctx, names, values); err != nil {
		return err
	}
	if err := s.conn.QueryRow(ctx, `SELECT `+sqlServer).Scan(&server); err != nil { // now with operators that are the server's
		return err
	}
	if server != site.server {
		return errOtherServer
	}
	return nil
}

// on runs work on the kept connection, or on a new one: again, when the kept one turns out to be dead, or when the table was
// missing and could be made.
func (p *pgTerms) on(ctx context.Context, site termSite, work func(*pgSession) error) error {
	if p.site != site {
		p.close() //nolint:contextcheck // as polite as a dead connection lets it be: the session before may have died with it
	}
	for made := false; ; {
		reused := p.own != nil
		if !reused {
			s, err := p.connect(ctx, site)
			if err != nil {
				return err
			}
			p.own, p.site = s, site
		}
		err := work(p.own)
		switch over := p.own.over(err); {
		case err == nil:
			return nil
		case over != nil || p.own.conn.IsClosed():
			p.close() //nolint:contextcheck // also after ctx has ended
			if !reused || ctx.Err() != nil {
				return err
			}
		case sqlState(err) == undefinedTable && !made:
			made = true
			if err := p.own.makeTerms(ctx, site.schema); err != nil {
				return err
			}
		default:
			return termsRights(err, site)
		}
	}
}

// begin takes the fence lock of each name, as FenceShared shares it, and then its row, as Fence locks it: what is not free of both
// is stuck.
func (p *pgTerms) begin(ctx context.Context, site termSite, wants []termWant) (map[int64]termBegun, error, error) {
	begun := make(map[int64]termBegun, len(wants))
	for some := range slices.Chunk(wants, termsBatch) {
		err := p.on(ctx, site, func(s *pgSession) error {
			got := make(map[int64]termBegun, len(some))
			err := s.write(ctx, func(tx pgx.Tx) error { return bump(ctx, tx, site, some, got) })
			if err == nil {
				maps.Copy(begun, got)
			}
			return err
		})
		if sqlState(err) == lockNotAvailable {
			continue // behind somebody's insert
		}
		if err != nil {
			return begun, nil, err
		}
	}
	return begun, nil, nil
}

// write runs a transaction whose level does not depend on the role.
func (s *pgSession) write(ctx context.Context, work func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, s.conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, work)
}

// bump begins what is free, and fills in got for all that is not stuck.
func bump(ctx context.Context, tx pgx.Tx, site termSite, wants []termWant, got map[int64]termBegun) error {
	fences := make([]int64, len(wants))
	for i, w := range wants {
		fences[i] = fenceKey(w.key)
	}
	rows, err := tx.Query(ctx, sqlTryOnes, fences)
	if err != nil {
		return err
	}
	free, err := pgx.CollectRows(rows, pgx.RowTo[bool])
	if err != nil {
		return err
	}
	var some []termWant
	for i, w := range wants {
		if free[i] {
			some = append(some, w)
		}
	}
	return advance(ctx, tx, site, "SKIP LOCKED", some, got)
}

// advance begins the terms of wants, whose fence locks tx has.
func advance(ctx context.Context, tx pgx.Tx, site termSite, skip string, wants []termWant, got map[int64]termBegun) error {
	var keys, lasts, added []int64
	var names []string
	var floor Term
	for _, w := range wants {
		if w.last == 0 {
			added, names = append(added, w.key), append(names, w.name)
		} else {
			keys, lasts = append(keys, w.key), append(lasts, int64(w.last))
		}
		floor = max(floor, w.floor)
	}
	if len(keys) > 0 {
		sql := fmt.Sprintf(sqlBump, site.table(), skip)
		if err := collect(ctx, tx, got, sql, keys, lasts, int64(floor), site.node, site.addr, int64(site.pid)); err != nil {
			return err
		}
	}
	if len(added) > 0 {
		sql := fmt.Sprintf(sqlAdd, site.table())
		if err := collect(ctx, tx, got, sql, added, names, int64(floor), site.namespace, site.node, site.addr, int64(site.pid)); err != nil {
			return err
		}
	}
	return moved(ctx, tx, site, wants, got)
}

func collect(ctx context.Context, tx pgx.Tx, got map[int64]termBegun, sql string, args ...any) error {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	var key int64
	var b termBegun
	_, err = pgx.ForEachRow(rows, []any{&key, &b.term, &b.clean}, func() error {
		got[key] = b
		return nil
	})
	return err
}

// moved fills in got for those whose rows are not what was read any more.
func moved(ctx context.Context, tx pgx.Tx, site termSite, wants []termWant, got map[int64]termBegun) error {
	var missing []int64
	for _, w := range wants {
		if b, ok := got[w.key]; ok {
			b.last = w.last
			got[w.key] = b
		} else {
			missing = append(missing, w.key)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, fmt.Sprintf(sqlLast, site.table()), missing)
	if err != nil {
		return err
	}
	now := make(map[int64]Term)
	var key int64
	var term Term
	if _, err := pgx.ForEachRow(rows, []any{&key, &term}, func() error { now[key] = term; return nil }); err != nil {
		return err
	}
	for _, w := range wants {
		if _, ok := got[w.key]; !ok && now[w.key] != w.last {
			got[w.key] = termBegun{}
		}
	}
	return nil
}

// wait queues up for the fence lock and the row. Polling for them would starve beside writers that follow each other closely; the
// queues of the server are fair.
func (p *pgTerms) wait(ctx context.Context, site termSite, want termWant, waiting func(pid uint32)) (*termBegun, error) {
	s, err := p.connect(ctx, site)
	if err != nil {
		return nil, err
	}
	defer s.close() //nolint:contextcheck // also after ctx has ended
	waiting(s.info.pid)
	got := make(map[int64]termBegun, 1)
	err = s.write(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", waitTimeout.Milliseconds())); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", fenceKey(want.key)); err != nil {
			return err
		}
		return advance(ctx, tx, site, "", []termWant{want}, got)
	})
	b, ok := got[want.key]
	switch {
	case sqlState(err) == lockNotAvailable:
		return nil, nil //nolint:nilnil // it is stuck
	case err != nil:
		return nil, termsRights(err, site)
	case !ok:
		return nil, nil //nolint:nilnil // it is stuck
	}
	return &b, nil
}

// end need not be durable: a mark that is lost makes the next takeover a careful one.
func (p *pgTerms) end(ctx context.Context, site termSite, ends []termEnd) (locked []termEnd, err error) {
	for some := range slices.Chunk(ends, maxBatch) {
		var keys, terms []int64
		var reasons []string
		for _, e := range some {
			keys, terms, reasons = append(keys, e.key), append(terms, int64(e.term)), append(reasons, string(e.reason))
		}
		var left []int64
		err := p.on(ctx, site, func(s *pgSession) error {
			return s.write(ctx, func(tx pgx.Tx) error {
				batch := &pgx.Batch{}
				batch.Queue("SET LOCAL synchronous_commit = off")
				batch.Queue(fmt.Sprintf(sqlMark, site.table()), keys, terms, reasons)
				batch.Queue(fmt.Sprintf(sqlUnmarked, site.table()), keys, terms).Query(func(rows pgx.Rows) (err error) {
					left, err = pgx.CollectRows(rows, pgx.RowTo[int64])
					return err
				})
				return tx.SendBatch(ctx, batch).Close()
			})
		})
		if err != nil {
			return nil, err
		}
		for _, e := range some {
			if slices.Contains(left, e.key) {
				locked = append(locked, e)
			}
		}
	}
	return locked, nil
}

func (p *pgTerms) read(context.Context, termSite, []int64) (map[int64]termRow, error) {
	return nil, errors.ErrUnsupported // sessions read
}

func (p *pgTerms) blockers(ctx context.Context, site termSite, pids []uint32) (map[uint32]Blocker, error) {
	blockers := make(map[uint32]Blocker)
	waiters := make([]int32, len(pids))
	for i, pid := range pids {
		waiters[i] = int32(pid)
	}
	err := p.on(ctx, site, func(s *pgSession) error {
		rows, err := s.conn.Query(ctx, sqlBlockers, waiters)
		if err != nil {
			return err
		}
		var waiter uint32
		var b Blocker
		var age int64
		_, err = pgx.ForEachRow(rows, []any{&waiter, &b.PID, &b.Application, &age}, func() error {
			b.Age = time.Duration(age) * time.Millisecond
			blockers[waiter] = b
			return nil
		})
		return err
	})
	return blockers, err
}

// termsRights says what to do about a lack of rights.
func termsRights(err error, site termSite) error {
	if sqlState(err) == insufficientPrivilege {
		return fmt.Errorf("this role needs USAGE on schema %q and SELECT, INSERT and UPDATE on its table leader_terms: %w", site.schema, err)
	}
	return err
}

// sqlTerms reads rows, by key or all of a namespace.
func sqlTerms(schema, where string) string {
	ms := func(column string) string { return "(extract(epoch FROM t." + column + ") * 1000)::int8" }
	return "SELECT " + strings.Join([]string{
		"t.key", "t.name", "t.term", "t.node", "t.addr", "t.pid", ms("taken_at"), ms("released_at"), "coalesce(t.ended, '')",
	}, ", ") + " FROM " + termSite{schema: schema}.table() + " AS t WHERE " + where
}
