// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTryRunsWhenFree(t *testing.T) { synctest.Test(t, testTryRunsWhenFree) }

func testTryRunsWhenFree(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	for _, want := range []error{nil, errTask} {
		ran, err := l.Try(t.Context(), "x", func(context.Context) error { return want })
		assert.True(t, ran)
		assert.Equal(t, want, err)
		assert.Zero(t, st.held())
	}
}

func TestTryRefusesWhenHeldElsewhere(t *testing.T) { synctest.Test(t, testTryRefusesWhenHeldElsewhere) }

func testTryRefusesWhenHeldElsewhere(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	other, _ := st.leader(t, Options{})
	goRun(t.Context(), other, "x", obey)
	synctest.Wait()
	began := time.Now()
	ran, err := l.Try(t.Context(), "x", obey)
	assert.False(t, ran)
	require.NoError(t, err)
	// Also beside a Run of this process that stands by and has asked a moment ago.
	goRun(t.Context(), l, "x", obey)
	synctest.Wait()
	ran, err = l.Try(t.Context(), "x", obey)
	assert.False(t, ran)
	require.NoError(t, err)
	assert.Zero(t, time.Since(began))
}

func TestTryRefusesWhenHeldHere(t *testing.T) { synctest.Test(t, testTryRefusesWhenHeldHere) }

func testTryRefusesWhenHeldHere(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	j := &job{drain: 10 * time.Second}
	goRun(t.Context(), l, "x", j.task)
	synctest.Wait()
	tries := b.count(kindTry)
	ran, err := l.Try(t.Context(), "x", obey)
	assert.False(t, ran)
	require.NoError(t, err)
	assert.Equal(t, tries, b.count(kindTry), "the database need not be asked")

	// A task whose lock was lost, and that still runs, counts as one that leads: never two of one name in a process.
	b.session().terminate()
	synctest.Wait()
	ran, err = l.Try(t.Context(), "x", obey)
	assert.False(t, ran)
	require.NoError(t, err)
}

func TestTryWaitsForTheFirstConnection(t *testing.T) {
	synctest.Test(t, testTryWaitsForTheFirstConnection)
}

func testTryWaitsForTheFirstConnection(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	b.failures = 10
	ran, err := l.Try(t.Context(), "x", func(context.Context) error { return nil })
	assert.True(t, ran)
	require.NoError(t, err)
	assert.Equal(t, 11, b.dialed())
}

func TestTryIsNeverSilentWhenItCouldNotAsk(t *testing.T) {
	synctest.Test(t, testTryIsNeverSilentWhenItCouldNotAsk)
}

func testTryIsNeverSilentWhenItCouldNotAsk(t *testing.T) {
	st := newFakeStore()
	for name, break_ := range map[string]func(*fakeBackend){
		"unreachable": func(b *fakeBackend) { b.failures = 1 << 30 },
		"hung dial":   func(b *fakeBackend) { b.dialHang = true },
		"black hole":  func(b *fakeBackend) { b.dark = true },
		"failing try": func(b *fakeBackend) {
			for range 1000 {
				b.faults[kindTry] = append(b.faults[kindTry], fakeFault{err: errFakeSoft})
			}
		},
	} {
		l, b := st.leader(t, Options{})
		break_(b)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		began := time.Now()
		ran, err := l.Try(ctx, "x", obey)
		assert.Equal(t, 30*time.Second, time.Since(began), name)
		assert.False(t, ran, name)
		require.ErrorIs(t, err, context.DeadlineExceeded, name)
		require.ErrorContains(t, err, `leader: try "x": context deadline exceeded`, name)
		switch name {
		case "unreachable":
			require.ErrorIs(t, err, errFakeDial, name)
		case "failing try":
			require.ErrorIs(t, err, errFakeSoft, name)
		}
		cancel()
		require.NoError(t, l.Resign(t.Context()))
	}
}

func TestTryReturnsALossWithTheTasksError(t *testing.T) {
	synctest.Test(t, testTryReturnsALossWithTheTasksError)
}

func testTryReturnsALossWithTheTasksError(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	j := &job{err: errTask}
	c := goTry(t.Context(), l, "x", j.task)
	synctest.Wait()
	b.session().terminate()
	synctest.Wait()
	require.True(t, c.returned())
	assert.True(t, c.ran)
	require.ErrorIs(t, c.err, ErrLost)
	require.ErrorIs(t, c.err, errTask)
	time.Sleep(time.Minute)
	assert.Equal(t, 1, j.count())

	// A lock that was gone by the time it was given back counts as lost, too: the job may have run beside another.
	ran, err := l.Try(t.Context(), "x", func(context.Context) error {
		b.session().steal("x")
		return nil
	})
	assert.True(t, ran)
	require.ErrorIs(t, err, ErrLost)
}

func TestTryWithALocalStandby(t *testing.T) { synctest.Test(t, testTryWithALocalStandby) }

// A Run of this process stands by, and the lock becomes free: either it or a Try gets it, and a Try that does not is
// refused at once.
func testTryWithALocalStandby(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	b.dialTime = time.Second
	j := &job{}
	goRun(t.Context(), l, "x", j.task)
	synctest.Wait()
	c := goTry(t.Context(), l, "x", j.task)
	time.Sleep(time.Second)
	synctest.Wait()
	require.True(t, c.returned())
	assert.False(t, c.ran)
	require.NoError(t, c.err)
	assert.Equal(t, 1, j.count())
	assert.Zero(t, j.overlapped())
}

