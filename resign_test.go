// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestResignBeforeTheFirstRun(t *testing.T) { synctest.Test(t, testResignBeforeTheFirstRun) }

func testResignBeforeTheFirstRun(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	events := l.Watch(t.Context())
	for range 3 {
		require.NoError(t, l.Resign(doneContext()), "there is nothing to wait for")
	}
	_, open := <-events
	assert.False(t, open)
	_, open = <-l.Watch(t.Context())
	assert.False(t, open)
	bad := func(context.Context) error { t.Error("it ran"); return nil }
	assert.Equal(t, ErrResigned, l.Run(t.Context(), "x", bad))
	ran, err := l.Try(t.Context(), "x", bad)
	assert.False(t, ran)
	assert.Equal(t, ErrResigned, err)
	_, err = l.Holder(t.Context(), "x")
	assert.Equal(t, ErrResigned, err)
	assert.Zero(t, b.dialed())
	assert.True(t, l.Status().Resigned)
}

func TestResignTwiceAtOnce(t *testing.T) { synctest.Test(t, testResignTwiceAtOnce) }

func testResignTwiceAtOnce(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	b.lag = 10 * time.Millisecond
	j := &job{drain: time.Second}
	for i := range 50 {
		goRun(t.Context(), l, fmt.Sprint(i), j.task)
	}
	time.Sleep(time.Minute + time.Second)
	events := l.Watch(t.Context())
	errs := make(chan error, 10)
	began := time.Now()
	for range 10 {
		go func() { errs <- l.Resign(t.Context()) }()
	}
	for range 10 {
		require.NoError(t, <-errs)
	}
	assert.LessOrEqual(t, time.Since(began), time.Second+4*b.lag)
	assert.Zero(t, st.held())
	assert.LessOrEqual(t, b.count(kindUnlock), 2, "one for the first to return, one for the rest")
	assert.LessOrEqual(t, b.count(kindTell), 2)
	how, _ := b.session().end()
	assert.Equal(t, "closed", how)
	n := len(kinds(events))
	assert.Equal(t, 101, n, "stopping and released, and the end of the session")
	_, open := <-events
	assert.False(t, open)
}

func TestResignIsBoundedByItsContext(t *testing.T) { synctest.Test(t, testResignIsBoundedByItsContext) }

func testResignIsBoundedByItsContext(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	stuck := &job{hold: make(chan struct{})}
	goRun(t.Context(), l, "b", stuck.task)
	goRun(t.Context(), l, "a", stuck.task)
	goRun(t.Context(), l, "fine", obey)
	synctest.Wait()
	events := l.Watch(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	began := time.Now()
	err := l.Resign(ctx)
	assert.Equal(t, 2*time.Second, time.Since(began))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.EqualError(t, err, `leader: resign: tasks still running: "a", "b": context deadline exceeded`)
	proofs := b.count(kindProve)
	time.Sleep(time.Hour)
	assert.Equal(t, 2, st.held(), "their locks stay held")
	assert.InDelta(t, 1800, b.count(kindProve)-proofs, 2, "and proved")
	require.NoError(t, Confirm(stuck.run(0).ctx))
	close(stuck.hold)
	synctest.Wait()
	assert.Zero(t, st.held())
	kinds(events)
	_, open := <-events
	assert.False(t, open, "the watchers are let go although no Resign waits any more")
	require.NoError(t, l.Resign(t.Context()))
}

func TestResignDuringAHungDial(t *testing.T) { synctest.Test(t, testResignDuringAHungDial) }

func testResignDuringAHungDial(t *testing.T) {
	st := newFakeStore()
	for _, deaf := range []chan struct{}{nil, make(chan struct{})} {
		l, b := st.leader(t, Options{})
		b.dialHang, b.dialDeaf = deaf == nil, deaf
		events := l.Watch(t.Context())
		c := goRun(t.Context(), l, "x", obey)
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, l.Resign(t.Context()))
		assert.LessOrEqual(t, time.Since(began), time.Second)
		synctest.Wait()
		assert.True(t, c.returned())
		assert.Equal(t, ErrResigned, c.err)
		assert.Empty(t, kinds(events), "that we gave a dial up is not news")
		if deaf != nil { // what it opens after all, it closes itself
			close(deaf)
			synctest.Wait()
			how, _ := b.session().end()
			assert.Equal(t, "closed", how)
		}
	}
}

