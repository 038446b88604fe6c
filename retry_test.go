// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// times returns a copy of the times at which tries, or proofs, were sent to the store.
func (st *fakeStore) times(of *[]time.Time) []time.Time {
	st.mu.Lock()
	defer st.mu.Unlock()
	return append([]time.Time(nil), *of...)
}

func gaps(times []time.Time) []time.Duration {
	var gaps []time.Duration
	for i := 1; i < len(times); i++ {
		gaps = append(gaps, times[i].Sub(times[i-1]))
	}
	return gaps
}

func TestLoopRetryIsJittered(t *testing.T) { synctest.Test(t, testLoopRetryIsJittered) }

func testLoopRetryIsJittered(t *testing.T) {
	st := newFakeStore()
	other, _ := st.leader(t, Options{})
	goRun(t.Context(), other, "x", obey)
	synctest.Wait()
	l, _ := st.leader(t, Options{})
	goRun(t.Context(), l, "x", obey)
	time.Sleep(time.Hour)
	var sum time.Duration
	least, most := time.Hour, time.Duration(0)
	all := gaps(st.times(&st.tries))[1:]
	for _, gap := range all {
		sum += gap
		least, most = min(least, gap), max(most, gap)
	}
	assert.GreaterOrEqual(t, least, 800*time.Millisecond)
	assert.LessOrEqual(t, most, 1200*time.Millisecond)
	assert.Less(t, least, 820*time.Millisecond)
	assert.Greater(t, most, 1180*time.Millisecond)
	assert.InDelta(t, float64(time.Second), float64(sum)/float64(len(all)), float64(20*time.Millisecond))
}

func TestLoopRetryStretchesWhenTriesAreSlow(t *testing.T) {
	synctest.Test(t, testLoopRetryStretchesWhenTriesAreSlow)
}

func testLoopRetryStretchesWhenTriesAreSlow(t *testing.T) {
	st := newFakeStore()
	other, _ := st.leader(t, Options{})
	goRun(t.Context(), other, "x", obey)
	synctest.Wait()
	l, b := st.leader(t, Options{})
	b.lag = 500 * time.Millisecond
	goRun(t.Context(), l, "x", obey)
	time.Sleep(time.Hour)
	all := gaps(st.times(&st.tries))
	require.Less(t, all[1], 2*time.Second, "one slow answer is no reason")
	for _, gap := range all[2:] {
		assert.GreaterOrEqual(t, gap, 10500*time.Millisecond, "a twentieth of the time")
		assert.LessOrEqual(t, gap, 12*time.Second)
	}
	s := b.session()
	st.set(func() { s.lag = 1500 * time.Millisecond })
	before := len(st.times(&st.tries))
	time.Sleep(time.Hour)
	for _, gap := range gaps(st.times(&st.tries))[before+1:] {
		assert.LessOrEqual(t, gap, 12500*time.Millisecond, "ten times Retry at the most: a standby must not forget to ask")
	}
}

// Many notifications at once bring few tries.
func TestLoopHerdGap(t *testing.T) { synctest.Test(t, testLoopHerdGap) }

func testLoopHerdGap(t *testing.T) {
	st := newFakeStore()
	other, ob := st.leader(t, Options{})
	goRun(t.Context(), other, "x", obey)
	synctest.Wait()
	l, b := st.leader(t, Options{Retry: time.Hour})
	goRun(t.Context(), l, "x", obey)
	goRun(t.Context(), l, "y", obey)
	time.Sleep(time.Minute)
	tries := b.count(kindTry)
	keys := []int64{Key("test", "x"), Key("test", "not ours")}
	for range 1000 { // one each millisecond
		require.NoError(t, ob.session().tell(keys))
		time.Sleep(time.Millisecond)
	}
	time.Sleep(time.Second)
	assert.InDelta(t, 50, b.count(kindTry)-tries, 2)

	tries = b.count(kindTry)
	require.NoError(t, ob.session().tell(keys[1:]))
	require.NoError(t, ob.session().tell([]int64{Key("test", "y")}))
	time.Sleep(time.Second)
	assert.Equal(t, tries, b.count(kindTry), "nobody waits for these")
}

// 5,000 names cost one statement per Retry, and one per Check, and no goroutine of ours.
func TestLoopThousandsOfNames(t *testing.T) { synctest.Test(t, testLoopThousandsOfNames) }

