// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// deadRow leaves a row of "x" whose holder did not say that its term had ended.
func (st *fakeStore) deadRow() {
	st.set(func() { st.terms[Key("test", "x")] = termRow{name: "x", term: 5, node: "dead", taken: time.Now()} })
}

// The delay after a death runs from the grant of the lock: what the bump takes is part of it.
func TestLoopTakeoverDelayCountsFromTheGrant(t *testing.T) {
	synctest.Test(t, testLoopTakeoverDelayCountsFromTheGrant)
}

func testLoopTakeoverDelayCountsFromTheGrant(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{Terms: true, TakeoverDelay: 8 * time.Second})
	st.deadRow()
	st.set(func() { st.termTime = 3 * time.Second })
	j := &job{}
	granted := time.Now()
	goRun(t.Context(), l, "x", j.task)
	synctest.Wait()
	require.NotNil(t, st.holder("x"))
	time.Sleep(4 * time.Second)
	row := st.row("x")
	assert.Greater(t, row.term, Term(5), "the term begins before the delay")
	assert.Equal(t, EndDied, row.ended)
	time.Sleep(10 * time.Second)
	require.Equal(t, 1, j.count())
	assert.Equal(t, 8*time.Second, j.run(0).began.Sub(granted))
	assert.Equal(t, row.term, j.term(0))
	st.set(func() { st.termTime = 0 })
}

// Who leaves during the delay leaves the wait to the next one, in this process or another.
func TestLoopTakeoverDelayIsInherited(t *testing.T) {
	synctest.Test(t, testLoopTakeoverDelayIsInherited)
}

func testLoopTakeoverDelayIsInherited(t *testing.T) {
	st := newFakeStore()
	opts := Options{Terms: true, TakeoverDelay: 8 * time.Second}
	a, _ := st.leader(t, opts)
	b, _ := st.leader(t, opts)
	st.deadRow()
	j := &job{}
	for i, l := range []*Leader{a, a, b} {
		ctx, cancel := context.WithCancel(t.Context())
		c := goRun(ctx, l, "x", j.task)
		time.Sleep(7 * time.Second)
		require.NotNil(t, st.holder("x"))
		left := time.Now()
		if i < 2 {
			cancel()
		} else {
			require.NoError(t, l.Resign(t.Context()))
		}
		<-c.done
		cancel()
		assert.Less(t, time.Since(left), 100*time.Millisecond)
		assert.Nil(t, st.holder("x"))
		time.Sleep(time.Second)
		assert.True(t, st.row("x").released.IsZero())
		assert.Zero(t, j.count())
	}
	began := time.Now()
	goRun(t.Context(), a, "x", j.task)
	time.Sleep(20 * time.Second)
	require.Equal(t, 1, j.count())
	assert.Equal(t, 8*time.Second, j.run(0).began.Sub(began))
}

// After a loss of its own, whose task has returned, a process has nothing to wait for, even if it could not say so.
func TestLoopTakeoverDelayNotAfterOwnLoss(t *testing.T) {
	synctest.Test(t, testLoopTakeoverDelayNotAfterOwnLoss)
}

func testLoopTakeoverDelayNotAfterOwnLoss(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{Terms: true, TakeoverDelay: time.Hour})
	j := &job{drain: time.Second}
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Second)
	b.session().terminate()
	time.Sleep(5 * time.Second)
	require.Equal(t, 2, j.count())
	assert.Equal(t, EndLost, st.row("x").ended)
	st.set(func() { st.termErr = errFakeSoft })
	b.session().terminate()
	time.Sleep(5 * time.Second)
	assert.True(t, st.row("x").released.IsZero(), "the end of the term must be unmarked here")
	st.set(func() { st.termErr = nil })
	time.Sleep(10 * time.Second)
	assert.Equal(t, 3, j.count())
	assert.Zero(t, j.overlapped())
}

// A term that is lost is marked when its task has returned, not before.
func TestLoopTermsEndOfALoss(t *testing.T) { synctest.Test(t, testLoopTermsEndOfALoss) }

func testLoopTermsEndOfALoss(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{Terms: true})
	j := &job{drain: 4 * time.Second}
	ctx, cancel := context.WithCancel(t.Context())
	c := goRun(ctx, l, "x", j.task)
	time.Sleep(time.Second)
	b.session().terminate()
	synctest.Wait()
	cancel()
	time.Sleep(3 * time.Second)
	assert.True(t, st.row("x").released.IsZero(), "its task still runs")
	<-c.done
	time.Sleep(time.Second)
	row := st.row("x")
	assert.Equal(t, j.term(0), row.term)
	assert.Equal(t, EndLost, row.ended)
	assert.Equal(t, j.run(0).ended, row.released)
}

