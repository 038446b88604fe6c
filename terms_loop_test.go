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

// row returns what the store has of name.
func (st *fakeStore) row(name string) termRow {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.terms[Key("test", name)]
}

// lockRow has somebody lock the row of name, or let it go.
func (st *fakeStore) lockRow(name string, locked bool) {
	st.set(func() {
		if locked {
			st.rowLocks[Key("test", name)] = true
		} else {
			delete(st.rowLocks, Key("test", name))
		}
	})
}

func (j *job) term(i int) Term {
	term, _ := TermOf(j.run(i).ctx)
	return term
}

func TestLoopTermsRise(t *testing.T) { synctest.Test(t, testLoopTermsRise) }

func testLoopTermsRise(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{Terms: true, Addr: "here:80"})
	j := &job{}
	ctx, cancel := context.WithCancel(t.Context())
	c := goRun(ctx, l, "x", j.task)
	synctest.Wait()
	first := j.term(0)
	require.NotZero(t, first)
	assert.Equal(t, first, taskOf(l.Status(), "x").Term)
	b.session().terminate()
	time.Sleep(10 * time.Second)
	require.Equal(t, 2, j.count(), "a loss is told, and a new run begins (C06)")
	assert.ErrorIs(t, j.run(0).cause, ErrLost)
	assert.Greater(t, j.term(1), first)
	cancel()
	<-c.done
	row := st.row("x")
	assert.Equal(t, EndResigned, row.ended)
	assert.False(t, row.released.IsZero())
	other, _ := st.leader(t, Options{Terms: true})
	next := &job{}
	goRun(t.Context(), other, "x", next.task)
	time.Sleep(time.Second)
	assert.Greater(t, next.term(0), j.term(1))
	_, kept := TermOf(t.Context())
	assert.False(t, kept)
}

func TestLoopTermsEnds(t *testing.T) { synctest.Test(t, testLoopTermsEnds) }

func testLoopTermsEnds(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{Terms: true})
	for want, task := range map[EndReason]func(context.Context) error{
		EndReturned: func(context.Context) error { return nil },
		EndError:    func(context.Context) error { return errFakeSoft },
	} {
		_ = l.Run(t.Context(), "x", task)
		assert.Equal(t, want, st.row("x").ended)
		assert.False(t, st.row("x").released.IsZero())
	}
	func() {
		defer func() { _ = recover() }()
		_ = l.Run(t.Context(), "panic", func(context.Context) error { panic("on purpose") })
	}()
	assert.Equal(t, EndError, st.row("panic").ended)
	c := goRun(t.Context(), l, "resign", obey)
	synctest.Wait()
	require.NoError(t, l.Resign(t.Context()))
	<-c.done
	assert.Equal(t, EndResigned, st.row("resign").ended)
	assert.Zero(t, st.held())
}

func TestLoopTermsStuckRow(t *testing.T) { synctest.Test(t, testLoopTermsStuckRow) }

func testLoopTermsStuckRow(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{Terms: true})
	events := l.Watch(t.Context())
	require.NoError(t, l.Run(t.Context(), "stuck", func(context.Context) error { return nil }))
	st.lockRow("stuck", true)
	stuck, free := &job{}, &job{}
	goRun(t.Context(), l, "stuck", stuck.task)
	goRun(t.Context(), l, "free", free.task)
	synctest.Wait()
	assert.Equal(t, 1, free.count(), "another name is delayed")
	proofs := b.count(kindProve)
	time.Sleep(time.Minute)
	assert.GreaterOrEqual(t, b.count(kindProve)-proofs, 29, "proofs are delayed")
	assert.Zero(t, stuck.count())
	task := taskOf(l.Status(), "stuck")
	assert.Equal(t, StateTakeover, task.State)
	assert.Equal(t, Blocker{PID: 7, Application: "fake", Age: time.Minute}, task.Blocker)
	blocked := 0
	for len(events) > 0 {
		if e := <-events; e.Kind == Blocked {
			blocked++
			assert.Equal(t, "stuck", e.Name)
		}
	}
	assert.Equal(t, 1, blocked)
	st.lockRow("stuck", false)
	time.Sleep(100 * time.Millisecond)
	assert.Equal(t, 1, stuck.count())
}

func TestLoopTermsStuckRowIsLeft(t *testing.T) { synctest.Test(t, testLoopTermsStuckRowIsLeft) }

func testLoopTermsStuckRowIsLeft(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{Terms: true})
	for _, leave := range []func(context.CancelFunc){
		func(cancel context.CancelFunc) { cancel() },
		func(context.CancelFunc) { assert.NoError(t, l.Resign(t.Context())) },
	} {
		st.lockRow("x", true)
		ctx, cancel := context.WithCancel(t.Context())
		c := goRun(ctx, l, "x", obey)
		time.Sleep(3 * time.Second)
		require.NotNil(t, st.holder("x"))
		began := time.Now()
		leave(cancel)
		<-c.done
		require.Error(t, c.err)
		assert.Less(t, time.Since(began), time.Second)
		assert.Nil(t, st.holder("x"), "the lock is stuck")
		cancel()
	}
	st.lockRow("x", false)
	assert.Zero(t, st.row("x"), "nothing was begun")
}

