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

// lead has l lead n names, "0" and so on, each with a job of its own that goes on for drain when told to stop.
func lead(t *testing.T, l *Leader, n int, drain time.Duration) []*job {
	t.Helper()
	jobs := make([]*job, n)
	for i := range jobs {
		jobs[i] = &job{drain: drain}
		goRun(t.Context(), l, fmt.Sprint(i), jobs[i].task)
	}
	synctest.Wait()
	return jobs
}

func TestLoopLossVoidsAllNamesTogether(t *testing.T) {
	synctest.Test(t, testLoopLossVoidsAllNamesTogether)
}

func testLoopLossVoidsAllNamesTogether(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	jobs := lead(t, l, 20, time.Second)
	for range 10 {
		time.Sleep(time.Minute)
		require.Len(t, l.Leading(), 20)
		lost := time.Now()
		l.mu.Lock()
		all := l.current.lease
		l.mu.Unlock()
		b.session().terminate()
		synctest.Wait()
		assert.Empty(t, l.Leading())
		assert.Equal(t, errFakeEnded.Error(), all.err().Error(), "one store voids them all")
		for _, j := range jobs {
			assert.Equal(t, lost, j.run(-1).cancelled)
			assert.ErrorIs(t, j.run(-1).cause, errFakeEnded)
			assert.False(t, j.run(-1).confirmedLate)
		}
	}
	time.Sleep(time.Minute)
	for _, j := range jobs {
		assert.Equal(t, 11, j.count())
		assert.Zero(t, j.overlapped())
	}
	assert.EqualValues(t, 10, l.Status().Losses)
}

// In a black hole, tasks are cancelled a lease after the last good proof was sent, and the other side may start only
// when the server has ended the silent session.
func TestLoopBlackHole(t *testing.T) { synctest.Test(t, testLoopBlackHole) }

func testLoopBlackHole(t *testing.T) {
	type fault struct {
		name              string
		requests, answers bool
		hang              bool // in the middle of a proof instead
	}
	for _, f := range []fault{
		{name: "both ways", requests: true, answers: true},
		{name: "answers only", answers: true},
		{name: "in the middle of a proof", hang: true},
	} {
		st := newFakeStore()
		l, b := st.leader(t, Options{})
		j := &job{drain: 3 * time.Second}
		goRun(t.Context(), l, "x", j.task)
		synctest.Wait()
		other, _ := st.leader(t, Options{})
		goRun(t.Context(), other, "x", j.task)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		first := b.session()
		sent := st.lastProof(first)
		if f.hang {
			b.fault(kindProve, fakeFault{hang: true})
		} else {
			first.cut(f.requests, f.answers)
		}
		time.Sleep(time.Until(sent.Add(6*time.Second - 1)))
		synctest.Wait()
		assert.True(t, l.IsLeading("x"), f.name)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.False(t, l.IsLeading("x"), f.name)
		r := j.run(0)
		assert.Equal(t, sent.Add(6*time.Second), r.cancelled, f.name)
		assert.ErrorIs(t, r.cause, ErrLost, f.name)
		require.ErrorIs(t, r.cause, errLeaseEnd, f.name)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 2, j.count(), f.name)
		assert.Zero(t, j.overlapped(), f.name)
		how, when := first.end()
		switch {
		case f.requests:
			assert.Equal(t, "expired", how, f.name)
			assert.Equal(t, sent.Add(10*time.Second), when, f.name)
		case f.answers, f.hang: // the server hears that the session is closed, once the task has returned
			assert.Equal(t, "killed", how, f.name)
			assert.Equal(t, j.run(0).ended, when, f.name)
		}
		require.NoError(t, other.Resign(t.Context()))
		require.NoError(t, l.Resign(t.Context()))
	}
}

// lastProof returns when the last proof was sent that has been answered, on a link without lag.
func (st *fakeStore) lastProof(s *fakeSession) time.Time {
	st.mu.Lock()
	defer st.mu.Unlock()
	return s.lastAt
}

func TestLoopOneMissedBeatNeverLoses(t *testing.T) { synctest.Test(t, testLoopOneMissedBeatNeverLoses) }

