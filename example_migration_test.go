// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// The code of docs/migration.md, which TestDocsSnippetsAreCode looks for.

// underOldLock runs work while a session of its own has the lock that the old version takes, too.
func underOldLock(ctx context.Context, url string, key int64, work func(context.Context) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return leader.StepDown(err, 5*time.Second) // Run contends again
	}
	defer func() { // this frees the old lock
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(bye)
	}()
	for got := false; !got; {
		err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", key).Scan(&got)
		if err != nil {
			return leader.StepDown(err, 5*time.Second)
		}
		if !got { // a process of the old version works
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
			}
		}
	}
	working, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() { // until the session has ended, or the work
		defer close(watched)
		_, err := conn.WaitForNotification(working)
		cancel(err)
	}()
	err = work(working)
	lost := context.Cause(working) // nil as long as both locks are held
	cancel(nil)
	<-watched
	if lost != nil && ctx.Err() == nil {
		return leader.StepDown(lost, 5*time.Second)
	}
	return err
}

func _(ctx context.Context, lead *leader.Leader, url string, sendInvoices func(context.Context) error) error {
	err := lead.Run(ctx, "invoices", func(ctx context.Context) error {
		return underOldLock(ctx, url, 4711, sendInvoices)
	})
	return err
}

func _(ctx context.Context, pool *pgxpool.Pool, podName string, reconcile func(context.Context) error) error {
	lead, err := leader.New(leader.PostgresPool(pool), leader.Options{
		Node:           podName,          // Identity
		Namespace:      "controllers",    // of the Lease object
		SessionTimeout: 15 * time.Second, // LeaseDuration
		Lease:          10 * time.Second, // RenewDeadline
		Check:          2 * time.Second,  // RetryPeriod, of the leader
		Retry:          2 * time.Second,  // RetryPeriod, of the others
	})
	if err != nil {
		return err
	}
	// OnStartedLeading is the task; OnStoppedLeading is what comes after its loop.
	return lead.Run(ctx, "reconciler", func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := reconcile(ctx); err != nil {
				return leader.StepDown(err, time.Minute)
			}
		}
		return nil
	})
}

func _(ctx context.Context, pool *pgxpool.Pool, lead *leader.Leader, slot time.Time, report func(context.Context) error) error {
	_, err := lead.Try(ctx, "report.nightly", func(ctx context.Context) error {
		var done bool // by a node whose clock is ahead of ours
		err := pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM job_runs WHERE name = $1 AND slot = $2)", "report.nightly", slot).Scan(&done)
		if err != nil || done {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, 14*time.Minute)
		defer cancel()
		if err := report(ctx); err != nil {
			return err // the next slot tries again
		}
		_, err = pool.Exec(ctx, "INSERT INTO job_runs (name, slot) VALUES ($1, $2)", "report.nightly", slot)
		return err
	})
	return err
}

// TestPostgresMigrationBesideTheOldVersion: a process of the old version keeps the new one out and is kept out by it, and the work
// ends with the session that has the old lock, and goes on later.
func TestPostgresMigrationBesideTheOldVersion(t *testing.T) {
	url := pgtest.URL(t)
	old := pgtest.Connect(t, url)
	tryOld := func() (got bool) {
		require.NoError(t, old.QueryRow(t.Context(), "SELECT pg_try_advisory_lock(4711)").Scan(&got))
		return got
	}
	require.True(t, tryOld())
	lead, err := leader.New(leader.Postgres(url), leader.Options{Namespace: "billing"})
	require.NoError(t, err)
	works, ended := make(chan struct{}, 2), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		ended <- lead.Run(ctx, "invoices", func(ctx context.Context) error {
			return underOldLock(ctx, url, 4711, func(ctx context.Context) error {
				works <- struct{}{}
				<-ctx.Done()
				return nil
			})
		})
	}()
	dbWithin(t, dbPatience, "it leads", func() bool { return len(lead.Leading()) == 1 })
	var waits bool
	dbWithin(t, dbPatience, "it waits for the old version", func() bool {
		require.NoError(t, old.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid <> pg_backend_pid()
			AND query = 'SELECT pg_try_advisory_lock($1)' AND state = 'idle' AND datname = current_database())`).Scan(&waits))
		return waits
	})
	assert.Empty(t, works)
	_, err = old.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	<-works
	assert.False(t, tryOld())

	pgtest.Exec(t, url, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = 0 AND objid = 4711`)
	dbWithin(t, dbPatience, "the old version works", tryOld)
	assert.Empty(t, works)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.NoError(t, lead.Resign(context.Background()))
}
