// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

func dbHostPort(config *pgx.ConnConfig) string {
	return net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
}

// dbFill takes locks on conn until the server's table is full, and then gives back so many.
func dbFill(t *testing.T, conn *pgx.Conn, leave int) int {
	t.Helper()
	n := 0
	for step := 256; step > 0; {
		_, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock(7, g) FROM generate_series($1::int, $2::int) g", n, n+step-1)
		var full *pgconn.PgError
		switch {
		case err == nil:
			n += step
		case errors.As(err, &full) && full.Code == "53200":
			// What a failed statement has taken stays taken.
			_, err = conn.Exec(t.Context(), "SELECT pg_advisory_unlock(7, objid::int) FROM pg_locks WHERE locktype = 'advisory' AND classid = 7 AND objid >= $1 AND pid = pg_backend_pid()", n)
			require.NoError(t, err)
			step /= 2
		default:
			require.NoError(t, err)
		}
	}
	require.Greater(t, n, leave)
	_, err := conn.Exec(t.Context(), "SELECT pg_advisory_unlock(7, g) FROM generate_series($1::int, $2::int) g", n-leave, n-1)
	require.NoError(t, err)
	return n - leave
}

// TestPostgresLockTableFull: a server that has no room for one lock more (que-rb/que#290).
func TestPostgresLockTableFull(t *testing.T) {
	server := pgtest.Start(t, "max_locks_per_transaction=10", "max_connections=10", "max_prepared_transactions=0", "autovacuum=off",
		"max_worker_processes=0", "max_wal_senders=0", "autovacuum_max_workers=1")
	dbCheckLeaks(t, server.URL())
	stranger, observer := pgtest.Connect(t, server.URL()), pgtest.Connect(t, server.URL())
	l := dbLeader(t, leader.Postgres(server.URL()), dbTimings())
	old := dbStart(t, l, "old")
	dbLeads(t, l, "old")
	generation := l.Status().Generation
	pid := int32(l.Status().SessionPID)
	ours := func() int { // dbLocks reads more tables, which takes locks that may not be had
		t.Helper()
		return dbQuery[int](t, observer, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1", pid)
	}
	require.Equal(t, 1, ours())

	t.Logf("a stranger holds %d locks", dbFill(t, stranger, 0))
	refusals := func() int { return strings.Count(server.Log(), "ERROR:  out of shared memory") }
	before := refusals()
	dbStart(t, l, "new")
	dbWithin(t, dbPatience, "the error is visible", func() bool { return dbTask(t, l, "new").Err != nil })
	var full *pgconn.PgError
	require.True(t, errors.As(dbTask(t, l, "new").Err, &full))
	assert.Equal(t, "53200", full.Code)
	assert.Error(t, l.Status().Err)
	dbHolds(t, 3*time.Second, func() bool {
		return l.IsLeading("old") && !l.IsLeading("new") && dbTask(t, l, "new").State == leader.StateContending
	})
	attempts := refusals() - before
	t.Logf("%d attempts in 3 s", attempts)
	assert.LessOrEqual(t, attempts, 25, "it backs off")
	assert.GreaterOrEqual(t, attempts, 2)
	assert.Equal(t, 1, ours(), "never half-held")

	_, err := stranger.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	t.Logf("leads %v after there was room", dbLeads(t, l, "new"))
	assert.NoError(t, dbTask(t, l, "new").Err)
	assert.NoError(t, l.Status().Err)
	assert.EqualValues(t, 1, old.terms.Load())

	// Many names, of which some get a lock before the statement fails.
	left := dbFill(t, stranger, 60)
	const many = 150
	ctx, cancel := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	for i := range many {
		runs.Go(func() {
			l.Run(ctx, fmt.Sprintf("many %d", i), func(ctx context.Context) error { <-ctx.Done(); return nil })
		})
	}
	dbWithin(t, dbPatience, "what fits is led", func() bool { n := len(l.Leading()); return n >= 40 && n < many })
	dbWithin(t, dbPatience, "what is held is led", func() bool { return ours() == len(l.Leading()) })
	led := len(l.Leading())
	t.Logf("%d of %d names fit beside %d locks", led-2, many, left)
	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	dbWithin(t, dbPatience, "all lead", func() bool { return len(l.Leading()) == many+2 })
	assert.Equal(t, many+2, ours())
	cancel()
	runs.Wait()
	assert.Equal(t, 2, ours())
	assert.EqualValues(t, 1, old.terms.Load(), "old was led all the time")
	assert.Equal(t, generation, l.Status().Generation)

	dbFill(t, stranger, 0)
	start := time.Now()
	require.NoError(t, dbResign(l)) // with a full table too, in which nobody can be told
	assert.Less(t, time.Since(start), 2*dbSlack)
	assert.Zero(t, ours())
}

// TestPostgresManyNames: the costs of 5,000 names on one Leader, first waiting and then leading. (The race detector allows no
// more than 8,128 goroutines.)
func TestPostgresManyNames(t *testing.T) {
	const names = 5000
	url := pgtest.URL(t)
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	proxy := pgtest.NewProxy(t, dbHostPort(config))
	dbCheckLeaks(t, url)
	opts := dbTimings()
	opts.Retry, opts.Check = 500*time.Millisecond, 500*time.Millisecond
	l := dbLeader(t, leader.Postgres(proxy.URL(url)), opts)
	_, err = l.Holder(t.Context(), "x")
	require.NoError(t, err)
	keys := make([]int64, names)
	for i := range keys {
		keys[i] = leader.Key(l.Status().Namespace, fmt.Sprint("name ", i))
	}
	stranger := pgtest.Connect(t, url)
	took := func(sql string, args ...any) time.Duration {
		start := time.Now()
		_, err := stranger.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
		return time.Since(start)
	}
	const take = "SELECT k, pg_try_advisory_lock(k) FROM unnest($1::bigint[]) k"
	t.Logf("a stranger takes %d locks in one statement in %v", names, took(take, keys))

	heap := func() (bytes uint64) {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	heap0, goroutines0 := heap(), runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	var led atomic.Int64
	for i := range names {
		runs.Go(func() {
			l.Run(ctx, fmt.Sprint("name ", i), func(ctx context.Context) error {
				led.Add(1)
				<-ctx.Done()
				return nil
			})
		})
	}
	dbWithin(t, dbPatience, "all wait", func() bool { return len(l.Tasks()) == names })
	dbProved(t, l)
	costs := func(what string) {
		ours := runtime.NumGoroutine() - goroutines0 - names
		t.Logf("%s: %d heap bytes a name, %d goroutines beside the callers", what, (int64(heap())-int64(heap0))/names, ours)
		assert.LessOrEqual(t, ours, 5, "no goroutine of the library's per name")
	}
	costs("waiting")
	window := func(what string, perSecond float64) {
		const d = 3 * time.Second
		before := proxy.Count('E')
		dbHolds(t, d, func() bool { return l.Status().Connected })
		n := proxy.Count('E') - before
		t.Logf("%s: %d statements in %v", what, n, d)
		assert.LessOrEqual(t, float64(n), 1.3*perSecond*d.Seconds()+1, what)
		assert.Positive(t, n, what)
	}
	window("waiting", 4)
	assert.Zero(t, led.Load())
	_, err = stranger.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	freed := time.Now()
	dbWithin(t, dbPatience, "all lead", func() bool { return led.Load() == names })
	t.Logf("all %d lead %v after they were free; Retry %v, stretched to 20 times what the last try took", names, time.Since(freed), opts.Retry)
	dbProved(t, l)
	costs("leading")
	window("leading", 2)
	t.Logf("one try for %d names that are held takes %v, counting %d locks %v", names, took(take, keys), names,
		took("SELECT count(*) FROM pg_locks l WHERE l.locktype='advisory' AND l.objsubid=1 AND l.mode='ExclusiveLock' AND l.granted AND l.pid=$1", int32(l.Status().SessionPID)))
	assert.Zero(t, l.Status().Losses)
	before, start := proxy.Count('E'), time.Now()
	cancel()
	runs.Wait()
	t.Logf("all given back in %v and %d statements", time.Since(start), proxy.Count('E')-before)
	assert.Zero(t, dbLocks(t, stranger))
}

// TestPostgresSideEffects: nothing that waits for a name shows in the rest of the database (golang-migrate/migrate#960,
// flyway/flyway#1654).
func TestPostgresSideEffects(t *testing.T) {
	url := pgtest.URL(t)
	dbCheckLeaks(t, url)
	conn, worker := pgtest.Connect(t, url), pgtest.Connect(t, url)
	_, err := conn.Exec(t.Context(), "CREATE TABLE big AS SELECT g AS n FROM generate_series(1, 50000) g")
	require.NoError(t, err)
	opts := dbTimings()
	opts.Retry, opts.Check = 50*time.Millisecond, 50*time.Millisecond
	for range 4 {
		l := dbLeader(t, leader.Postgres(url), opts)
		dbStart(t, l, "a")
		dbStart(t, l, "b")
		dbConnected(t, l)
	}
	size := func() int { t.Helper(); return dbQuery[int](t, conn, "SELECT pg_relation_size('big')") }
	full := size()
	ctx, cancel := context.WithCancel(context.Background())
	done, ended := make(chan error, 1), make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		for _, sql := range []string{"CREATE INDEX CONCURRENTLY ON big (n)", "DELETE FROM big WHERE n > 25000", "VACUUM big"} {
			start := time.Now()
			if _, err := worker.Exec(ctx, sql); err != nil {
				done <- fmt.Errorf("%s: %w", sql, err)
				return
			}
			t.Logf("%s: %v", sql, time.Since(start))
		}
		done <- nil
	}()
	// A statement that is caught in the act has a snapshot. One that has it for a second holds others up, and so does a session
	// that is idle: at two looks since the same time, or the snapshot could be that of the statement that came in between.
	const sample = `SELECT pid, coalesce(state, ''), state_change, backend_xmin IS NOT NULL, coalesce(wait_event_type = 'Lock', false),
		clock_timestamp() - query_start > interval '1 second'
		FROM pg_stat_activity WHERE application_name LIKE 'leader/%' AND datname = current_database()`
	var samples int
	idle := make(map[uint32]time.Time) // with a snapshot, since when
	dbHolds(t, 3*time.Second, func() bool {
		samples++
		rows, err := conn.Query(t.Context(), sample)
		require.NoError(t, err)
		var pid uint32
		var state string
		var since time.Time
		var snapshot, blocked, long bool
		sessions := 0
		_, err = pgx.ForEachRow(rows, []any{&pid, &state, &since, &snapshot, &blocked, &long}, func() error {
			sessions++
			assert.False(t, strings.HasPrefix(state, "idle in transaction"), state)
			assert.False(t, blocked, "it waits for a lock")
			switch {
			case !snapshot:
			case state != "idle":
				assert.False(t, long, "a statement that takes long holds a snapshot")
			default:
				assert.False(t, idle[pid].Equal(since), "a session without a statement holds a snapshot")
				idle[pid] = since
			}
			return nil
		})
		require.NoError(t, err)
		return sessions == 4 && !t.Failed()
	})
	t.Logf("%d samples", samples)
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(dbPatience):
		t.Fatal("it is blocked")
	}
	assert.LessOrEqual(t, size(), full*6/10, "VACUUM could give the space of what was deleted back")
	assert.Equal(t, 2, dbLocks(t, conn), "one leads each name, and nobody waits for a lock")
}
