// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cause returns why ctx has ended, asked in a way of its own: nil while it goes on.
var causes = map[string]func(ctx context.Context) error{
	"Cause": context.Cause,
	"Err": func(ctx context.Context) error {
		if ctx.Err() == nil {
			return nil
		}
		return context.Cause(ctx)
	},
	"Done": func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
			return nil
		}
	},
	"child": func(ctx context.Context) error {
		child, cancel := context.WithCancel(ctx)
		defer cancel()
		synctest.Wait()
		return context.Cause(child)
	},
}

func TestLoopJoin(t *testing.T) {
	for name, cause := range causes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { joins(t, cause) })
		})
	}
}

func joins(t *testing.T, cause func(context.Context) error) {
	t.Helper()
	st := newFakeStore()
	l, b := st.leader(t, Options{Terms: true})
	none, ok := l.Join(t.Context(), "x")
	require.False(t, ok)
	require.NoError(t, none.Err())
	require.Error(t, Confirm(&none))
	j := &job{}
	goRun(t.Context(), l, "x", j.task)
	synctest.Wait()
	type key struct{}
	parent, end := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	defer end()
	work, ok := l.Join(parent, "x")
	require.True(t, ok)
	require.NoError(t, cause(&work))
	assert.Equal(t, "value", work.Value(key{}))
	require.NoError(t, Confirm(&work))
	term, _ := TermOf(&work)
	assert.Equal(t, j.term(0), term)
	b.session().terminate()
	synctest.Wait()
	require.ErrorIs(t, cause(&work), ErrLost)
	assert.ErrorIs(t, cause(&work), errFakeEnded, "the reason")
	time.Sleep(10 * time.Second)
	require.True(t, l.IsLeading("x"), "again")
	assert.ErrorIs(t, cause(&work), ErrLost)
	assert.ErrorIs(t, Confirm(&work), ErrLost)
	assert.ErrorIs(t, FenceSQL(&work, nil), ErrFenced)
	assert.Equal(t, context.Canceled, work.Err())
	assert.Equal(t, "value", work.Value(key{}))
	next, ok := l.Join(parent, "x")
	require.True(t, ok)
	term, _ = TermOf(&next)
	assert.Equal(t, j.term(1), term)
	end()
	assert.Equal(t, context.Canceled, cause(&next))
}

// Work goes on under a task that is stopping, which may wait for it; nothing new is let in.
func TestLoopJoinWhileStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newFakeStore().leader(t, Options{Terms: true})
		j := &job{drain: time.Second}
		goRun(t.Context(), l, "x", j.task)
		synctest.Wait()
		work, ok := l.Join(t.Context(), "x")
		require.True(t, ok)
		resigned := make(chan error, 1)
		go func() { resigned <- l.Resign(&work) }() // from outside of the task: it waits for it
		synctest.Wait()
		assert.Empty(t, resigned)
		assert.NoError(t, work.Err())
		assert.NoError(t, Confirm(&work))
		_, ok = l.Join(t.Context(), "x")
		assert.False(t, ok)
		<-work.Done()
		assert.ErrorIs(t, context.Cause(&work), ErrLost)
		assert.ErrorIs(t, context.Cause(&work), ErrResigned)
		<-resigned
	})
}

// What knows first that a lease has ended is the clock, before the loop has had its turn.
func TestLoopJoinEndsWithTheLease(t *testing.T) {
	for name, cause := range map[string]func(context.Context) error{"Cause": causes["Cause"], "Err": causes["Err"]} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, _ := newFakeStore().leader(t, Options{})
				goRun(t.Context(), l, "x", obey)
				synctest.Wait()
				work, ok := l.Join(t.Context(), "x")
				require.True(t, ok)
				l.clock.skew.Store(int64(time.Hour))
				require.ErrorIs(t, cause(&work), ErrLost)
				l.clock.skew.Store(0)
				require.ErrorIs(t, cause(&work), ErrLost, "it stays ended")
			})
		})
	}
}

// Whoever asks for Done of a short request leaves nothing with a long leadership.
func TestLoopJoinLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newFakeStore().leader(t, Options{})
		goRun(t.Context(), l, "x", obey)
		synctest.Wait()
		ctx, end := context.WithCancel(t.Context())
		work, ok := l.Join(ctx, "x")
		require.True(t, ok)
		_ = work.Done()
		end()
		synctest.Wait()
		assert.False(t, work.leave(), "still registered")
	})
}

// Between the return of a task and the end of its context there is a moment in which the context has no cause.
func TestLoopJoinRightAfterTheReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newFakeStore().leader(t, Options{})
		goRun(t.Context(), l, "x", obey)
		synctest.Wait()
		work, ok := l.Join(t.Context(), "x")
		require.True(t, ok)
		work.grant.over.Store(&errReturned)
		require.Error(t, work.Err())
		assert.EqualError(t, context.Cause(&work), "leader: leadership lost: the task has returned")
	})
}

// fmt reads all fields of what has no String method, also of contexts that stand behind another, and races with their change.
func TestLoopJoinIsPrinted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newFakeStore().leader(t, Options{})
		none, _ := l.Join(t.Context(), "x")
		assert.Equal(t, "leader.Joined", fmt.Sprint(&none))
		goRun(t.Context(), l, "x", obey)
		synctest.Wait()
		work, ok := l.Join(t.Context(), "x")
		require.True(t, ok)
		var asks sync.WaitGroup
		asks.Go(func() { work.Done() })
		assert.Equal(t, `leader.Joined("x").WithCancel`, func() string {
			child, cancel := context.WithCancel(&work)
			defer cancel()
			return fmt.Sprint(child)
		}())
		asks.Wait()
	})
}
