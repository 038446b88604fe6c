// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresShortTasks: a task that returns at once is run once by each Run and, with Try, by one process only
// (go-co-op/gocron#841, sidekiq/sidekiq#6804).
func TestPostgresShortTasks(t *testing.T) {
	url := pgtest.URL(t)
	dbCheckLeaks(t, url)
	var fleet []*leader.Leader
	for range 3 {
		l := dbLeader(t, leader.Postgres(url), dbTimings())
		_, err := l.Holder(t.Context(), "job") // connected
		require.NoError(t, err)
		fleet = append(fleet, l)
	}
	var ran, inside, overlaps atomic.Int64
	task := func(context.Context) error { //nolint:unparam // the type of a task
		if inside.Add(1) > 1 {
			overlaps.Add(1)
		}
		ran.Add(1)
		inside.Add(-1)
		return nil
	}
	var runs sync.WaitGroup
	start := time.Now()
	for _, l := range fleet {
		runs.Go(func() { assert.NoError(t, l.Run(t.Context(), "job", task)) })
	}
	runs.Wait()
	t.Logf("three Runs took %v", time.Since(start))
	assert.EqualValues(t, 3, ran.Load(), "each Run runs it once")
	assert.Zero(t, overlaps.Load())

	for round := range 20 {
		ran.Store(0)
		var refused atomic.Int64
		begin := make(chan struct{})
		for _, l := range fleet {
			runs.Go(func() {
				<-begin
				did, err := l.Try(t.Context(), fmt.Sprint("tick ", round), func(ctx context.Context) error {
					ran.Add(1)
					for refused.Load() < 2 && ctx.Err() == nil { // it lasts until all have asked
						time.Sleep(time.Millisecond)
					}
					return nil
				})
				assert.NoError(t, err)
				if !did {
					refused.Add(1)
				}
			})
		}
		close(begin)
		runs.Wait()
		assert.EqualValues(t, 1, ran.Load())
		assert.EqualValues(t, 2, refused.Load())
	}
}

// TestPostgresTaskEndsTouchNoOtherName: whatever way a task ends, its name is free at once, and the other names of the session
// do not notice (kubernetes-client/python#2075, riverqueue/river#1161).
func TestPostgresTaskEndsTouchNoOtherName(t *testing.T) {
	url := pgtest.URL(t)
	dbCheckLeaks(t, url)
	a, b := dbLeader(t, leader.Postgres(url), dbTimings()), dbLeader(t, leader.Postgres(url), dbTimings())
	others := []string{"o1", "o2", "o3", "o4", "o5"}
	var runs []*dbRun
	for _, name := range others {
		runs = append(runs, dbStart(t, a, name))
	}
	dbLeads(t, a, others...)
	session := a.Status().SessionPID
	errTask := errors.New("no more")
	for _, row := range []struct {
		what   string
		cancel bool
		end    func() error
		err    error
		panics any
	}{
		{what: "error", end: func() error { return errTask }, err: errTask},
		{what: "nil", end: func() error { return nil }},
		{what: "panic", end: func() error { panic("boom") }, panics: "boom"},
		{what: "Goexit", end: func() error { runtime.Goexit(); return nil }},
		{what: "panic after cancel", cancel: true, end: func() error { panic("late") }, panics: "late"},
		{what: "error after cancel", cancel: true, end: func() error { return errTask }, err: context.Canceled},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		end, done := make(chan struct{}), make(chan struct{})
		var err error
		var recovered any
		var unwound bool
		go func() {
			defer close(done)
			defer func() { recovered = recover() }()
			unwound = true
			err = a.Run(ctx, "x", func(ctx context.Context) error {
				<-end
				if row.cancel {
					<-ctx.Done()
				}
				return row.end()
			})
			unwound = false
		}()
		dbLeads(t, a, "x")
		second := dbStart(t, b, "x")
		dbConnected(t, b)
		if row.cancel {
			cancel()
		}
		close(end)
		start := time.Now()
		dbLeads(t, b, "x")
		t.Logf("%s: followed after %v", row.what, time.Since(start))
		assert.Less(t, time.Since(start), dbTimings().Retry*13/10+dbSlack, row.what)
		<-done
		cancel()
		assert.Equal(t, row.panics, recovered, row.what)
		assert.Equal(t, row.panics != nil || row.what == "Goexit", unwound, row.what)
		if row.err != nil {
			require.ErrorIs(t, err, row.err, row.what)
		} else {
			require.NoError(t, err, row.what)
		}
		second.stop()
		for i, name := range others {
			assert.True(t, a.IsLeading(name), "%s: %s", row.what, name)
			assert.EqualValues(t, 1, runs[i].terms.Load(), "%s: %s", row.what, name)
		}
		assert.NotContains(t, a.Tasks(), "x", row.what)
	}
	assert.Equal(t, session, a.Status().SessionPID)
	assert.Zero(t, a.Status().Losses+uint64(a.Status().Retired))
}

