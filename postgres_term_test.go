// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// termOptions are quick, and keep terms.
func termOptions(node string) leader.Options {
	return leader.Options{
		Node: node, Addr: node + ":80", Terms: true, Retry: 50 * time.Millisecond, Check: 200 * time.Millisecond,
		Lease: 2 * time.Second, SessionTimeout: 4 * time.Second,
	}
}

func termLeader(t *testing.T, url string, opts leader.Options) *leader.Leader {
	t.Helper()
	l, err := leader.New(leader.Postgres(url), opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dbPatience)
		defer cancel()
		assert.NoError(t, l.Resign(ctx))
	})
	return l
}

// termTask leads name until it is stopped, and tells each context.
func termTask(t *testing.T, l *leader.Leader, name string) (begun chan context.Context, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	begun, done := make(chan context.Context, 100), make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Run(ctx, name, func(ctx context.Context) error {
			begun <- ctx
			<-ctx.Done()
			return nil
		})
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return begun, stop
}

func termNext(t *testing.T, begun chan context.Context) (context.Context, leader.Term) {
	t.Helper()
	select {
	case ctx := <-begun:
		term, ok := leader.TermOf(ctx)
		require.True(t, ok)
		return ctx, term
	case <-time.After(dbPatience):
		require.FailNow(t, "nobody leads")
		return nil, 0
	}
}

func TestPostgresTermsTableIsMadeOnce(t *testing.T) {
	url := pgtest.URL(t)
	pgtest.Exec(t, url, "DROP TABLE IF EXISTS leader_terms")
	var wg sync.WaitGroup
	terms := make(chan leader.Term, 8)
	for i := range 8 {
		wg.Go(func() {
			begun, stop := termTask(t, termLeader(t, url, termOptions(fmt.Sprint(i))), "race")
			_, term := termNext(t, begun)
			terms <- term // while it leads: in their order
			stop()
		})
	}
	wg.Wait()
	close(terms)
	var last leader.Term
	for term := range terms {
		assert.Greater(t, term, last)
		last = term
	}
	conn := pgtest.Connect(t, url)
	_, err := conn.Exec(t.Context(), leader.TermsSQL)
	require.NoError(t, err, "it is the table of TermsSQL")
	var ended leader.EndReason
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT ended FROM leader_terms WHERE term = $1 AND released_at IS NOT NULL", int64(last)).Scan(&ended))
	assert.Equal(t, leader.EndResigned, ended)
}