func TestResignInABlackHole(t *testing.T) { synctest.Test(t, testResignInABlackHole) }

func testResignInABlackHole(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	c := goRun(t.Context(), l, "x", obey)
	time.Sleep(time.Minute + time.Second)
	b.session().cut(true, true)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	began := time.Now()
	require.ErrorIs(t, l.Resign(ctx), context.DeadlineExceeded)
	assert.Equal(t, 2*time.Second, time.Since(began))
	require.NoError(t, l.Resign(t.Context()))
	assert.LessOrEqual(t, time.Since(began), 6*time.Second+500*time.Millisecond, "a lease, and the close")
	synctest.Wait()
	assert.True(t, c.returned())
	assert.Equal(t, ErrResigned, c.err)
}

func TestResignDoesNotWaitForAHungStatement(t *testing.T) {
	synctest.Test(t, testResignDoesNotWaitForAHungStatement)
}

// Nothing is held, and the only statement that is under way gets no answer.
func testResignDoesNotWaitForAHungStatement(t *testing.T) {
	st := newFakeStore()
	for _, durable := range []bool{false, true} {
		l, b := st.leader(t, Options{})
		b.durable = durable
		b.fault(kindHolders, fakeFault{hang: true})
		errs := make(chan error, 1)
		go func() {
			_, err := l.Holder(t.Context(), "x")
			errs <- err
		}()
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, l.Resign(t.Context()))
		assert.LessOrEqual(t, time.Since(began), 2*time.Second)
		assert.Equal(t, ErrResigned, <-errs)
		assert.Equal(t, 1, b.dialed())
	}
}

func TestResignFromInsideATask(t *testing.T) { synctest.Test(t, testResignFromInsideATask) }

func testResignFromInsideATask(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	events := l.Watch(t.Context())
	other := &job{drain: 3 * time.Second}
	goRun(t.Context(), l, "other", other.task)
	synctest.Wait()
	var took time.Duration
	began := time.Now()
	err := l.Run(t.Context(), "x", func(ctx context.Context) error {
		assert.NoError(t, l.Resign(ctx))
		took = time.Since(began)
		assert.Equal(t, ErrResigned, context.Cause(ctx))
		assert.NotNil(t, st.holder("x"), "its own lock goes when it returns")
		assert.Nil(t, st.holder("other"))
		time.Sleep(time.Second)
		return nil
	})
	assert.Equal(t, ErrResigned, err)
	assert.Equal(t, 3*time.Second, took, "it waits for the other task although its own context has ended")
	assert.Equal(t, 4*time.Second, time.Since(began))
	synctest.Wait()
	assert.Zero(t, st.held())
	kinds(events)
	_, open := <-events
	assert.False(t, open)
}

func TestResignOutlivesItsTask(t *testing.T) { synctest.Test(t, testResignOutlivesItsTask) }

// A goroutine of a task calls Resign, and the task does not wait for it: the call is not from inside any more, but it
// waits for the others all the same.
func testResignOutlivesItsTask(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	other := &job{drain: 3 * time.Second}
	goRun(t.Context(), l, "other", other.task)
	synctest.Wait()
	began, resigned := time.Now(), make(chan error, 1)
	c := goRun(t.Context(), l, "x", func(ctx context.Context) error {
		go func() { resigned <- l.Resign(ctx) }()
		<-ctx.Done()
		synctest.Wait() // the call waits by now
		return nil
	})
	<-c.done
	assert.Equal(t, ErrResigned, c.err)
	assert.Zero(t, time.Since(began))
	require.NoError(t, <-resigned)
	assert.Equal(t, 3*time.Second, time.Since(began))
	assert.False(t, other.run(0).ended.IsZero())
	assert.Zero(t, st.held())
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Zero(t, l.inside, "counted off once: others would wait too long otherwise")
}

