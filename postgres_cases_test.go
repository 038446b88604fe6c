// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresTermsRowOfSomebodyElse is C04: who was displaced in the table is told at the next Check, and neither proofs nor the
// end write into the row of the other one.
func TestPostgresTermsRowOfSomebodyElse(t *testing.T) {
	url := pgtest.URL(t)
	conn := pgtest.Connect(t, url)
	l := termLeader(t, url, termOptions("a"))
	const row = "SELECT leader_terms::text FROM leader_terms WHERE name = 'x'"
	var theirs string
	var at time.Time
	ran, err := l.Try(t.Context(), "x", func(ctx context.Context) error {
		pgtest.Exec(t, url, "UPDATE leader_terms SET term = term + 1, node = 'thief', addr = 'thief:80' WHERE name = 'x'")
		at = time.Now()
		theirs = dbQuery[string](t, conn, row)
		select {
		case <-ctx.Done():
		case <-time.After(dbPatience):
			assert.Fail(t, "the loss was not noticed")
		}
		assert.False(t, l.IsLeading("x"))
		return nil
	})
	t.Logf("told after %v", time.Since(at))
	require.True(t, ran)
	require.ErrorIs(t, err, leader.ErrLost)
	assert.Less(t, time.Since(at), termOptions("").Check*13/10+dbSlack)
	require.NoError(t, l.Resign(t.Context()))
	assert.Equal(t, theirs, dbQuery[string](t, conn, row))
}

// TestPostgresEndsMeet is C21: the end of a session, two resignations and the end of a context meet at any offset, from the first
// dial on. Each call returns, no task runs afterwards, and nothing is left at the server.
func TestPostgresEndsMeet(t *testing.T) {
	const rounds = 100
	url := pgtest.URL(t)
	dbCheckLeaks(t, url)
	admin := pgtest.Connect(t, url)
	ends := make(map[string]int)
	var begun atomic.Int64
	for round := range rounds {
		l, err := leader.New(leader.Postgres(url), dbTimings())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running atomic.Int64
		var inner atomic.Bool // Resign is called from inside as well
		inner.Store(round%4 == 1)
		task := func(ctx context.Context) error {
			begun.Add(1)
			running.Add(1)
			defer running.Add(-1)
			if inner.Load() {
				_ = l.Resign(ctx)
			}
			<-ctx.Done()
			return nil
		}
		errs := make(chan error, 3)
		var calls sync.WaitGroup
		for _, name := range []string{"x", "x", "y"} {
			calls.Go(func() { errs <- l.Run(ctx, name, task) })
		}
		if round%2 == 0 { // else they may meet the first connection
			dbLeads(t, l, "x", "y")
		}
		after := func(do func()) {
			pause := rand.N(100 * time.Millisecond)
			calls.Go(func() { <-time.After(pause); do() })
		}
		resign := func() {
			bounded, done := context.WithTimeout(context.Background(), dbPatience)
			defer done()
			assert.NoError(t, l.Resign(bounded))
			assert.Zero(t, running.Load(), "a task runs after Resign")
			assert.ErrorIs(t, l.Run(context.Background(), "z", task), leader.ErrResigned)
		}
		after(resign)
		after(resign)
		after(cancel)
		after(func() {
			_, err := admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE application_name LIKE 'leader/%' AND datname = current_database()`)
			assert.NoError(t, err)
		})
		returned := make(chan struct{})
		go func() { calls.Wait(); close(returned) }()
		select {
		case <-returned:
		case <-time.After(dbPatience):
			require.FailNow(t, "a call hangs")
		}
		cancel()
		for range 3 {
			err := <-errs
			switch {
			case errors.Is(err, leader.ErrResigned):
				ends["resigned"]++
			case errors.Is(err, context.Canceled):
				ends["cancelled"]++
			default:
				assert.NoError(t, err)
				assert.Fail(t, "Run returned without a reason")
			}
		}
		assert.Zero(t, running.Load())
	}
	t.Logf("%d tasks begun; %v", begun.Load(), ends)
	assert.GreaterOrEqual(t, begun.Load(), int64(rounds), "or there was nothing to end")
	assert.Positive(t, ends["resigned"])
	assert.Positive(t, ends["cancelled"])
	dbWithin(t, dbPatience, "nothing is held", func() bool { return dbLocks(t, admin) == 0 })
}
