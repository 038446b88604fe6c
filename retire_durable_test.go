// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// besideAStuckTask returns a Leader whose locks do not expire and whose task "stuck" goes on until free is called.
func besideAStuckTask(t *testing.T) (st *fakeStore, l *Leader, b *fakeBackend, free func()) {
	t.Helper()
	st = newFakeStore()
	l, b = st.leader(t, Options{})
	b.durable = true
	stuck := &job{hold: make(chan struct{})}
	goRun(t.Context(), l, "stuck", stuck.task)
	return st, l, b, func() { close(stuck.hold) }
}

// Where locks do not expire, a session that is given up keeps those of tasks that still run, and no other: nobody else frees
// them. Here a task returns while the proof is under way by which the session is given up.
func TestRetireFreesWhatWasBeingReleased(t *testing.T) {
	synctest.Test(t, testRetireFreesWhatWasBeingReleased)
}

func testRetireFreesWhatWasBeingReleased(t *testing.T) {
	st, l, b, free := besideAStuckTask(t)
	end := make(chan struct{})
	c := goRun(t.Context(), l, "x", func(context.Context) error { <-end; return nil })
	synctest.Wait()
	require.True(t, l.IsLeading("x"))
	b.fault(kindProve, fakeFault{delay: 3 * time.Second, err: &sessionError{err: errors.New("the database file was replaced")}})
	time.Sleep(3 * time.Second)
	close(end)
	time.Sleep(time.Minute)
	require.True(t, c.returned())
	require.NoError(t, c.err)
	require.Equal(t, 1, l.Status().Retired)
	assert.Nil(t, st.holder("x"), "nobody runs x")
	assert.NotNil(t, st.holder("stuck"))
	free()
}

// And here a try is under way, whose answer comes to a session that has been given up because a release took too long.
func TestRetireFreesWhatATryTookTooLate(t *testing.T) {
	synctest.Test(t, testRetireFreesWhatATryTookTooLate)
}

func testRetireFreesWhatATryTookTooLate(t *testing.T) {
	_, l, b, free := besideAStuckTask(t)
	end := make(chan struct{})
	go func() {
		defer func() { assert.NotNil(t, recover()) }()
		_ = l.Run(t.Context(), "p", func(context.Context) error { <-end; panic("p") })
	}()
	time.Sleep(time.Second)
	require.True(t, l.IsLeading("p"))
	b.fault(kindTry, fakeFault{delay: 3 * time.Second})
	j := &job{}
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(100 * time.Millisecond)
	close(end)
	time.Sleep(time.Minute)
	require.Equal(t, 1, l.Status().Retired)
	assert.True(t, l.IsLeading("x"))
	assert.Equal(t, 1, j.count())
	free()
}

// What a retired session hears is nothing to keep: the next session asks for all.
func TestRetiredSessionHearsNothing(t *testing.T) { synctest.Test(t, testRetiredSessionHearsNothing) }

func testRetiredSessionHearsNothing(t *testing.T) {
	st := newFakeStore()
	a, _ := st.leader(t, Options{})
	goRun(t.Context(), a, "x", obey)
	synctest.Wait()
	l, b := st.leader(t, Options{SessionTimeout: time.Hour})
	stuck := &job{hold: make(chan struct{})}
	goRun(t.Context(), l, "stuck", stuck.task)
	goRun(t.Context(), l, "x", obey)
	time.Sleep(time.Second)
	old := b.session()
	b.fault(kindProve, fakeFault{err: &sessionError{err: errors.New("changed")}})
	st.set(func() { b.dialHang = true })
	time.Sleep(10 * time.Second)
	require.Equal(t, 1, l.Status().Retired)
	for range 1000 {
		st.set(func() { old.news = append(old.news, Key("test", "x")); old.changeLocked() })
		time.Sleep(time.Millisecond)
	}
	l.mu.Lock()
	assert.Empty(t, l.heard)
	l.mu.Unlock()
	st.set(func() { b.dialHang = false })
	close(stuck.hold)
}

// The process stands still while the loop works off its answers. What Confirm said of the lease stays true: the answer of a proof
// that is in the same batch revives nothing.
func TestLoopAnswersInABatchReviveNothing(t *testing.T) {
	synctest.Test(t, testLoopAnswersInABatchReviveNothing)
}

func testLoopAnswersInABatchReviveNothing(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	b.lag = 10 * time.Millisecond
	var runs atomic.Int64
	c := goRun(t.Context(), l, "x", func(ctx context.Context) error {
		if runs.Add(1) > 1 {
			<-ctx.Done()
			return nil
		}
		time.Sleep(1995 * time.Millisecond)
		said := make(chan error, 1)
		l.mu.Lock()
		l.posted = append(l.posted, func() { // before the answer of the proof that is under way
			jump(l, 5*time.Second)
			said <- Confirm(ctx)
		})
		l.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		first := <-said
		assert.ErrorIs(t, first, ErrLost)
		assert.ErrorIs(t, Confirm(ctx), ErrLost)
		assert.ErrorIs(t, context.Cause(ctx), ErrLost)
		return first
	})
	time.Sleep(time.Minute)
	assert.False(t, c.returned(), "only the lock was lost")
	assert.EqualValues(t, 2, runs.Load())
}

// panicking is a caller's context of which a method panics, once.
type panicking struct {
	context.Context //nolint:containedctx // it is one
	now             bool
}

func (p *panicking) Err() error {
	if p.now {
		p.now = false
		panic("Err")
	}
	return p.Context.Err()
}

// A panic in a method of the caller's context unwinds through Run like one of the task, and leaves no lock behind.
func TestRunUnwindsAPanicOfItsContext(t *testing.T) {
	synctest.Test(t, testRunUnwindsAPanicOfItsContext)
}

func testRunUnwindsAPanicOfItsContext(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	goRun(t.Context(), l, "other", obey)
	synctest.Wait()
	ctx := &panicking{Context: t.Context()}
	assert.Panics(t, func() { _ = l.Run(ctx, "x", func(context.Context) error { ctx.now = true; return nil }) })
	assert.Nil(t, st.holder("x"))
	assert.False(t, l.IsLeading("x"))
	assert.True(t, l.IsLeading("other"))
}