// However a task leaves its goroutine, its term has ended with an error, and its lock is free.
func TestLoopTermsEndOfAGoexit(t *testing.T) { synctest.Test(t, testLoopTermsEndOfAGoexit) }

func testLoopTermsEndOfAGoexit(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{Terms: true})
	c := goRun(t.Context(), l, "goexit", func(context.Context) error { runtime.Goexit(); return nil })
	<-c.done
	require.Panics(t, func() { _ = l.Run(t.Context(), "panic", func(context.Context) error { panic("on purpose") }) })
	ran, err := l.Try(t.Context(), "error", func(context.Context) error { return errFakeSoft })
	assert.True(t, ran)
	require.ErrorIs(t, err, errFakeSoft)
	for _, name := range []string{"goexit", "panic", "error"} {
		row := st.row(name)
		assert.Equal(t, EndError, row.ended, name)
		assert.False(t, row.released.IsZero(), name)
		assert.Nil(t, st.holder(name), name)
	}
}

// A mark that arrives when the next term has begun changes nothing.
func TestLoopTermsMarkAfterTheNextTerm(t *testing.T) {
	synctest.Test(t, testLoopTermsMarkAfterTheNextTerm)
}

func testLoopTermsMarkAfterTheNextTerm(t *testing.T) {
	st := newFakeStore()
	a, _ := st.leader(t, Options{Terms: true})
	b, _ := st.leader(t, Options{Terms: true})
	ja, jb := &job{}, &job{}
	ctx, cancel := context.WithCancel(t.Context())
	ca := goRun(ctx, a, "x", ja.task)
	synctest.Wait()
	goRun(t.Context(), b, "x", jb.task)
	time.Sleep(time.Second)
	st.set(func() { st.termTime = 5 * time.Second })
	cancel()
	synctest.Wait() // the mark is under way
	st.set(func() { st.termTime = 0 })
	began := time.Now()
	<-ca.done
	assert.Equal(t, markTimeout, time.Since(began))
	time.Sleep(2 * time.Second)
	require.Equal(t, 1, jb.count())
	row := st.row("x")
	assert.Equal(t, EndDied, row.ended, "it came before the mark")
	time.Sleep(10 * time.Second)
	assert.Equal(t, row, st.row("x"))
	assert.Equal(t, jb.term(0), row.term)
	assert.NoError(t, Confirm(jb.run(0).ctx))
}

// Where locks do not expire and a busy database has no queue, a takeover that waits can be left all the same.
func TestLoopTermsBusyDatabaseIsLeft(t *testing.T) { synctest.Test(t, testLoopTermsBusyDatabaseIsLeft) }

func testLoopTermsBusyDatabaseIsLeft(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{Terms: true, TakeoverDelay: 5 * time.Second})
	b.durable = true
	l.store = b.terms(l.opts, l.clock)
	st.deadRow()
	st.lockRow("somebody", true)
	ctx, cancel := context.WithCancel(t.Context())
	c := goRun(ctx, l, "x", obey)
	time.Sleep(7 * time.Second)
	assert.Equal(t, StateTakeover, taskOf(l.Status(), "x").State)
	began := time.Now()
	cancel()
	<-c.done
	assert.ErrorIs(t, c.err, context.Canceled)
	assert.Less(t, time.Since(began), 100*time.Millisecond)
	assert.Nil(t, st.holder("x"))
	st.lockRow("somebody", false)
	time.Sleep(10 * time.Second)
	row := st.row("x")
	assert.True(t, row.released.IsZero(), "the next one need not wait for the dead one's task")
	j := &job{}
	began = time.Now()
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(10 * time.Second)
	require.Equal(t, 1, j.count())
	assert.Equal(t, 5*time.Second, j.run(0).began.Sub(began))
	assert.Greater(t, j.term(0), row.term)
	st.lockRow("somebody", true)
	c = goRun(t.Context(), l, "y", obey)
	time.Sleep(3 * time.Second)
	began = time.Now()
	require.NoError(t, l.Resign(t.Context()))
	<-c.done
	assert.Less(t, time.Since(began), 3*time.Second)
	assert.Zero(t, st.held())
	assert.Equal(t, EndResigned, st.row("x").ended)
}