func testLoopThousandsOfNames(t *testing.T) {
	const names = 5000
	st := newFakeStore()
	other, ob := st.leader(t, Options{})
	l, b := st.leader(t, Options{})
	ob.lag = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	for i := range names {
		goRun(ctx, other, fmt.Sprint(i), obey)
	}
	synctest.Wait()
	time.Sleep(time.Second)
	require.Len(t, other.Leading(), names)
	require.LessOrEqual(t, ob.count(kindTry), 3, "those that come while one is under way share the next")
	callers := runtime.NumGoroutine()
	for i := range names {
		goRun(t.Context(), l, fmt.Sprint(i), obey)
	}
	time.Sleep(time.Minute)
	assert.InDelta(t, callers+names, runtime.NumGoroutine(), 3, "the callers, and a few of ours")
	require.Len(t, l.Status().Tasks, names)
	tries, proofs, held := b.count(kindTry), b.count(kindProve), ob.count(kindProve)
	time.Sleep(1000 * time.Second)
	assert.InDelta(t, 1000, b.count(kindTry)-tries, 20)
	assert.InDelta(t, 500, b.count(kindProve)-proofs, 1)
	assert.InDelta(t, 500, ob.count(kindProve)-held, 1)
	cancel()
	time.Sleep(5 * time.Second)
	synctest.Wait()
	assert.Len(t, l.Leading(), names)
	assert.LessOrEqual(t, ob.count(kindUnlock), 3)
	require.NoError(t, l.Resign(t.Context()))
}

// The lock table is full: the names that hold a lock go on, the rest backs off and recovers by itself.
func TestLoopLockTableFull(t *testing.T) { synctest.Test(t, testLoopLockTableFull) }

func testLoopLockTableFull(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	old := lead(t, l, 1, 0)[0]
	st.set(func() { st.capacity = 3 })
	events := l.Watch(t.Context())
	jobs := make(map[string]*job)
	for _, name := range []string{"a", "b", "c", "d"} {
		jobs[name] = &job{}
		goRun(t.Context(), l, name, jobs[name].task)
	}
	time.Sleep(time.Minute)
	tries := b.count(kindTry)
	assert.Len(t, l.Leading(), 3, "what a try that failed half-way holds is used")
	assert.Equal(t, 3, st.held())
	require.ErrorIs(t, l.Status().Err, errFakeFull)
	seen := kinds(events)
	assert.Equal(t, 1, count(seen, Refused), "once, not per attempt")
	time.Sleep(10 * time.Minute)
	assert.InDelta(t, 600/2.5, b.count(kindTry)-tries, 60)
	failed := 0
	for _, task := range l.Status().Tasks {
		if task.State == StateContending {
			require.ErrorIs(t, task.Err, errFakeFull)
			failed++
		}
	}
	assert.Equal(t, 2, failed)
	tries = b.count(kindTry)
	for range 100 { // newcomers do not get round the pause
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_ = l.Run(ctx, "e", obey)
		cancel()
	}
	assert.LessOrEqual(t, b.count(kindTry)-tries, 10)
	st.set(func() { st.capacity = 0 })
	time.Sleep(5 * time.Second)
	assert.Len(t, l.Leading(), 5)
	assert.NoError(t, l.Status().Err)
	assert.Equal(t, 1, old.count())
	require.NoError(t, l.Resign(t.Context()))
	assert.Zero(t, st.held())
}

// A try fails and holds locks that nobody wants any more.
func TestLoopPartialTryIsGivenBack(t *testing.T) { synctest.Test(t, testLoopPartialTryIsGivenBack) }

func testLoopPartialTryIsGivenBack(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	lead(t, l, 1, 0)
	b.fault(kindTry, fakeFault{err: errFakeSoft, first: 1, delay: 100 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Error(t, l.Run(ctx, "x", obey))
	time.Sleep(time.Second)
	synctest.Wait()
	assert.Equal(t, 1, st.held())
}

func TestLoopReleaseErrors(t *testing.T) { synctest.Test(t, testLoopReleaseErrors) }

func testLoopReleaseErrors(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	beside := lead(t, l, 1, 0)[0]
	nothing := func(context.Context) error { return nil }

	// The lock was gone by the time it was given back: that is said.
	events := l.Watch(t.Context())
	require.NoError(t, l.Run(t.Context(), "x", func(context.Context) error { b.session().steal("x"); return nil }))
	seen := kinds(events)
	assert.Equal(t, []EventKind{Gained, Lost}, seen)

	// Nobody can be told: that costs nothing.
	b.fault(kindTell, fakeFault{err: errFakeSoft})
	require.NoError(t, l.Run(t.Context(), "x", nothing))
	assert.Equal(t, []EventKind{Gained, Untold, Released}, kinds(events))
	time.Sleep(time.Minute)
	assert.Equal(t, 1, beside.count())

	// It is not known whether the lock is free: the session is given up, so it is in the end.
	b.fault(kindUnlock, fakeFault{err: errFakeSoft})
	first := b.session()
	require.NoError(t, l.Run(t.Context(), "x", nothing))
	synctest.Wait()
	how, _ := first.end()
	assert.NotEmpty(t, how)
	require.ErrorIs(t, beside.run(0).cause, errFakeSoft)
	time.Sleep(time.Second)
	assert.Equal(t, 2, beside.count())
	assert.Equal(t, 1, st.held())
}

// Proofs that take longer than Check must hold up neither releases nor tries.
func TestLoopSlowProofsStarveNothing(t *testing.T) { synctest.Test(t, testLoopSlowProofsStarveNothing) }

func testLoopSlowProofsStarveNothing(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{Lease: time.Minute, SessionTimeout: 2 * time.Minute})
	b.lag = 2500 * time.Millisecond
	keep := lead(t, l, 1, 0)[0]
	time.Sleep(time.Minute)
	began := time.Now()
	require.NoError(t, l.Run(t.Context(), "x", func(context.Context) error { return nil }))
	assert.LessOrEqual(t, time.Since(began), 8*b.lag)
	time.Sleep(10 * time.Minute)
	assert.Equal(t, 1, keep.count())
}

func TestLoopOutage(t *testing.T) { synctest.Test(t, testLoopOutage) }

func testLoopOutage(t *testing.T) {
	for _, outage := range []time.Duration{time.Second, 30 * time.Second, 10 * time.Minute} {
		st := newFakeStore()
		l, b := st.leader(t, Options{})
		j := &job{}
		goRun(t.Context(), l, "x", j.task)
		time.Sleep(time.Minute)
		events := l.Watch(t.Context())
		st.set(func() {
			b.failures = 1 << 30
			for _, s := range st.sessions {
				s.endLocked("server")
			}
		})
		time.Sleep(outage)
		dials := b.dialed()
		status := l.Status()
		assert.False(t, status.Connected)
		assert.Equal(t, StateConnecting, taskOf(status, "x").State)
		assert.EqualValues(t, -1, status.ProofAge)
		if outage > time.Second {
			require.ErrorIs(t, status.Err, errFakeDial)
		}
		assert.LessOrEqual(t, dials, 10+int(outage/time.Second), "not too often")
		st.set(func() { b.failures = 0 })
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, 2, j.count())
		assert.True(t, l.IsLeading("x"))
		assert.LessOrEqual(t, count(kinds(events), Unreachable), 1)
		require.NoError(t, l.Resign(t.Context()))
	}
}

