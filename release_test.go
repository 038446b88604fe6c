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

func nothing(context.Context) error { return nil }

// The first of many tasks to return has its lock given back at once, the others together, and one notification names all.
func TestReleaseTellsOfAllAtOnce(t *testing.T) { synctest.Test(t, testReleaseTellsOfAllAtOnce) }

func testReleaseTellsOfAllAtOnce(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	next, _ := st.leader(t, Options{})
	lead(t, l, 100, 0)
	for i := range 100 {
		goRun(t.Context(), next, fmt.Sprint(i), obey)
	}
	time.Sleep(time.Minute)
	require.Empty(t, next.Leading())
	b.fault(kindUnlock, fakeFault{delay: 10 * time.Millisecond}) // of the first to return: the others do meanwhile
	require.NoError(t, l.Resign(t.Context()))
	assert.LessOrEqual(t, b.count(kindUnlock), 2)
	assert.Equal(t, 1, b.count(kindTell))
	time.Sleep(2 * herdGap)
	synctest.Wait()
	assert.Len(t, next.Leading(), 100, "all were told of")
}

// The lock is given back before the session breaks, and so is no part of what is lost with it:
//
//	loop       unlock, tell .......................... x released, session lost
//	session            unlock answered, tell broken
func TestReleaseIsNotLostWithTheNotification(t *testing.T) {
	for name, durable := range map[string]bool{"expires": false, "durable": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testReleaseIsNotLostWithTheNotification(t, durable) })
		})
	}
}

func testReleaseIsNotLostWithTheNotification(t *testing.T, durable bool) {
	t.Helper()
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	b.durable = durable
	stuck := &job{hold: make(chan struct{})}
	goRun(t.Context(), l, "stuck", stuck.task)
	synctest.Wait()
	events := l.Watch(t.Context())
	broken := fakeFault{err: &sessionError{err: errFakeSoft}}

	b.fault(kindTell, broken)
	ran, err := l.Try(t.Context(), "x", nothing)
	require.NoError(t, err)
	require.True(t, ran)
	assert.Equal(t, []EventKind{Gained, Released, Disconnected, Lost}, kinds(events))
	time.Sleep(time.Second)
	synctest.Wait()
	assert.Nil(t, st.holder("x"))
	assert.NotNil(t, st.holder("stuck"), "its task runs")
	assert.Equal(t, 1, b.count(kindUnlock), "x was given back once")

	// One that was gone by then is told to be lost, whatever the notification does.
	close(stuck.hold)
	time.Sleep(time.Minute)
	require.Equal(t, []string{"stuck"}, l.Leading())
	kinds(events)
	b.fault(kindTell, broken)
	_, err = l.Try(t.Context(), "x", func(context.Context) error { b.session().steal("x"); return nil })
	require.ErrorIs(t, err, ErrLost)
	assert.Equal(t, []EventKind{Gained, Lost, Disconnected, Lost}, kinds(events))
}

// The answer to the first of two statements comes when the session has been given up beside a task that goes on. It says nothing
// more: the server counts its silence from the last statement.
func TestReleaseIsSilentOnceTheSessionIsGivenUp(t *testing.T) {
	for kind, ask := range map[string]func(*testing.T, *Leader){
		kindUnlock: func(t *testing.T, l *Leader) {
			t.Helper()
			require.NoError(t, l.Run(t.Context(), "x", nothing))
		},
		kindTerms: func(t *testing.T, l *Leader) {
			t.Helper()
			h, err := l.Holder(t.Context(), "stuck") // of the next session
			require.NoError(t, err)
			require.True(t, h.Held)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testReleaseIsSilentOnceTheSessionIsGivenUp(t, kind, ask) })
		})
	}
}

