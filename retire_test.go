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

// A session that is given up on a link that works is held open and silent: closing it would free the lock beside a task
// that still runs.
func TestRetireHoldsTheLockUntilTheTaskReturns(t *testing.T) {
	synctest.Test(t, testRetireHoldsTheLockUntilTheTaskReturns)
}

func testRetireHoldsTheLockUntilTheTaskReturns(t *testing.T) {
	for name, give := range map[string]func(*fakeBackend, *Leader, *job){
		"failed release": func(b *fakeBackend, l *Leader, _ *job) {
			b.fault(kindUnlock, fakeFault{err: errFakeSoft})
			_ = l.Run(t.Context(), "other", func(context.Context) error { return nil })
		},
		"doubt": func(b *fakeBackend, _ *Leader, _ *job) {
			b.fault(kindProve, fakeFault{err: &sessionError{err: errFakeSoft}})
			time.Sleep(time.Second)
		},
		"suspend": func(_ *fakeBackend, l *Leader, j *job) {
			l.clock.skew.Add(int64(7 * time.Second))
			for j.run(0).cancelled.IsZero() {
				time.Sleep(100 * time.Millisecond)
			}
		},
	} {
		st := newFakeStore()
		l, b := st.leader(t, Options{})
		standby, _ := st.leader(t, Options{})
		j := &job{drain: 500 * time.Millisecond}
		goRun(t.Context(), l, "x", j.task)
		synctest.Wait()
		c := goRun(t.Context(), standby, "x", j.task)
		time.Sleep(time.Minute + time.Second)
		first := b.session()
		give(b, l, j)
		synctest.Wait()
		r := j.run(0)
		require.ErrorIs(t, r.cause, ErrLost, name)
		said := first.spoke()
		assert.True(t, first == st.holder("x"), name)
		assert.Equal(t, 1, l.Status().Retired, name)
		time.Sleep(time.Until(r.cancelled.Add(500*time.Millisecond - 1)))
		synctest.Wait()
		how, _ := first.end()
		assert.Empty(t, how, name)
		assert.Equal(t, said, first.spoke(), "%s: in silence", name)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		how, when := first.end()
		assert.Contains(t, []string{"closed", "killed"}, how, name)
		assert.Equal(t, j.run(0).ended, when, "%s: and closed at once", name)
		assert.Zero(t, l.Status().Retired, name)
		time.Sleep(time.Minute)
		assert.Equal(t, 2, j.count(), name)
		assert.Zero(t, j.overlapped(), name)
		assert.False(t, c.returned())
		require.NoError(t, standby.Resign(t.Context()))
	}
}

// A wall clock that is set forward frees no lock at the server, which counts the silence by a clock of its own:
//
//	here       given up ---- clock +1 h ------------------ task returns: closed
//	elsewhere                            tries, in vain                         leads
func TestRetireDoesNotBelieveTheWallClock(t *testing.T) {
	synctest.Test(t, testRetireDoesNotBelieveTheWallClock)
}

func testRetireDoesNotBelieveTheWallClock(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	standby, _ := st.leader(t, Options{})
	j := &job{drain: 3 * time.Second}
	goRun(t.Context(), l, "x", j.task)
	synctest.Wait()
	goRun(t.Context(), standby, "x", j.task)
	time.Sleep(time.Minute + time.Second)
	first := b.session()
	b.fault(kindProve, fakeFault{err: &sessionError{err: errFakeSoft}})
	time.Sleep(2 * time.Second)
	synctest.Wait()
	require.Equal(t, 1, l.Status().Retired)
	l.clock.skew.Add(int64(time.Hour))
	time.Sleep(time.Minute)
	synctest.Wait()
	_, when := first.end()
	assert.Equal(t, j.run(0).ended, when, "held until its task had returned")
	assert.Equal(t, 2, j.count())
	assert.Zero(t, j.overlapped())
}

// Only until the server has ended it for its silence: after that nothing is held any more.
func TestRetireEndsWithTheSessionTimeout(t *testing.T) {
	synctest.Test(t, testRetireEndsWithTheSessionTimeout)
}

func testRetireEndsWithTheSessionTimeout(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	j := &job{hold: make(chan struct{})}
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Minute + time.Second)
	first := b.session()
	first.cut(false, true) // the server hears us, and would hear a close
	time.Sleep(6 * time.Second)
	synctest.Wait()
	require.ErrorIs(t, j.run(0).cause, errLeaseEnd)
	st.mu.Lock()
	last := first.lastAt
	st.mu.Unlock()
	time.Sleep(time.Until(last.Add(10*time.Second - 1)))
	synctest.Wait()
	_, open := b.opened()
	assert.Equal(t, 1, open)
	time.Sleep(time.Second)
	synctest.Wait()
	_, when := first.end()
	assert.Equal(t, last.Add(10*time.Second), when)
	_, open = b.opened()
	assert.Zero(t, open)
	close(j.hold)
}