func testLoopOneMissedBeatNeverLoses(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	j := &job{}
	goRun(t.Context(), l, "x", j.task)
	for i := range 1000 {
		if i%2 == 0 {
			b.fault(kindProve, fakeFault{err: errFakeSoft})
		} else {
			b.fault(kindProve, fakeFault{delay: 3900 * time.Millisecond})
		}
		b.fault(kindProve, fakeFault{})
		time.Sleep(10 * time.Second)
	}
	assert.Equal(t, 1, j.count())
	assert.True(t, l.IsLeading("x"))
	assert.Zero(t, l.Status().Losses)
	assert.NoError(t, l.Status().Err)
}

// A link that is slow against short intervals loses nothing for it. The first proof is due a Check after the session's
// own, which is old by the time its answer comes.
func TestLoopSlowLink(t *testing.T) { synctest.Test(t, testLoopSlowLink) }

func testLoopSlowLink(t *testing.T) {
	st := newFakeStore()
	options := Options{Check: 200 * time.Millisecond, Lease: 600 * time.Millisecond, SessionTimeout: time.Second}
	l, b := st.leader(t, options)
	standby, sb := st.leader(t, options)
	b.lag, sb.lag = 100*time.Millisecond, 100*time.Millisecond
	b.setUp, sb.setUp = 450*time.Millisecond, 450*time.Millisecond
	j := &job{}
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Second)
	goRun(t.Context(), standby, "x", j.task)
	time.Sleep(5 * time.Minute)
	assert.Equal(t, 1, j.count())
	assert.True(t, l.IsLeading("x"))
	assert.Zero(t, l.Status().Losses)
	assert.Zero(t, standby.Status().Losses)
}

// Timers stand still while a machine sleeps, and so does the monotonic clock: on waking only the wall clock knows.
func TestLoopSuspend(t *testing.T) { synctest.Test(t, testLoopSuspend) }

func testLoopSuspend(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	j := &job{}
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Minute)
	ctx := j.run(0).ctx
	l.clock.skew.Add(int64(-24 * time.Hour)) // somebody sets the clock back: no proof is younger for it
	time.Sleep(time.Hour)
	synctest.Wait()
	require.NoError(t, Confirm(ctx))
	assert.Equal(t, 1, j.count())
	l.clock.skew.Add(int64(3 * time.Second)) // a short sleep
	require.NoError(t, Confirm(ctx))
	time.Sleep(time.Minute)

	l.clock.skew.Add(int64(7 * time.Second))
	woke := time.Now()
	require.ErrorIs(t, Confirm(ctx), ErrLost, "before any timer has run")
	assert.False(t, l.IsLeading("x"))
	assert.Empty(t, l.Leading())
	_, ok := Deadline(ctx)
	assert.False(t, ok)
	time.Sleep(time.Second)
	synctest.Wait()
	assert.LessOrEqual(t, j.run(0).cancelled.Sub(woke), time.Second)
	require.ErrorIs(t, j.run(0).cause, ErrLost)
	time.Sleep(time.Minute)
	assert.Equal(t, 2, j.count())
	assert.True(t, l.IsLeading("x"))
}

// A task that returns by itself just then is run again: when in doubt, the lock was not held.
func TestLoopReturnAfterSuspendRunsAgain(t *testing.T) {
	synctest.Test(t, testLoopReturnAfterSuspendRunsAgain)
}

func testLoopReturnAfterSuspendRunsAgain(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	runs := 0
	require.NoError(t, l.Run(t.Context(), "x", func(context.Context) error {
		if runs++; runs == 1 {
			l.clock.skew.Add(int64(7 * time.Second))
		}
		return nil
	}))
	assert.Equal(t, 2, runs)
}

func TestLoopOneLockLost(t *testing.T) { synctest.Test(t, testLoopOneLockLost) }