func testReleaseIsSilentOnceTheSessionIsGivenUp(t *testing.T, kind string, ask func(*testing.T, *Leader)) {
	t.Helper()
	st := newFakeStore()
	l, b := st.leader(t, Options{Terms: true})
	stuck := &job{hold: make(chan struct{})}
	defer close(stuck.hold)
	goRun(t.Context(), l, "stuck", stuck.task)
	time.Sleep(time.Minute + time.Second) // just before a proof is due
	old := b.session()
	b.fault(kind, fakeFault{delay: l.opts.Lease + time.Second})
	asked := time.Now()
	ask(t, l)
	require.Equal(t, 1, l.Status().Retired)
	time.Sleep(time.Until(asked.Add(l.opts.Lease + 2*time.Second)))
	synctest.Wait()
	st.mu.Lock()
	assert.Equal(t, asked, old.lastAt, "nothing was sent after the answer")
	st.mu.Unlock()
	time.Sleep(time.Until(asked.Add(l.opts.SessionTimeout + 1)))
	how, _ := old.end()
	assert.NotEmpty(t, how)
}

// Each answer takes 1.6 s, so only one command fits between two proofs: a release must not make it two statements.
func TestReleaseHoldsUpNoProof(t *testing.T) { synctest.Test(t, testReleaseHoldsUpNoProof) }

func testReleaseHoldsUpNoProof(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	b.lag = 1600 * time.Millisecond
	standby, _ := st.leader(t, Options{Retry: time.Hour})
	keep := lead(t, l, 1, 0)[0]
	time.Sleep(time.Minute)
	for range 100 {
		require.NoError(t, l.Run(t.Context(), "x", nothing))
	}
	assert.Equal(t, 1, keep.count(), "the session was never given up")
	assert.Equal(t, 100, b.count(kindTell))

	// The standby, whose link is fast, hears of it all the same.
	end := make(chan struct{})
	ended := goRun(t.Context(), l, "y", func(context.Context) error { <-end; return nil })
	time.Sleep(time.Minute)
	next := &job{}
	goRun(t.Context(), standby, "y", next.task)
	time.Sleep(time.Minute)
	require.Zero(t, next.count())
	close(end)
	<-ended.done
	time.Sleep(herdGap)
	synctest.Wait()
	assert.Equal(t, 1, next.count())
}

// Tasks return one after the other, each within the time of an answer: the release of the first is told of before the last is
// given back.
func TestReleaseIsToldInTime(t *testing.T) { synctest.Test(t, testReleaseIsToldInTime) }

func testReleaseIsToldInTime(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	b.lag = 150 * time.Millisecond
	var calls []*call
	var cancels []context.CancelFunc
	for i := range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		calls, cancels = append(calls, goRun(ctx, l, fmt.Sprint(i), obey)), append(cancels, cancel)
	}
	time.Sleep(time.Minute)
	require.Len(t, l.Leading(), 50)
	for i, cancel := range cancels {
		cancel()
		time.Sleep(100 * time.Millisecond)
		if i >= 10 {
			assert.True(t, calls[i-10].returned(), "%d, after 1.1 s", i-10)
		}
	}
}

// A panic does not wait for the notification, and costs nobody else the session when the lock has been given back.
func TestReleaseOfAPanicIsToldLate(t *testing.T) { synctest.Test(t, testReleaseOfAPanicIsToldLate) }

func testReleaseOfAPanicIsToldLate(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	b.lag = 600 * time.Millisecond
	standby, _ := st.leader(t, Options{Retry: time.Hour})
	keep := lead(t, l, 1, 0)[0]
	next, queued := &job{}, &job{}
	bang := func(context.Context) error {
		goRun(t.Context(), standby, "x", next.task)
		goRun(t.Context(), l, "x", queued.task)
		for before := b.count(kindProve); b.count(kindProve) == before; {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(b.lag)
		panic("bang")
	}
	require.PanicsWithValue(t, "bang", func() { _ = l.Run(t.Context(), "x", bang) })
	time.Sleep(time.Minute)
	assert.Equal(t, 1, keep.count(), "the session was not given up")
	assert.Equal(t, 1, next.count(), "it was told")
	assert.Zero(t, queued.count())
	require.NoError(t, standby.Resign(t.Context()))
	time.Sleep(time.Minute)
	assert.Equal(t, 1, queued.count())
}