// TestPostgresTermsRise is C34 and G5. The next term is begun by a Leader that knows none of those before.
func TestPostgresTermsRise(t *testing.T) {
	server := pgtest.Start(t, "synchronous_commit=off", "wal_writer_delay=10s") // commits of others are long not durable
	url := server.URL()
	exec := func(sql string) func() { return func() { pgtest.Exec(t, url, sql) } }
	for _, fault := range []struct {
		name string
		do   func()
		lost bool // the leader notices by itself
	}{
		{"release", func() {}, false},
		{"session killed", exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'leader/%'"), true},
		{"row deleted", exec("DELETE FROM leader_terms"), true},
		{"table dropped", exec("DROP TABLE leader_terms"), true},
		{"older row restored", exec("UPDATE leader_terms SET term = term - 100000"), true},
		// The last two have terms that are ahead of the clock, so that only the row can make the next one higher.
		{"clock set back", exec("UPDATE leader_terms SET term = term + 86400000"), true},
		{"crash right after the beginning", func() { server.Restart("immediate") }, true},
	} {
		l := termLeader(t, url, termOptions("a"))
		begun, stop := termTask(t, l, "x")
		ctx, term := termNext(t, begun)
		fault.do()
		if fault.lost {
			select {
			case <-ctx.Done():
				assert.ErrorIs(t, context.Cause(ctx), leader.ErrLost, fault.name)
			case <-time.After(dbPatience):
				require.FailNow(t, "the loss was not noticed: "+fault.name)
			}
		}
		if fault.name == "clock set back" {
			_, next := termNext(t, begun)
			assert.Greater(t, next, term+86400000)
			term = next
		}
		stop()
		fresh, done := termTask(t, termLeader(t, url, termOptions("b")), "x")
		_, next := termNext(t, fresh)
		assert.Greater(t, next, term, fault.name)
		done()
	}
}

func TestPostgresTermsRights(t *testing.T) {
	server := pgtest.Start(t)
	admin := server.URL()
	pgtest.Exec(t, admin, "CREATE ROLE app LOGIN; CREATE SCHEMA jobs; REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	url := dbAs(t, admin, "app", "")
	conn := pgtest.Connect(t, admin)
	steps := []struct{ want, remedy string }{
		{`USAGE on schema "jobs"`, "GRANT USAGE ON SCHEMA jobs TO app"},
		{"run leader.TermsSQL in that schema", "SET search_path = jobs; " + leader.TermsSQL},
		{"GRANT SELECT, INSERT, UPDATE", "GRANT SELECT ON jobs.leader_terms TO app"},
		{"GRANT INSERT, UPDATE", "GRANT INSERT, UPDATE ON jobs.leader_terms TO app; ALTER TABLE jobs.leader_terms DROP COLUMN addr"},
		{`no column "addr text"`, "ALTER TABLE jobs.leader_terms ADD COLUMN addr text; ALTER TABLE jobs.leader_terms DROP CONSTRAINT leader_terms_pkey"},
		{"no unique index on key", "ALTER TABLE jobs.leader_terms ADD PRIMARY KEY (key)"},
	}
	opts := termOptions("a")
	opts.Schema, opts.Namespace = "jobs", "apart"
	l := termLeader(t, url, opts)
	begun, stop := termTask(t, l, "x")
	for _, step := range steps {
		dbWithin(t, dbPatience, step.want, func() bool { return l.Status().Err != nil && strings.Contains(l.Status().Err.Error(), step.want) })
		var locks int
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(&locks))
		assert.Zero(t, locks, "a lock is held that is of no use")
		pgtest.Exec(t, admin, step.remedy)
	}
	termNext(t, begun)
	pgtest.Exec(t, admin, "REVOKE ALL ON jobs.leader_terms FROM app")
	began := time.Now()
	stop() // C15
	assert.Less(t, time.Since(began), time.Second+dbSlack)
	var locks int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1").Scan(&locks))
	assert.Zero(t, locks)
	missing := termOptions("b")
	missing.Namespace = "no such schema"
	other := termLeader(t, admin, missing)
	termTask(t, other, "x")
	dbWithin(t, dbPatience, "the schema is named", func() bool {
		return other.Status().Err != nil && strings.Contains(other.Status().Err.Error(), `no schema "no such schema"`)
	})
}

// fences are all kinds, on the two kinds of transactions.
func fences(t *testing.T, url string) map[string]func(ctx context.Context, level string, between func()) error {
	t.Helper()
	conn := pgtest.Connect(t, url)
	db, err := sql.Open("pgx", url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	inPgx := func(fence func(context.Context, pgx.Tx) error) func(context.Context, string, func()) error {
		return func(ctx context.Context, level string, between func()) error {
			tx, err := conn.Begin(context.Background())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }()
			_, err = tx.Exec(context.Background(), "SET TRANSACTION ISOLATION LEVEL "+level)
			require.NoError(t, err)
			_, err = tx.Exec(context.Background(), "SELECT 1") // an old snapshot, where there is one
			require.NoError(t, err)
			between()
			return fence(context.WithoutCancel(ctx), tx)
		}
	}
	inSQL := func(fence func(context.Context, *sql.Tx) error) func(context.Context, string, func()) error {
		return func(ctx context.Context, level string, between func()) error {
			tx, err := db.BeginTx(context.Background(), nil)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			_, err = tx.ExecContext(context.Background(), "SET TRANSACTION ISOLATION LEVEL "+level)
			require.NoError(t, err)
			_, err = tx.ExecContext(context.Background(), "SELECT 1") // an old snapshot, where there is one
			require.NoError(t, err)
			between()
			return fence(context.WithoutCancel(ctx), tx)
		}
	}
	return map[string]func(ctx context.Context, level string, between func()) error{
		"Fence": inPgx(leader.Fence), "FenceSQL": inSQL(leader.FenceSQL),
		"FenceShared": inPgx(leader.FenceShared), "FenceSharedSQL": inSQL(leader.FenceSharedSQL),
	}
}

func TestPostgresFenceAtEachLevel(t *testing.T) {
	url := pgtest.URL(t)
	opts := termOptions("a")
	opts.Check = time.Second // the table is changed, and the fences shall see it first
	for kind, fence := range fences(t, url) {
		shared := kind == "FenceShared" || kind == "FenceSharedSQL"
		for _, level := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
			for _, early := range []bool{true, false} {
				l := termLeader(t, url, opts)
				name := fmt.Sprint(kind, level, early)
				begun, stop := termTask(t, l, name)
				ctx, term := termNext(t, begun)
				nothing := func() {}
				next := func() {
					pgtest.Exec(t, url, "UPDATE leader_terms SET term = term + 5 WHERE name = $1", name)
				}
				err := fence(ctx, level, nothing)
				if shared && level != "READ COMMITTED" {
					require.ErrorContains(t, err, "READ COMMITTED", name)
					assert.NotErrorIs(t, err, leader.ErrFenced)
					stop()
					continue
				}
				require.NoError(t, err, name)
				if early {
					next()
					err = fence(ctx, level, nothing)
				} else {
					err = fence(ctx, level, next)
				}
				require.ErrorIs(t, err, leader.ErrFenced, name)
				var fenced *leader.FencedError
				require.ErrorAs(t, err, &fenced)
				assert.Equal(t, term, fenced.Term)
				if early || level == "READ COMMITTED" {
					assert.Equal(t, term+5, fenced.Current, name)
				} else {
					var failure *pgconn.PgError
					require.ErrorAs(t, fenced.Err, &failure, name)
					assert.Equal(t, "40001", failure.Code, name)
				}
				stop()
			}
		}
	}
	assert.Error(t, leader.Fence(t.Context(), nil), "outside a task")
}