// Everybody loses the server at once, and must not come back at once.
func TestLoopComesBackSpread(t *testing.T) { synctest.Test(t, testLoopComesBackSpread) }

func testLoopComesBackSpread(t *testing.T) {
	const clients = 100
	st := newFakeStore()
	var backends []*fakeBackend
	for range clients {
		l, b := st.leader(t, Options{})
		goRun(t.Context(), l, "x", obey)
		backends = append(backends, b)
	}
	time.Sleep(time.Minute)
	st.set(func() {
		for _, b := range backends {
			b.failures = 1 << 30
		}
		for _, s := range st.sessions {
			s.endLocked("server")
		}
	})
	time.Sleep(10 * time.Second)
	began := time.Now()
	st.set(func() {
		for _, b := range backends {
			b.failures = 0
		}
	})
	time.Sleep(5*time.Second + 1)
	synctest.Wait()
	buckets := make(map[int]int)
	for _, b := range backends {
		s := b.session()
		require.True(t, s.began.After(began))
		buckets[int(s.began.Sub(began)/(100*time.Millisecond))]++
	}
	for bucket, n := range buckets {
		assert.LessOrEqual(t, n, 20, "in bucket %d", bucket)
	}
}

func TestLoopDialThatHangs(t *testing.T) { synctest.Test(t, testLoopDialThatHangs) }

// A hook that hangs and does not heed its context is seen in Status, and the next dial does not wait for it for ever.
func testLoopDialThatHangs(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	deaf := make(chan struct{})
	b.dialDeaf = deaf
	goRun(t.Context(), l, "x", obey)
	time.Sleep(7 * time.Second)
	assert.Equal(t, errDeaf, l.Status().Err)
	time.Sleep(time.Hour)
	assert.Equal(t, 1+mostDeaf, b.dialed(), "but not without bound")
	st.set(func() { b.dialDeaf = nil })
	close(deaf)
	time.Sleep(5 * time.Second)
	synctest.Wait()
	assert.True(t, l.IsLeading("x"))
	_, open := b.opened()
	assert.Equal(t, 1, open)
}

func TestBackoff(t *testing.T) {
	var longest time.Duration
	for n := range 1_000_000 {
		d := backoff(n)
		if d <= 0 || d > 5*time.Second {
			t.Fatalf("backoff(%d) = %v", n, d)
		}
		longest = max(longest, d)
	}
	assert.Greater(t, longest, 4900*time.Millisecond)
	for _, n := range []int{math.MinInt, -1, 63, 64, math.MaxInt32, math.MaxInt} {
		for range 1000 {
			d := backoff(n)
			assert.True(t, 0 < d && d <= 5*time.Second)
		}
	}
	for n, bound := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		for range 1000 {
			assert.LessOrEqual(t, backoff(n), bound*time.Millisecond)
		}
	}
}

func TestJitter(t *testing.T) {
	for _, d := range []time.Duration{1, 4, 5, 10 * time.Millisecond, time.Second, 24 * time.Hour} {
		for range 10_000 {
			j := jitter(d)
			if j < d-d/5 || j > d+d/5 {
				t.Fatalf("jitter(%v) = %v", d, j)
			}
		}
	}
}