// TestPostgresCancelledStatementsLeaveNothingHalfHeld: somebody cancels our statements all the time, whichever they are. A session
// whose unlock failed is given up; what it held is led again, and nothing stays held that nobody leads.
func TestPostgresCancelledStatementsLeaveNothingHalfHeld(t *testing.T) {
	url := pgtest.URL(t)
	dbCheckLeaks(t, url)
	stranger, observer := pgtest.Connect(t, url), pgtest.Connect(t, url)
	opts := dbTimings()
	opts.Retry, opts.Check = 20*time.Millisecond, 20*time.Millisecond
	var inside [3]atomic.Int64
	var ran, overlaps atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	var fleet []*leader.Leader
	for range 2 {
		l := dbLeader(t, leader.Postgres(url), opts)
		fleet = append(fleet, l)
		for i := range inside {
			runs.Go(func() {
				for ctx.Err() == nil {
					l.Run(ctx, fmt.Sprint("job ", i), func(ctx context.Context) error {
						if inside[i].Add(1) > 1 {
							overlaps.Add(1)
						}
						ran.Add(1)
						select {
						case <-ctx.Done():
						case <-time.After(time.Millisecond):
						}
						inside[i].Add(-1)
						return nil
					})
				}
			})
		}
	}
	var cancels int
	dbHolds(t, 3*time.Second, func() bool {
		_, err := stranger.Exec(t.Context(), `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
			WHERE application_name LIKE 'leader/%' AND datname = current_database()`)
		require.NoError(t, err)
		cancels++
		return true
	})
	before := ran.Load()
	dbWithin(t, dbPatience, "it goes on", func() bool { return ran.Load() > before+20 })
	cancel()
	runs.Wait()
	t.Logf("%d rounds of cancels, %d tasks, %d sessions lost", cancels, ran.Load(), fleet[0].Status().Losses+fleet[1].Status().Losses)
	assert.Zero(t, overlaps.Load())
	dbWithin(t, dbSlack, "nothing is held", func() bool { return dbLocks(t, observer) == 0 })
}

// TestPostgresPoolOfOneConnection: the library takes no connection from the pool (n8n-io/n8n#23373, pressly/goose#483), and does
// not mind its end.
func TestPostgresPoolOfOneConnection(t *testing.T) {
	url := pgtest.URL(t)
	dbCheckLeaks(t, url)
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	busy, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	l := dbLeader(t, leader.PostgresPool(pool), dbTimings())
	const names = 50
	var progress [names]atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	for i := range names {
		runs.Go(func() {
			l.Run(ctx, fmt.Sprint("name ", i), func(ctx context.Context) error {
				var err error
				for err == nil {
					_, err = pool.Exec(ctx, "SELECT 1") // until the pool is closed
					progress[i].Add(1)
				}
				<-ctx.Done()
				return err
			})
		})
	}
	dbWithin(t, dbPatience, "all lead while the pool's only connection is taken", func() bool { return len(l.Leading()) == names })
	busy.Release()
	dbWithin(t, dbPatience, "all tasks progress", func() bool {
		for i := range progress {
			if progress[i].Load() < 3 {
				return false
			}
		}
		return true
	})
	conn := pgtest.Connect(t, url)
	assert.Equal(t, 1, dbQuery[int](t, conn, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'leader/%' AND datname = current_database()"))
	pool.Close()
	dbHolds(t, time.Second, func() bool { return len(l.Leading()) == names })
	dbKill(t, conn, l)
	dbWithin(t, dbPatience, "it notices", func() bool { return l.Status().Losses == 1 })
	dbWithin(t, dbPatience, "a new session needs no pool either", func() bool { return len(l.Leading()) == names })
	cancel()
	runs.Wait()
}

// TestPostgresStatusNeverContradictsTheContext: nobody who sees the context of a task ended sees it lead afterwards
// (rustfs/operator#194, hashicorp/vault#1625).
func TestPostgresStatusNeverContradictsTheContext(t *testing.T) {
	url := pgtest.URL(t)
	dbCheckLeaks(t, url)
	conn := pgtest.Connect(t, url)
	opts := dbTimings()
	opts.Check = 20 * time.Millisecond
	l := dbLeader(t, leader.Postgres(url), opts)
	// current is the context of the task that runs; a task lingers after its end, so that it can be looked at.
	var current atomic.Pointer[context.Context]
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	var terms atomic.Int64
	work.Go(func() {
		l.Run(ctx, "a", func(ctx context.Context) error {
			current.Store(&ctx)
			terms.Add(1)
			<-ctx.Done()
			time.Sleep(20 * time.Millisecond)
			current.Store(nil)
			return nil
		})
	})
	var looks atomic.Int64
	for range 2 {
		work.Go(func() {
			for ctx.Err() == nil {
				task := current.Load()
				if task == nil {
					runtime.Gosched()
					continue
				}
				ended, unconfirmed := (*task).Err() != nil, leader.Confirm(*task) != nil
				leads, leading, status := l.IsLeading("a"), slices.Contains(l.Leading(), "a"), l.Status()
				if task != current.Load() || len(status.Tasks) == 0 {
					continue
				}
				looks.Add(1)
				if (ended || unconfirmed) && (leads || leading || status.Tasks[0].State == leader.StateLeading) {
					assert.Fail(t, "contradiction", "context ended %t, not confirmed %t; IsLeading %t, Leading %t, %+v", ended, unconfirmed, leads, leading, status)
					return
				}
				if (*task).Err() != nil && ctx.Err() == nil {
					assert.ErrorIs(t, context.Cause(*task), leader.ErrLost)
				}
			}
		})
	}
	for i := range int64(12) {
		dbWithin(t, dbPatience, "leads", func() bool { return terms.Load() == i+1 && l.IsLeading("a") })
		dbProved(t, l)
		dbKill(t, conn, l)
	}
	cancel()
	work.Wait()
	t.Logf("%d looks at %d terms", looks.Load(), terms.Load())
}