// Where locks do not expire, nobody else frees them: the session is held for as long as its task runs.
func TestRetireWithoutExpiryHoldsForAsLongAsTheTask(t *testing.T) {
	synctest.Test(t, testRetireWithoutExpiryHoldsForAsLongAsTheTask)
}

func testRetireWithoutExpiryHoldsForAsLongAsTheTask(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	b.durable = true
	j := &job{drain: time.Hour}
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Minute)
	_, ok := Deadline(j.run(0).ctx)
	assert.False(t, ok)
	l.clock.skew.Add(int64(24 * time.Hour))
	require.NoError(t, Confirm(j.run(0).ctx), "there is no lease")
	first := b.session()
	b.fault(kindUnlock, fakeFault{err: errFakeSoft})
	require.NoError(t, l.Run(t.Context(), "other", func(context.Context) error { return nil }))
	synctest.Wait()
	require.ErrorIs(t, j.run(0).cause, errFakeSoft)
	time.Sleep(time.Hour - 1)
	synctest.Wait()
	assert.True(t, first == st.holder("x"))
	time.Sleep(time.Minute)
	assert.Equal(t, 2, j.count())
	assert.Zero(t, j.overlapped())
	j.setDrain(0)
}

// A task that never returns keeps its own name from this process, not those of its neighbours: where locks do not expire,
// nobody else would give theirs back.
func TestRetireWithoutExpiryLetsTheOthersGo(t *testing.T) {
	synctest.Test(t, testRetireWithoutExpiryLetsTheOthersGo)
}

func testRetireWithoutExpiryLetsTheOthersGo(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	b.durable = true
	stuck, free := &job{hold: make(chan struct{})}, &job{drain: time.Second}
	goRun(t.Context(), l, "stuck", stuck.task)
	goRun(t.Context(), l, "free", free.task)
	time.Sleep(time.Minute)
	first := b.session()
	b.fault(kindProve, fakeFault{err: &sessionError{err: errFakeSoft}})
	time.Sleep(time.Hour)
	assert.Equal(t, 1, stuck.count())
	assert.True(t, first == st.holder("stuck"), "whose lock is held for as long as it takes")
	require.Equal(t, 2, free.count())
	assert.Zero(t, free.overlapped())
	assert.LessOrEqual(t, free.run(1).began.Sub(free.run(0).ended), 1200*time.Millisecond, "one Retry")
	close(stuck.hold)
	time.Sleep(2 * time.Second)
	assert.Equal(t, 2, stuck.count())
	assert.True(t, l.IsLeading("stuck"))
}

func TestRetireIsSkippedWhenTheServerEndedTheSession(t *testing.T) {
	synctest.Test(t, testRetireIsSkippedWhenTheServerEndedTheSession)
}

func testRetireIsSkippedWhenTheServerEndedTheSession(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	j := &job{drain: 10 * time.Second}
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Minute)
	first := b.session()
	first.terminate()
	synctest.Wait()
	st.mu.Lock()
	defer st.mu.Unlock()
	assert.True(t, first.closed)
	assert.Equal(t, time.Now(), first.closedAt)
}

// A retired session that the server ends after all is closed at once.
func TestRetireNoticesTheServersEnd(t *testing.T) { synctest.Test(t, testRetireNoticesTheServersEnd) }

func testRetireNoticesTheServersEnd(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	j := &job{drain: time.Minute}
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Minute + 500*time.Millisecond)
	l.clock.skew.Add(int64(7 * time.Second))
	time.Sleep(time.Second)
	synctest.Wait()
	require.Equal(t, 1, l.Status().Retired)
	b.session().terminate()
	synctest.Wait()
	assert.Zero(t, l.Status().Retired)
}

// A task that its caller has told to stop, and that does not, keeps its lock: it is proved for as long as it takes.
func TestRetireNeverForAnOverrunTask(t *testing.T) {
	synctest.Test(t, testRetireNeverForAnOverrunTask)
}