func TestPostgresFenceNeedsTerms(t *testing.T) {
	l, err := leader.New(leader.Postgres(pgtest.URL(t)), leader.Options{})
	require.NoError(t, err)
	defer func() { _ = l.Resign(context.Background()) }()
	require.NoError(t, l.Run(t.Context(), "x", func(ctx context.Context) error {
		assert.ErrorContains(t, leader.Fence(ctx, nil), "Options.Terms")
		_, ok := leader.TermOf(ctx)
		assert.False(t, ok)
		return nil
	}))
	_, err = l.Holders(t.Context())
	assert.ErrorContains(t, err, "Options.Terms")
}

func TestPostgresTakeoverWaitsForFencedTransactions(t *testing.T) {
	url := pgtest.URL(t)
	conn, observer := pgtest.Connect(t, url), pgtest.Connect(t, url)
	for name, fence := range map[string]func(context.Context, pgx.Tx) error{"row": leader.Fence, "shared": leader.FenceShared} {
		a := termLeader(t, url, termOptions("a"))
		begun, stop := termTask(t, a, name)
		ctx, term := termNext(t, begun)
		tx, err := conn.Begin(context.Background())
		require.NoError(t, err)
		require.NoError(t, fence(ctx, tx))
		b := termLeader(t, url, termOptions("b"))
		events := b.Watch(t.Context())
		next, _ := termTask(t, b, name)
		others := make([]chan context.Context, 20)
		pgtest.Exec(t, url, "SELECT pg_terminate_backend($1)", int32(a.Status().SessionPID))
		stop()
		for i := range others {
			others[i], _ = termTask(t, b, fmt.Sprint(name, i))
		}
		dbWithin(t, dbPatience, "Status has the transaction", func() bool {
			for _, task := range b.Status().Tasks {
				if task.Name == name && task.Blocker.PID == conn.PgConn().PID() && task.Blocker.Age > 0 {
					return task.State == leader.StateTakeover
				}
			}
			return false
		})
		for _, other := range others {
			termNext(t, other)
		}
		assert.Empty(t, next, "a later term has begun beside a fenced transaction")
		h, err := b.Holder(t.Context(), name)
		require.NoError(t, err)
		assert.True(t, h.Held)
		assert.False(t, h.Current, "the last term is shown as that of the new holder")
		var waiting string
		require.NoError(t, observer.QueryRow(t.Context(), "SELECT application_name FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)) LIMIT 1", int32(conn.PgConn().PID())).Scan(&waiting))
		assert.Equal(t, "leader-terms/b", waiting, "not the session of the locks")
		require.NoError(t, tx.Commit(context.Background()))
		_, later := termNext(t, next)
		assert.Greater(t, later, term)
		h, err = b.Holder(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, leader.Holder{
			Name: name, Held: true, Node: "b", PID: b.Status().SessionPID, Since: h.Since, Current: true, Addr: "b:80", Term: later,
			Ended: leader.End{Reason: h.Ended.Reason},
		}, h)
		assert.Contains(t, []leader.EndReason{leader.EndDied, leader.EndLost, leader.EndResigned}, h.Ended.Reason)
		blocked := 0
		for len(events) > 0 {
			if e := <-events; e.Kind == leader.Blocked {
				blocked++
			}
		}
		assert.Equal(t, 1, blocked)
	}
}