func TestLoopTermsStoreFails(t *testing.T) { synctest.Test(t, testLoopTermsStoreFails) }

func testLoopTermsStoreFails(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{Terms: true})
	events := l.Watch(t.Context())
	st.set(func() { st.termErr = errFakeSoft })
	j := &job{}
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Minute)
	assert.Zero(t, j.count())
	assert.Less(t, b.count(kindTry), 62, "it is a hot loop")
	assert.Greater(t, b.count(kindTry), 5)
	assert.Nil(t, st.holder("x"), "a lock is held that is of no use")
	assert.ErrorIs(t, taskOf(l.Status(), "x").Err, errFakeSoft)
	refused := 0
	for len(events) > 0 {
		if e := <-events; e.Kind == TermsRefused {
			refused++
		}
	}
	assert.Equal(t, 1, refused)
	ran, err := l.Try(t.Context(), "y", obey)
	assert.False(t, ran)
	assert.ErrorIs(t, err, errFakeSoft)
	assert.Nil(t, st.holder("y"))
	st.set(func() { st.termErr = nil })
	time.Sleep(10 * time.Second)
	assert.Equal(t, 1, j.count())
}

func TestLoopTermsLateMark(t *testing.T) { synctest.Test(t, testLoopTermsLateMark) }

func testLoopTermsLateMark(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{Terms: true})
	release := make(chan struct{})
	c := goRun(t.Context(), l, "x", func(context.Context) error {
		<-release
		return nil
	})
	synctest.Wait()
	st.set(func() { st.termTime = time.Minute })
	began := time.Now()
	close(release)
	<-c.done
	assert.Equal(t, markTimeout, time.Since(began), "a release waits for its mark, not for long")
	assert.Nil(t, st.holder("x"))
	st.set(func() { st.termTime = 0 })
}

func TestLoopTermsTakenAway(t *testing.T) { synctest.Test(t, testLoopTermsTakenAway) }

// testLoopTermsTakenAway is C04: somebody else's row is not ours, whatever its name.
func testLoopTermsTakenAway(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{Terms: true})
	j, other := &job{drain: time.Second}, &job{}
	goRun(t.Context(), l, "x", j.task)
	goRun(t.Context(), l, "other", other.task)
	synctest.Wait()
	key := Key("test", "x")
	high := j.term(0) + 1e12
	st.set(func() { st.terms[key] = termRow{name: "x", term: high, node: "evil"} })
	time.Sleep(2100 * time.Millisecond)
	require.Error(t, Confirm(j.run(0).ctx))
	assert.Equal(t, high, st.row("x").term, "the row of somebody else was changed")
	time.Sleep(3 * time.Second)
	require.Equal(t, 2, j.count())
	assert.Greater(t, j.term(1), high)
	assert.Zero(t, j.overlapped())
	assert.Equal(t, 1, other.count(), "another name was touched")
	st.set(func() { delete(st.terms, key) })
	time.Sleep(5 * time.Second)
	require.Equal(t, 3, j.count())
	assert.Greater(t, j.term(2), j.term(1), "a term that this process has seen was used again")
}

func TestLoopTermsLateBump(t *testing.T) { synctest.Test(t, testLoopTermsLateBump) }

// testLoopTermsLateBump has a former holder's beginning of a term arrive when another leads.
func testLoopTermsLateBump(t *testing.T) {
	st := newFakeStore()
	a, ab := st.leader(t, Options{Terms: true})
	b, _ := st.leader(t, Options{Terms: true})
	st.set(func() { st.termTime = 5 * time.Second })
	ja, jb := &job{}, &job{}
	ctx, cancel := context.WithCancel(t.Context())
	ca := goRun(ctx, a, "x", ja.task)
	synctest.Wait() // a has the lock, and its bump is under way
	st.set(func() { st.termTime = 0 })
	ab.session().terminate()
	cancel()
	<-ca.done
	goRun(t.Context(), b, "x", jb.task)
	time.Sleep(2 * time.Second)
	require.Equal(t, 1, jb.count())
	time.Sleep(10 * time.Second)
	assert.Zero(t, ja.count(), "a task began under a lock that was lost")
	assert.Equal(t, jb.term(0), st.row("x").term, "the late bump has changed the row")
	assert.Equal(t, 1, jb.count())
	assert.NoError(t, Confirm(jb.run(0).ctx))
}

func TestLoopTakeoverDelay(t *testing.T) { synctest.Test(t, testLoopTakeoverDelay) }