func TestResignFromInsideIsBounded(t *testing.T) { synctest.Test(t, testResignFromInsideIsBounded) }

func testResignFromInsideIsBounded(t *testing.T) {
	for name, bound := range map[string]func(l *Leader, st *fakeStore, resign func(context.Context)){
		"by the deadline": func(l *Leader, _ *fakeStore, resign func(context.Context)) {
			_ = l.Run(t.Context(), "x", func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				resign(ctx)
				return nil
			})
		},
		"by the caller's context": func(l *Leader, _ *fakeStore, resign func(context.Context)) {
			outer, cancel := context.WithCancel(t.Context())
			time.AfterFunc(2*time.Second, cancel)
			_ = l.Run(outer, "x", func(ctx context.Context) error {
				return l.Run(ctx, "y", func(ctx context.Context) error {
					resign(ctx)
					return nil
				})
			})
		},
	} {
		st := newFakeStore()
		l, _ := st.leader(t, Options{})
		stuck := &job{hold: make(chan struct{})}
		goRun(t.Context(), l, "stuck", stuck.task)
		synctest.Wait()
		began := time.Now()
		bound(l, st, func(ctx context.Context) {
			assert.ErrorContains(t, l.Resign(ctx), `tasks still running: "stuck": `, name)
		})
		assert.Equal(t, 2*time.Second, time.Since(began), name)
		close(stuck.hold)
		synctest.Wait()
	}
}

func TestResignFromTwoTasksAtOnce(t *testing.T) { synctest.Test(t, testResignFromTwoTasksAtOnce) }

func testResignFromTwoTasksAtOnce(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	resign := func(ctx context.Context) error {
		<-ctx.Done()
		assert.NoError(t, l.Resign(ctx))
		return nil
	}
	calls := []*call{goRun(t.Context(), l, "a", resign), goRun(t.Context(), l, "b", resign)}
	calls = append(calls, goRun(t.Context(), l, "c", func(ctx context.Context) error {
		assert.NoError(t, l.Resign(ctx))
		return nil
	}))
	for _, c := range calls {
		<-c.done
		assert.Equal(t, ErrResigned, c.err)
	}
	synctest.Wait()
	assert.Zero(t, st.held())
}

// A Resign from outside waits for the tasks that call Resign, too: main must not exit before their locks are free.
func TestResignFromOutsideWaitsForThoseInside(t *testing.T) {
	synctest.Test(t, testResignFromOutsideWaitsForThoseInside)
}

func testResignFromOutsideWaitsForThoseInside(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	slow := &job{drain: 2 * time.Second}
	goRun(t.Context(), l, "slow", slow.task)
	synctest.Wait()
	goRun(t.Context(), l, "x", func(ctx context.Context) error {
		assert.NoError(t, l.Resign(ctx))
		time.Sleep(3 * time.Second)
		return nil
	})
	synctest.Wait()
	began := time.Now()
	require.NoError(t, l.Resign(t.Context()))
	assert.Equal(t, 5*time.Second, time.Since(began))
	assert.Zero(t, st.held())
}

func TestResignTellsAndTheNextLeads(t *testing.T) { synctest.Test(t, testResignTellsAndTheNextLeads) }

func testResignTellsAndTheNextLeads(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	next, _ := st.leader(t, Options{})
	var jobs []*job
	for i := range 20 {
		j := &job{drain: time.Duration(i) * time.Second}
		jobs = append(jobs, j)
		goRun(t.Context(), l, fmt.Sprint(i), j.task)
		synctest.Wait()
		goRun(t.Context(), next, fmt.Sprint(i), j.task)
	}
	time.Sleep(time.Minute)
	require.NoError(t, l.Resign(t.Context()))
	time.Sleep(herdGap)
	synctest.Wait()
	for _, j := range jobs {
		require.Equal(t, 2, j.count())
		assert.Zero(t, j.overlapped())
		assert.LessOrEqual(t, j.run(1).began.Sub(j.run(0).ended), herdGap)
	}
}