// TestPostgresTakeoverBesideWriters has six writers hold fenced transactions of 100 ms without a pause.
func TestPostgresTakeoverBesideWriters(t *testing.T) {
	url := pgtest.URL(t)
	for name, fence := range map[string]func(context.Context, pgx.Tx) error{"row": leader.Fence, "shared": leader.FenceShared} {
		a := termLeader(t, url, termOptions("a"))
		begun, stop := termTask(t, a, "writers "+name)
		ctx, _ := termNext(t, begun)
		var wg sync.WaitGroup
		frozen := context.WithoutCancel(ctx) // the writers of a process that does not know
		for range 6 {
			conn := pgtest.Connect(t, url)
			wg.Go(func() {
				for {
					err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
						if err := fence(frozen, tx); err != nil {
							return err
						}
						_, err := tx.Exec(context.Background(), "SELECT pg_sleep(0.1)")
						return err
					})
					if err != nil {
						assert.ErrorIs(t, err, leader.ErrFenced)
						return
					}
				}
			})
		}
		b := termLeader(t, url, termOptions("b"))
		next, _ := termTask(t, b, "writers "+name)
		dbWithin(t, dbPatience, "b waits", func() bool { return len(b.Status().Tasks) > 0 && b.Status().Connected })
		pgtest.Exec(t, url, "SELECT pg_terminate_backend($1)", int32(a.Status().SessionPID))
		began := time.Now()
		go stop() // or a might lead again
		termNext(t, next)
		t.Logf("%s: led after %v", name, time.Since(began))
		assert.Less(t, time.Since(began), time.Second+2*dbSlack)
		wg.Wait()
	}
}

func TestPostgresTermsConnectionIsShort(t *testing.T) {
	server := pgtest.Start(t)
	url := server.URL()
	l := termLeader(t, url, termOptions("a"))
	begun, _ := termTask(t, l, "x")
	termNext(t, begun)
	conn := pgtest.Connect(t, url)
	looks := 0
	dbWithin(t, 5*time.Second+2*dbSlack, "it is closed", func() bool {
		var connections, open int
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE application_name = 'leader-terms/a'),
			count(*) FILTER (WHERE state <> 'active' AND (xact_start IS NOT NULL OR backend_xmin IS NOT NULL))
			FROM pg_stat_activity WHERE application_name LIKE 'leader%'`).Scan(&connections, &open))
		assert.Zero(t, open, "a transaction is left open")
		if connections > 0 {
			looks++
		}
		return connections == 0
	})
	assert.Greater(t, looks, 10)
	assert.True(t, l.IsLeading("x"))
}

func TestPostgresTermsIgnoreSearchPath(t *testing.T) {
	server := pgtest.Start(t)
	url := server.URL()
	pgtest.Exec(t, url, dbEvil)
	pgtest.Exec(t, url, "CREATE TABLE evil.leader_terms (key bigint PRIMARY KEY, term bigint); ALTER ROLE postgres SET search_path = evil, pg_catalog, public")
	opts := termOptions("a")
	opts.Namespace = "public"
	l := termLeader(t, url, opts)
	begun, _ := termTask(t, l, "x")
	ctx, term := termNext(t, begun)
	conn := pgtest.Connect(t, url)
	_, err := conn.Exec(t.Context(), "CREATE TEMP TABLE leader_terms (key bigint, term bigint)")
	require.NoError(t, err)
	require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return errors.Join(leader.Fence(ctx, tx), leader.FenceShared(ctx, tx)) }))
	var in leader.Term
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT term FROM public.leader_terms").Scan(&in))
	assert.Equal(t, term, in)
}