func testLoopTakeoverDelay(t *testing.T) {
	st := newFakeStore()
	opts := Options{Terms: true, TakeoverDelay: 8 * time.Second}
	a, ab := st.leader(t, opts)
	b, _ := st.leader(t, opts)
	ja, jb := &job{drain: 2 * time.Second}, &job{}
	ctx, cancel := context.WithCancel(t.Context())
	ca := goRun(ctx, a, "x", ja.task)
	synctest.Wait()
	require.Equal(t, 1, ja.count(), "a name that nobody has led waits")
	events := b.Watch(t.Context())
	goRun(t.Context(), b, "x", jb.task)
	time.Sleep(10 * time.Second)
	freed := time.Now()
	ab.session().terminate() // a's task goes on for 2 s
	cancel()
	time.Sleep(5 * time.Second)
	assert.Equal(t, StateTakeover, taskOf(b.Status(), "x").State)
	assert.ErrorContains(t, taskOf(b.Status(), "x").Err, "waits for another 8s")
	assert.Equal(t, 1, tally(events)[string(Delayed)+" x"])
	<-ca.done
	time.Sleep(10 * time.Second)
	require.Equal(t, 1, jb.count())
	assert.GreaterOrEqual(t, jb.run(0).began.Sub(freed), 8*time.Second)
	assert.Less(t, jb.run(0).began.Sub(freed), 10*time.Second)
	assert.Equal(t, EndDied, st.row("x").ended)
	jc := &job{}
	c, _ := st.leader(t, opts)
	goRun(t.Context(), c, "x", jc.task)
	synctest.Wait()
	began := time.Now()
	require.NoError(t, b.Resign(t.Context()))
	time.Sleep(time.Second)
	require.Equal(t, 1, jc.count(), "a clean release is followed at once")
	assert.Less(t, jc.run(0).began.Sub(began), 100*time.Millisecond)
}

func TestLoopTermsOfDurableLocks(t *testing.T) { synctest.Test(t, testLoopTermsOfDurableLocks) }

func testLoopTermsOfDurableLocks(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{Terms: true})
	b.durable = true
	l.store = b.terms(l.opts, l.clock)
	events := l.Watch(t.Context())
	j := &job{}
	st.lockRow("somebody", true)
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Minute)
	assert.Zero(t, j.count())
	assert.ErrorIs(t, taskOf(l.Status(), "x").Err, errFakeBusy)
	st.lockRow("somebody", false)
	time.Sleep(5 * time.Second)
	require.Equal(t, 1, j.count())
	blocked := 0
	for len(events) > 0 {
		if e := <-events; e.Kind == Blocked {
			blocked++
		}
	}
	assert.Equal(t, 1, blocked)
	st.set(func() { delete(st.terms, Key("test", "x")) })
	time.Sleep(5 * time.Second)
	assert.Equal(t, 2, j.count())
	assert.Greater(t, j.term(1), j.term(0))
}

func TestLoopObserve(t *testing.T) { synctest.Test(t, testLoopObserve) }

func testLoopObserve(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{Terms: true, Node: "a", Addr: "a:1"})
	watcher, wb := st.leader(t, Options{Terms: true, Node: "w"})
	var seen atomic.Pointer[View]
	var views atomic.Int32
	holder := func() Holder {
		holders := seen.Load().Holders
		if len(holders) != 1 {
			return Holder{}
		}
		return holders[0]
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- watcher.Observe(ctx, func(v View) { seen.Store(&v); views.Add(1) }, "x")
	}()
	synctest.Wait()
	assert.Equal(t, Holder{Name: "x"}, holder())
	run, stop := context.WithCancel(t.Context())
	c := goRun(run, l, "x", obey)
	time.Sleep(3 * time.Second)
	h := holder()
	assert.True(t, h.Held && h.Current)
	assert.Equal(t, "a:1", h.Addr)
	assert.Equal(t, st.row("x").term, h.Term)
	stop()
	<-c.done
	time.Sleep(3 * time.Second)
	h = holder()
	assert.False(t, h.Held || h.Current)
	assert.Empty(t, h.Node+h.Addr, "the last holder is shown as if it led")
	assert.Equal(t, EndResigned, h.Ended.Reason)
	assert.EqualValues(t, 3, views.Load(), "only changes are told")
	goRun(t.Context(), l, "x", obey)
	time.Sleep(3 * time.Second)
	require.True(t, holder().Current)
	st.set(func() { wb.dark = true })
	wb.session().cut(true, true)
	time.Sleep(30 * time.Second)
	assert.Equal(t, Holder{Name: "x"}, holder(), "what is not known is shown")
	assert.Error(t, seen.Load().Err)
	cancel()
	assert.True(t, errors.Is(<-ended, context.Canceled))
	_, err := l.Holders(t.Context())
	assert.NoError(t, err)
}