func testLoopOneLockLost(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	jobs := lead(t, l, 5, time.Second)
	time.Sleep(time.Minute + time.Second)
	b.session().steal("3")
	time.Sleep(2 * time.Second)
	synctest.Wait()
	require.ErrorIs(t, jobs[3].run(0).cause, errLockGone)
	time.Sleep(time.Minute)
	for i, j := range jobs {
		assert.Equal(t, map[bool]int{false: 1, true: 2}[i == 3], j.count())
		assert.Zero(t, j.overlapped())
	}
	assert.EqualValues(t, 1, taskOf(l.Status(), "3").Losses)
	assert.Zero(t, l.Status().Losses, "the session lives")

	b.session().steal() // DISCARD ALL on our session
	time.Sleep(1500 * time.Millisecond)
	synctest.Wait()
	assert.Empty(t, l.Leading())
	time.Sleep(time.Minute)
	assert.Len(t, l.Leading(), 5)
	for _, j := range jobs {
		assert.Zero(t, j.overlapped())
	}
}

func TestLoopReadOnly(t *testing.T) { synctest.Test(t, testLoopReadOnly) }

func testLoopReadOnly(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	j := &job{drain: time.Second}
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Minute)
	st.set(func() { st.readOnly = true })
	time.Sleep(2 * time.Second)
	synctest.Wait()
	require.ErrorIs(t, j.run(0).cause, errFakeReadOnly)
	time.Sleep(time.Hour)
	assert.Equal(t, errFakeReadOnly, l.Status().Err)
	assert.Equal(t, StateConnecting, taskOf(l.Status(), "x").State)
	st.set(func() { st.readOnly = false })
	time.Sleep(5 * time.Second)
	assert.True(t, l.IsLeading("x"))
	all, open := b.opened()
	assert.Equal(t, 2, all)
	assert.Equal(t, 1, open)
}

// Whatever a task sees as the end of its context, a gate has seen before.
func TestLoopNeverLeadsWithADeadContext(t *testing.T) {
	synctest.Test(t, testLoopNeverLeadsWithADeadContext)
}

func testLoopNeverLeadsWithADeadContext(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	for i := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		stop := make(chan struct{})
		c := goRun(ctx, l, "x", func(task context.Context) error {
			for {
				ended := context.Cause(task) != nil
				if leads := l.IsLeading("x"); ended && leads {
					t.Error("it leads with a dead context")
				}
				if ended || !l.IsLeading("x") {
					break
				}
				select {
				case <-stop:
				case <-task.Done():
				case <-time.After(time.Millisecond):
				}
			}
			<-task.Done()
			assert.False(t, l.IsLeading("x"))
			assert.Empty(t, l.Leading())
			time.Sleep(2 * time.Second)
			return nil //nolint:nilerr // it ended because it was told to
		})
		time.Sleep(100*time.Millisecond + time.Duration(i)*time.Microsecond)
		if i%2 == 0 {
			b.session().terminate()
		}
		cancel()
		<-c.done
		s := l.Status()
		assert.NotEqual(t, StateLeading, taskOf(s, "x").State)
	}
}

// A standby that has lost its session finds a new one by itself, and leads only on that.
func TestLoopStandbyLosesItsSession(t *testing.T) { synctest.Test(t, testLoopStandbyLosesItsSession) }

func testLoopStandbyLosesItsSession(t *testing.T) {
	for _, lose := range []func(*fakeSession){
		func(s *fakeSession) { s.terminate() },
		func(s *fakeSession) { s.cut(true, true) },
		func(s *fakeSession) { s.cut(false, true) },
	} {
		st := newFakeStore()
		holder, _ := st.leader(t, Options{})
		goRun(t.Context(), holder, "x", obey)
		synctest.Wait()
		l, b := st.leader(t, Options{})
		j := &job{}
		goRun(t.Context(), l, "x", j.task)
		time.Sleep(time.Minute)
		first := b.session()
		lose(first)
		time.Sleep(7 * time.Second)
		assert.Equal(t, StateContending, taskOf(l.Status(), "x").State)
		assert.Zero(t, j.count())
		require.NoError(t, holder.Resign(t.Context()))
		time.Sleep(herdGap)
		synctest.Wait()
		assert.Equal(t, 1, j.count())
		assert.True(t, first != b.session() && b.session() == st.holder("x"))
		require.NoError(t, l.Resign(t.Context()))
	}
}