func testRetireNeverForAnOverrunTask(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	standby, _ := st.leader(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	j := &job{hold: make(chan struct{})}
	c := goRun(ctx, l, "x", j.task)
	synctest.Wait()
	goRun(t.Context(), standby, "x", j.task)
	events := l.Watch(t.Context())
	cancel()
	synctest.Wait()
	told := time.Now()
	assert.Equal(t, StateStopping, taskOf(l.Status(), "x").State)
	time.Sleep(10*time.Second - 1)
	synctest.Wait()
	assert.Equal(t, StateStopping, taskOf(l.Status(), "x").State)
	time.Sleep(time.Nanosecond)
	synctest.Wait()
	assert.Equal(t, TaskStatus{Name: "x", State: StateOverrun, Since: told}, taskOf(l.Status(), "x"))
	proofs := b.count(kindProve)
	time.Sleep(5 * time.Hour)
	assert.InDelta(t, 9000, b.count(kindProve)-proofs, 2)
	assert.True(t, b.session() == st.holder("x"))
	assert.Equal(t, []EventKind{Stopping, Overrun}, kinds(events), "reported once")
	assert.NoError(t, Confirm(j.run(0).ctx))
	assert.False(t, l.IsLeading("x"))
	close(j.hold)
	synctest.Wait()
	assert.Equal(t, context.Canceled, c.err)
	assert.Zero(t, j.overlapped())
	assert.Equal(t, 2, j.count())
	assert.Equal(t, []EventKind{Released}, kinds(events))
}

// A task that does not notice a loss blocks its name in this process, but not in others.
func TestRetireNeverStartsBesideAStuckTask(t *testing.T) {
	synctest.Test(t, testRetireNeverStartsBesideAStuckTask)
}

func testRetireNeverStartsBesideAStuckTask(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	j := &job{hold: make(chan struct{})}
	goRun(t.Context(), l, "x", j.task)
	beside := &job{}
	goRun(t.Context(), l, "beside", beside.task)
	time.Sleep(time.Minute)
	goRun(t.Context(), l, "x", j.task)
	events := l.Watch(t.Context())
	b.session().terminate()
	time.Sleep(time.Hour)
	assert.Equal(t, 1, j.count())
	assert.Nil(t, st.holder("x"), "and nothing contends for it")
	assert.Equal(t, 2, beside.count())
	assert.Equal(t, StateOverrun, taskOf(l.Status(), "x").State)
	assert.Equal(t, 1, count(kinds(events), Overrun))
	other, _ := st.leader(t, Options{})
	require.NoError(t, other.Run(t.Context(), "x", func(context.Context) error { return nil }))
	close(j.hold)
	synctest.Wait()
	assert.Equal(t, 2, j.count())
	assert.Zero(t, j.overlapped())
	assert.Equal(t, StateLeading, taskOf(l.Status(), "x").State)
}

func count(kinds []EventKind, kind EventKind) (n int) {
	for _, k := range kinds {
		if k == kind {
			n++
		}
	}
	return n
}

func TestLoopManyLossesLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, testLoopManyLossesLeaveNothingBehind)
}

func testLoopManyLossesLeaveNothingBehind(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	jobs := lead(t, l, 10, 0)
	var before int
	for i := range 200 {
		time.Sleep(time.Minute)
		require.Len(t, l.Leading(), 10)
		switch i % 4 {
		case 0:
			b.session().terminate()
		case 1:
			b.session().cut(true, true)
		case 2:
			l.clock.skew.Add(int64(7 * time.Second))
		case 3:
			b.fault(kindProve, fakeFault{hang: true})
		}
		if i == 10 {
			before = runtime.NumGoroutine()
		}
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	assert.InDelta(t, before, runtime.NumGoroutine(), 2)
	all, open := b.opened()
	assert.Equal(t, 201, all)
	assert.Equal(t, 1, open)
	assert.EqualValues(t, 200, l.Status().Losses)
	assert.EqualValues(t, 200, l.Status().Generation)
	for _, j := range jobs {
		assert.Equal(t, 201, j.count())
		assert.Zero(t, j.overlapped())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Empty(t, l.retired)
	assert.Equal(t, 1, l.workers)
	assert.LessOrEqual(t, len(l.stopping), 10)
}

func TestLoopIdle(t *testing.T) { synctest.Test(t, testLoopIdle) }

func testLoopIdle(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	nothing := func(context.Context) error { return nil }
	idle := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.running == nil
	}
	assert.True(t, idle(), "New starts nothing")
	for i := range 3 {
		require.NoError(t, l.Run(t.Context(), "x", nothing))
		time.Sleep(linger - 1)
		require.NoError(t, l.Run(t.Context(), "y", nothing))
		assert.Equal(t, i+1, b.dialed(), "jobs that follow each other share a session")
		assert.False(t, idle())
		time.Sleep(linger)
		synctest.Wait()
		assert.True(t, idle())
		how, _ := b.session().end()
		assert.Equal(t, "closed", how)
		assert.False(t, l.Status().Connected)
		time.Sleep(time.Hour)
	}
	assert.Equal(t, 3, b.dialed())
	assert.Zero(t, l.Status().Losses)
	assert.NoError(t, l.Status().Err)
}

// The last caller leaves while a dial goes on: that is not a failure, and the next one starts anew.
func TestLoopIdleDuringADial(t *testing.T) { synctest.Test(t, testLoopIdleDuringADial) }

func testLoopIdleDuringADial(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	events := l.Watch(t.Context())
	b.patience = 7 * time.Second // not at the instant at which the loop has lingered
	b.dialTime = 4 * time.Second
	b.failures = 1
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	require.ErrorIs(t, l.Run(ctx, "x", obey), context.DeadlineExceeded)
	time.Sleep(time.Minute)
	assert.Equal(t, []EventKind{Unreachable}, kinds(events))
	b.dialHang = true
	_, err := l.Holder(ctx, "x")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, errFakeDial, "what went wrong is told")
	time.Sleep(time.Minute)
	assert.Empty(t, kinds(events))
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Nil(t, l.running)
}
