// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresTermsReleaseInTrouble is C15: the table is gone, it may not be made again, and statements of this role are cut off at
// once. The lock is given back all the same, also by a task that returns an error.
func TestPostgresTermsReleaseInTrouble(t *testing.T) {
	admin := pgtest.Start(t).URL()
	pgtest.Exec(t, admin, "CREATE ROLE app LOGIN; CREATE SCHEMA jobs; GRANT USAGE, CREATE ON SCHEMA jobs TO app")
	conn := pgtest.Connect(t, admin)
	opts := termOptions("a")
	opts.Namespace, opts.Check = "jobs", time.Second // the release comes before the Check
	l := termLeader(t, dbAs(t, admin, "app", ""), opts)
	events := l.Watch(t.Context())
	failed := errors.New("failed")
	proceed, returned := make(chan struct{}), make(chan error, 1)
	begun := make(chan context.Context, 1)
	go func() {
		returned <- l.Run(t.Context(), "error", func(ctx context.Context) error {
			begun <- ctx
			<-proceed
			return failed
		})
	}()
	termNext(t, begun)
	resigned, _ := termTask(t, l, "resign")
	termNext(t, resigned)
	pgtest.Exec(t, admin, `DROP TABLE jobs.leader_terms; REVOKE CREATE ON SCHEMA jobs FROM app; ALTER ROLE app SET statement_timeout = '1ms'`)
	pgtest.Exec(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'leader-terms/%'")
	locks := func(want int) {
		t.Helper()
		dbWithin(t, time.Second+dbSlack, "the lock is gone", func() bool {
			return dbQuery[int](t, conn, "SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1") == want
		})
	}
	close(proceed)
	locks(1)
	require.ErrorIs(t, <-returned, failed)
	began := time.Now()
	require.NoError(t, l.Resign(t.Context()))
	assert.Less(t, time.Since(began), 2*time.Second+2*dbSlack)
	locks(0)
	told := 0
	for e := range events {
		if e.Kind == "unmarked" {
			told++
		}
	}
	assert.LessOrEqual(t, told, 1, "it is told again and again")
	assert.Zero(t, dbQuery[int](t, conn, "SELECT count(*)::int FROM pg_stat_activity WHERE application_name LIKE 'leader%' AND state LIKE 'idle in%'"))
}

// TestPostgresPoolerTerms has terms begin through a pooler in session mode, and fences pass through one in transaction mode.
func TestPostgresPoolerTerms(t *testing.T) {
	server := pgtest.Start(t)
	url := server.URL()
	session := server.Bounce(t, "pool_mode=session", "default_pool_size=5").URL(url)
	transaction := server.Bounce(t, "pool_mode=transaction", "default_pool_size=1").URL(url)
	opts := termOptions("a")
	opts.Namespace = "public"
	l := termLeader(t, session, opts)
	begun, stop := termTask(t, l, "x")
	ctx, term := termNext(t, begun)
	db, err := sql.Open("pgx", transaction+"&default_query_exec_mode=exec")
	require.NoError(t, err)
	defer func() { _ = db.Close() }()
	for range 3 {
		for _, fence := range []func(context.Context, *sql.Tx) error{leader.FenceSQL, leader.FenceSharedSQL} {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, fence(ctx, tx))
			require.NoError(t, tx.Commit())
		}
	}
	stop()
	next, _ := termTask(t, termLeader(t, session, opts), "x")
	_, later := termNext(t, next)
	assert.Greater(t, later, term)
}

// What is wrong with the table ends no Run, whatever the server calls it: here a type has its name.
func TestPostgresTermsInTheWay(t *testing.T) {
	admin := pgtest.Start(t).URL()
	pgtest.Exec(t, admin, "CREATE SCHEMA jobs; CREATE TYPE jobs.leader_terms AS ENUM ('a')")
	opts := termOptions("a")
	opts.Namespace = "jobs"
	l := termLeader(t, admin, opts)
	begun, _ := termTask(t, l, "x")
	dbWithin(t, 10*time.Second, "the trouble is shown", func() bool {
		err := l.Status().Err
		return err != nil && !errors.Is(err, leader.ErrUnsupported)
	})
	assert.ErrorContains(t, l.Status().Err, "leader_terms")
	pgtest.Exec(t, admin, "DROP TYPE jobs.leader_terms")
	termNext(t, begun)
}

// A task whose context ends in the middle of a fenced statement gives up its connection, and the server knows a moment later: the
// row is locked when the end is to be marked.
func TestPostgresTermsCleanEndWithAStatementInFlight(t *testing.T) {
	url := pgtest.URL(t)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	defer pool.Close()
	conn := pgtest.Connect(t, url)
	l := termLeader(t, url, termOptions("a"))
	for i := range 5 {
		ctx, stop := context.WithCancel(t.Context())
		begun, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- l.Run(ctx, "x", func(ctx context.Context) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if err := leader.Fence(ctx, tx); err != nil {
						return err
					}
					close(begun)
					_, err := tx.Exec(ctx, "SELECT pg_sleep(10)")
					return err
				})
			})
		}()
		<-begun
		dbWithin(t, 5*time.Second, "the statement goes on", func() bool { // or the server takes its cancellation for nothing
			return dbQuery[int](t, conn, "SELECT count(*)::int FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(10)'") == 1
		})
		stop()
		require.ErrorIs(t, <-done, context.Canceled)
		require.Equal(t, "resigned", dbQuery[string](t, conn, "SELECT coalesce(ended, '') FROM leader_terms WHERE released_at IS NOT NULL"), i)
	}
}

// A row that somebody has locked for longer costs the release 200 ms, and that is told.
func TestPostgresTermsEndNotMarked(t *testing.T) {
	url := pgtest.URL(t)
	l := termLeader(t, url, termOptions("a"))
	events := l.Watch(t.Context())
	begun, stop := termTask(t, l, "x")
	termNext(t, begun)
	tx, err := pgtest.Connect(t, url).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM leader_terms FOR UPDATE")
	require.NoError(t, err)
	stop()
	require.NoError(t, l.Resign(t.Context()))
	told := 0
	for e := range events {
		if e.Kind == leader.Unmarked {
			told++
			assert.ErrorContains(t, e.Err, "locked")
		}
	}
	assert.Equal(t, 1, told)
}