func TestTryIsNotRefusedByAnOlderAnswer(t *testing.T) {
	synctest.Test(t, testTryIsNotRefusedByAnOlderAnswer)
}

// The answer to a try that was sent before the call of Try says nothing about the time of that call:
//
//	here       try of the standby ---- served: held ------------------------ answer
//	elsewhere                                          released
//	here                                                         Try
//
// A job of that hour would be skipped although the lock was free all the time that Try took.
func testTryIsNotRefusedByAnOlderAnswer(t *testing.T) {
	st := newFakeStore()
	other, _ := st.leader(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	goRun(ctx, other, "x", obey)
	synctest.Wait()
	l, b := st.leader(t, Options{})
	b.fault(kindTry, fakeFault{delay: 500 * time.Millisecond})
	standby, stop := context.WithCancel(t.Context())
	goRun(standby, l, "x", func(context.Context) error { t.Error("it ran"); return nil })
	time.Sleep(200 * time.Millisecond)
	cancel()
	time.Sleep(100 * time.Millisecond)
	stop()
	synctest.Wait()
	ran, err := l.Try(t.Context(), "x", func(context.Context) error { return nil })
	require.NoError(t, err)
	assert.True(t, ran)
}

func TestTryIsAnsweredAtOnceBesideAStandby(t *testing.T) {
	synctest.Test(t, testTryIsAnsweredAtOnceBesideAStandby)
}

func testTryIsAnsweredAtOnceBesideAStandby(t *testing.T) {
	st := newFakeStore()
	other, _ := st.leader(t, Options{})
	goRun(t.Context(), other, "x", obey)
	synctest.Wait()
	l, b := st.leader(t, Options{Retry: time.Hour})
	goRun(t.Context(), l, "x", obey)
	time.Sleep(time.Minute)
	b.fault(kindTry, fakeFault{delay: 10 * time.Millisecond})
	began := time.Now()
	ran, err := l.Try(t.Context(), "x", obey)
	assert.False(t, ran)
	require.NoError(t, err)
	assert.Equal(t, 10*time.Millisecond, time.Since(began))
}

// busyPlace returns a Leader on a link with some lag, which is asked all the time, by call, about names that another one
// holds. The calls come one after the other, so that some wait whenever an answer comes in.
func busyPlace(t *testing.T, call func(l *Leader, name string) error) (*Leader, *fakeBackend) {
	t.Helper()
	var calls sync.WaitGroup
	t.Cleanup(calls.Wait) // after Resign
	st := newFakeStore()
	other, _ := st.leader(t, Options{})
	lead(t, other, 5, 0)
	l, b := st.leader(t, Options{})
	b.lag = 10 * time.Millisecond
	require.NoError(t, call(l, "0"))
	for i := range 5 {
		calls.Go(func() {
			for call(l, fmt.Sprint(i)) == nil {
				time.Sleep(time.Duration(1+i) * time.Millisecond)
			}
		})
	}
	time.Sleep(time.Second)
	return l, b
}

func askHolder(l *Leader, name string) error {
	h, err := l.Holder(context.Background(), name)
	if err == nil && !h.Held {
		return errors.New("nobody holds it")
	}
	return err
}

func tryInVain(l *Leader, name string) error {
	ran, err := l.Try(context.Background(), name, func(context.Context) error { return nil })
	if ran {
		return errors.New("it ran")
	}
	return err
}

func TestTryIsNotStarvedByHolders(t *testing.T) { synctest.Test(t, testTryIsNotStarvedByHolders) }

func testTryIsNotStarvedByHolders(t *testing.T) {
	l, b := busyPlace(t, askHolder)
	began := time.Now()
	for range 20 {
		require.NoError(t, tryInVain(l, "0"))
	}
	assert.LessOrEqual(t, time.Since(began), 20*3*b.lag, "a question and a proof may come first")
}

func TestHolderIsNotStarvedByTries(t *testing.T) { synctest.Test(t, testHolderIsNotStarvedByTries) }

func testHolderIsNotStarvedByTries(t *testing.T) {
	l, b := busyPlace(t, tryInVain)
	began := time.Now()
	for range 20 {
		require.NoError(t, askHolder(l, "0"))
	}
	assert.LessOrEqual(t, time.Since(began), 20*3*b.lag, "a try and a proof may come first")
}

// Jobs that come and go while the database is down leave nothing behind.
func TestTryLeavesNothingBehind(t *testing.T) { synctest.Test(t, testTryLeavesNothingBehind) }

func testTryLeavesNothingBehind(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	b.failures = 1 << 30
	for i := range 500 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		ran, err := l.Try(ctx, []string{"x", "y"}[i%2], obey)
		assert.False(t, ran)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		cancel()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	require.NotNil(t, l.running, "the loop has gone on all the time")
	assert.LessOrEqual(t, cap(l.fresh), 1)
	assert.Empty(t, l.slots)
	assert.Empty(t, l.keys)
	assert.Empty(t, l.contenders)
	assert.Zero(t, l.candidates)
}
