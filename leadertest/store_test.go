// SPDX-License-Identifier: MIT

package leadertest_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/leadertest"
)

// member is a process of a fleet: a Leader whose task "x" runs until it is told to stop.
type member struct {
	*leader.Leader

	tasks chan context.Context
	stops chan time.Time
}

func join(t *testing.T, backend leader.Backend, opts leader.Options) *member {
	t.Helper()
	l, err := leader.New(backend, opts)
	require.NoError(t, err)
	m := &member{l, make(chan context.Context, 8), make(chan time.Time, 8)}
	ended := make(chan error, 1)
	go func() { // until Resign
		ended <- l.Run(context.Background(), "x", func(ctx context.Context) error {
			m.tasks <- ctx
			<-ctx.Done()
			m.stops <- time.Now()
			return nil
		})
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, l.Resign(ctx))
		assert.ErrorIs(t, <-ended, leader.ErrResigned)
	})
	return m
}

// next waits for the next task of one of members: who has lost the lock contends, too.
func next(t *testing.T, members ...*member) context.Context {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, m := range members {
			select {
			case task := <-m.tasks:
				return task
			default:
			}
		}
	}
	require.Fail(t, "nobody leads")
	panic("unreachable")
}

// stopped waits until a task of m has stopped.
func stopped(t *testing.T, m *member) time.Time {
	t.Helper()
	select {
	case at := <-m.stops:
		return at
	case <-time.After(2 * time.Minute):
		require.Fail(t, "the task has not been told to stop")
		panic("unreachable")
	}
}

// pair has a lead, and b wait.
func pair(t *testing.T, opts leader.Options) (store *leadertest.Store, a, b *member, task context.Context) {
	t.Helper()
	store = leadertest.NewStore()
	opts.Node = "a"
	a = join(t, store.Backend(), opts)
	task = next(t, a)
	opts.Node = "b"
	b = join(t, store.Backend(), opts)
	time.Sleep(3 * time.Second)
	return store, a, b, task
}

var key = leader.Key(leadertest.Namespace, "x")

func TestStoreEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, a, b, task := pair(t, leader.Options{})
		require.Equal(t, "a", store.Holder(key).Node())
		require.Equal(t, []int64{key}, store.Session("a").Keys())
		require.Len(t, store.Sessions(), 2)
		s := store.Session("a")
		began := time.Now()
		s.End()
		assert.False(t, s.Alive())
		assert.Zero(t, stopped(t, a).Sub(began), "it is told at once")
		require.ErrorIs(t, context.Cause(task), leader.ErrLost)
		next(t, a, b)
		assert.LessOrEqual(t, time.Since(began), 1200*time.Millisecond, "the next Retry")
	})
}

// TestStoreCut is a partition: the old task is told after Lease, the new one starts after SessionTimeout.
func TestStoreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, a, b, _ := pair(t, leader.Options{})
		began := time.Now()
		store.Session("a").Cut()
		after := stopped(t, a).Sub(began)
		assert.InDelta(t, 5, after.Seconds(), 1.1, "Lease after the last proof")
		next(t, a, b)
		assert.InDelta(t, 9.6, time.Since(began).Seconds(), 1.7, "SessionTimeout after it, and a Retry")
	})
}

func TestStoreCutAndMend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, a, b, task := pair(t, leader.Options{})
		for range 3 {
			store.Session("a").Cut()
			time.Sleep(3 * time.Second)
			store.Session("a").Mend()
			time.Sleep(3 * time.Second)
		}
		require.NoError(t, leader.Confirm(task))
		assert.Empty(t, a.stops)
		assert.Empty(t, b.tasks)
	})
}

// TestStoreFreeze: what the store has frozen it does not free either.
func TestStoreFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, a, b, _ := pair(t, leader.Options{})
		s := store.Session("a")
		s.Freeze()
		stopped(t, a)
		time.Sleep(time.Hour)
		assert.Empty(t, b.tasks)
		assert.True(t, s.Alive())
		s.Thaw()
		assert.False(t, s.Alive(), "now it hears that the Leader has closed its side")
		next(t, a, b)
	})
}

func TestStoreTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, a, b, _ := pair(t, leader.Options{})
		began := time.Now()
		store.Session("a").Take(key)
		assert.Nil(t, store.Holder(key))
		assert.LessOrEqual(t, stopped(t, a).Sub(began), 2*time.Second, "the next Check")
		next(t, a, b)
		assert.True(t, store.Session("a").Alive())
	})
}

func TestStoreDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, a, b, task := pair(t, leader.Options{})
		store.Session("a").Delay(2 * time.Second)
		time.Sleep(time.Minute)
		require.NoError(t, leader.Confirm(task), "each proof is answered before the lease of the last one ends")
		store.Session("a").Delay(8 * time.Second)
		stopped(t, a)
		next(t, a, b)
	})
}

func TestStoreRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leadertest.NewStore()
		refused := errors.New("no")
		store.Refuse(refused)
		a := join(t, store.Backend(), leader.Options{})
		time.Sleep(time.Minute)
		require.ErrorIs(t, a.Status().Err, refused)
		store.Refuse(nil)
		next(t, a)
	})
}

func TestStoreTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, a, b, task := pair(t, leader.Options{Terms: true, Addr: "here", TakeoverDelay: time.Minute})
		term, ok := leader.TermOf(task)
		require.True(t, ok)
		record, ok := store.Term(key)
		require.True(t, ok)
		assert.Equal(t, int64(term), record.Number)
		holders, err := b.Holders(t.Context())
		require.NoError(t, err)
		require.Len(t, holders, 1)
		assert.True(t, holders[0].Current)
		assert.Equal(t, []any{"x", "a", "here", term}, []any{holders[0].Name, holders[0].Node, holders[0].Addr, holders[0].Term})

		store.Session("a").Cut() // it cannot say that its term has ended before the next one begins
		task = next(t, a, b)
		later, ok := leader.TermOf(task)
		require.True(t, ok)
		assert.Greater(t, later, term)
		assert.Len(t, a.stops, 1)
	})
}

// TestStoreTermsCleanRelease: a term that was marked as ended is followed at once, whatever TakeoverDelay is.
func TestStoreTermsCleanRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b, _ := pair(t, leader.Options{Terms: true, TakeoverDelay: time.Minute})
		began := time.Now()
		require.NoError(t, a.Resign(t.Context()))
		next(t, b)
		assert.Less(t, time.Since(began), time.Second)
		h, err := b.Holder(t.Context(), "x")
		require.NoError(t, err)
		assert.Equal(t, leader.EndResigned, h.Ended.Reason)
	})
}

func TestStoreRefuseTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leadertest.NewStore()
		refused := errors.New("no")
		store.RefuseTerms(refused)
		a := join(t, store.Backend(), leader.Options{Terms: true})
		time.Sleep(time.Minute)
		assert.Empty(t, a.tasks)
		require.ErrorIs(t, a.Status().Tasks[0].Err, refused)
		store.RefuseTerms(nil)
		next(t, a)
	})
}

// testKill kills several sessions of a Leader.
func testKill(t *testing.T, backend leader.Backend) {
	t.Helper()
	m := join(t, backend, leader.Options{Check: 50 * time.Millisecond})
	for range 3 {
		task := next(t, m)
		leadertest.Kill(t, m.Leader)
		require.ErrorIs(t, context.Cause(task), leader.ErrLost, "as soon as Kill returns")
		require.Error(t, leader.Confirm(task))
		stopped(t, m)
	}
	next(t, m)
}

func TestKillStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { testKill(t, leadertest.NewStore().Backend()) })
}

func TestKillSQLite(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "app.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	testKill(t, leader.SQLite(db))
}

func TestKillPostgres(t *testing.T) { testKill(t, leader.Postgres(pgtest.URL(t))) }
