// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/internal/seam"
)

// seamLead has l lead "x", and returns the context of each task.
func seamLead(t *testing.T, backend leader.Backend) (*leader.Leader, chan context.Context) {
	t.Helper()
	l, err := leader.New(backend, leader.Options{Check: 50 * time.Millisecond})
	require.NoError(t, err)
	tasks, ended := make(chan context.Context, 8), make(chan error, 1)
	go func() { // until Resign
		ended <- l.Run(context.Background(), "x", func(ctx context.Context) error {
			tasks <- ctx
			<-ctx.Done()
			return nil
		})
	}()
	t.Cleanup(func() {
		assert.NoError(t, l.Resign(context.Background()))
		assert.ErrorIs(t, <-ended, leader.ErrResigned)
	})
	return l, tasks
}

func seamNext[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case got := <-c:
		return got
	case <-time.After(20 * time.Second):
		require.Fail(t, "too late")
		panic("unreachable")
	}
}

// testSeamKill ends several sessions, also before there is one and while statements are under way.
func testSeamKill(t *testing.T, backend leader.Backend) {
	t.Helper()
	l, tasks := seamLead(t, backend)
	for range 5 {
		ctx := seamNext(t, tasks)
		losses := l.Status().Losses
		watched, unwatch := context.WithCancel(t.Context())
		events := l.Watch(watched)
		require.True(t, seam.Kill(l))
		seamNext(t, ctx.Done())
		require.ErrorIs(t, context.Cause(ctx), leader.ErrLost)
		require.Greater(t, l.Status().Losses, losses)
		for _, kind := range []leader.EventKind{leader.Disconnected, leader.Lost} {
			e := seamNext(t, events)
			assert.Equal(t, kind, e.Kind)
			assert.Equal(t, leader.ReasonConnection, e.Reason)
		}
		unwatch()
	}
	seamNext(t, tasks)
}

func TestSeamKillSQLite(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "app.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	testSeamKill(t, leader.SQLite(db))
}

func TestSeamKillPostgres(t *testing.T) { testSeamKill(t, leader.Postgres(pgtest.URL(t))) }

func TestSeamKillWithoutSession(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	l, err := leader.New(leader.SQLite(db), leader.Options{})
	require.NoError(t, err)
	assert.False(t, seam.Kill(l))
}

func TestSeamSkewPostgres(t *testing.T) {
	l, tasks := seamLead(t, leader.Postgres(pgtest.URL(t)))
	ctx := seamNext(t, tasks)
	require.NoError(t, leader.Confirm(ctx))
	seam.Skew(l, time.Hour)
	require.ErrorIs(t, leader.Confirm(ctx), leader.ErrLost)
	seamNext(t, ctx.Done())
	require.NoError(t, leader.Confirm(seamNext(t, tasks)))
}
