// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ending is how a leadership of a minute is brought to its end.
type ending struct {
	end   func(l *Leader, s *fakeSession, cancel context.CancelFunc)
	after time.Duration // which that takes
	opts  Options
	kinds []EventKind // of the events from then on that say why
	why   Reason
}

func endings() map[string]ending {
	lost := []EventKind{Disconnected, Lost}
	stopped := []EventKind{Stopping, Released}
	return map[string]ending{
		"Server": {kinds: lost, why: ReasonConnection, end: func(_ *Leader, s *fakeSession, _ context.CancelFunc) {
			s.terminate()
		}},
		"Kill": {kinds: lost, why: ReasonConnection, end: func(l *Leader, _ *fakeSession, _ context.CancelFunc) {
			l.kill()
		}},
		"Silence": {kinds: lost, why: ReasonLease, after: 6 * time.Second, end: func(_ *Leader, s *fakeSession, _ context.CancelFunc) {
			s.cut(true, true)
		}},
		"Switch": {kinds: lost, why: ReasonSession, after: 2 * time.Second, end: func(_ *Leader, s *fakeSession, _ context.CancelFunc) {
			s.backend.fault(kindProve, fakeFault{err: &sessionError{err: errMoved}})
		}},
		"Lock": {kinds: lost[1:], why: ReasonLock, after: 2 * time.Second, end: func(_ *Leader, s *fakeSession, _ context.CancelFunc) {
			s.steal("x")
		}},
		"Term": {
			kinds: lost[1:], why: ReasonTerm, after: 2 * time.Second, opts: Options{Terms: true},
			end: func(_ *Leader, s *fakeSession, _ context.CancelFunc) {
				s.store.set(func() { delete(s.store.terms, Key("test", "x")) })
			},
		},
		"Caller": {kinds: stopped, why: ReasonCaller, end: func(_ *Leader, _ *fakeSession, cancel context.CancelFunc) {
			cancel()
		}},
		"Resign": {kinds: stopped, why: ReasonResigned, end: func(l *Leader, _ *fakeSession, _ context.CancelFunc) {
			_ = l.Resign(context.Background())
		}},
		"HandOver": {kinds: stopped, why: ReasonHandOver, end: func(_ *Leader, s *fakeSession, _ context.CancelFunc) {
			s.plead("x")
		}},
	}
}

// TestWatchSaysWhy: one word and the time, in all events of an end.
func TestWatchSaysWhy(t *testing.T) {
	for name, e := range endings() {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testWatchSaysWhy(t, e) }) })
	}
}

func testWatchSaysWhy(t *testing.T, e ending) {
	t.Helper()
	st := newFakeStore()
	l, b := st.leader(t, e.opts)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	goRun(ctx, l, "x", obey)
	time.Sleep(time.Minute)
	require.True(t, l.IsLeading("x"))
	events := l.Watch(t.Context())
	e.end(l, b.session(), cancel)
	time.Sleep(e.after)
	synctest.Wait()
	var kinds []EventKind
	for range len(events) {
		event := <-events
		if event.Reason == "" {
			continue
		}
		kinds = append(kinds, event.Kind)
		assert.Equal(t, e.why, event.Reason, event.Kind)
		if event.Kind == Lost || event.Kind == Released {
			assert.Equal(t, event.Time.Sub(began), event.Elapsed, event.Kind)
		} else {
			assert.Zero(t, event.Elapsed, event.Kind)
		}
	}
	assert.Equal(t, e.kinds, kinds)
}

// TestWatchSaysHowATaskHasReturned, and how long it was waited for: by a caller behind another one of its process, from its call on.
func TestWatchSaysHowATaskHasReturned(t *testing.T) {
	synctest.Test(t, testWatchSaysHowATaskHasReturned)
}

func testWatchSaysHowATaskHasReturned(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	events := l.Watch(t.Context())
	first := goRun(t.Context(), l, "x", func(context.Context) error {
		time.Sleep(time.Minute)
		return nil
	})
	time.Sleep(20 * time.Second)
	boom := errors.New("boom")
	second := goRun(t.Context(), l, "x", func(context.Context) error {
		time.Sleep(time.Hour)
		return boom
	})
	<-first.done
	<-second.done
	require.PanicsWithValue(t, "bang", func() { _ = l.Run(t.Context(), "x", func(context.Context) error { panic("bang") }) })
	var said []Event
	for range len(events) {
		if e := <-events; e.Kind == Gained || e.Kind == Released {
			said = append(said, Event{Kind: e.Kind, Reason: e.Reason, Elapsed: e.Elapsed})
		}
	}
	assert.Equal(t, []Event{
		{Kind: Gained},
		{Kind: Released, Reason: ReasonReturned, Elapsed: time.Minute},
		{Kind: Gained, Elapsed: 40 * time.Second},
		{Kind: Released, Reason: ReasonFailed, Elapsed: time.Hour},
		{Kind: Gained},
		{Kind: Released, Reason: ReasonFailed},
	}, said)
}

// TestWatchSaysHowLongItWasWaited after a loss: since the task has returned.
func TestWatchSaysHowLongItWasWaited(t *testing.T) { synctest.Test(t, testWatchSaysHowLongItWasWaited) }

func testWatchSaysHowLongItWasWaited(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	j := &job{drain: 10 * time.Second}
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Minute)
	events := l.Watch(t.Context())
	st.set(func() { b.dialErr, b.failures = errFakeDial, 1000 })
	b.session().terminate()
	time.Sleep(time.Minute)
	back := time.Now()
	st.set(func() { b.failures = 0 })
	time.Sleep(time.Minute)
	for e := range events {
		if e.Kind == Gained {
			assert.Equal(t, e.Time.Sub(back)+50*time.Second, e.Elapsed)
			assert.Positive(t, e.Time.Sub(back))
			return
		}
	}
}

// TestStatusCounts what has gone well and what has not.
func TestStatusCounts(t *testing.T) { synctest.Test(t, testStatusCounts) }

func testStatusCounts(t *testing.T) {
	st := newFakeStore()
	other, _ := st.leader(t, Options{})
	goRun(t.Context(), other, "x", obey)
	synctest.Wait()
	l, b := st.leader(t, Options{})
	st.set(func() { b.failures = 3 })
	goRun(t.Context(), l, "x", obey)
	time.Sleep(20 * time.Second)
	before := l.Status()
	assert.EqualValues(t, 1, before.Counts.Connects)
	assert.EqualValues(t, 3, before.Counts.ConnectErrors)
	assert.EqualValues(t, b.count(kindProve), before.Counts.Proofs)
	assert.EqualValues(t, b.count(kindTry), before.Counts.Tries)
	assert.Positive(t, before.Counts.Proofs)
	assert.Zero(t, before.Counts.ProofErrors)
	assert.Zero(t, before.Counts.TryErrors)
	assert.Zero(t, before.ProofTook)
	assert.Equal(t, 6*time.Second, before.Lease, "the default, for those who compare")

	b.fault(kindProve, fakeFault{err: errFakeSoft})
	b.fault(kindProve, fakeFault{delay: 300 * time.Millisecond})
	b.fault(kindTry, fakeFault{err: errFakeSoft})
	time.Sleep(5 * time.Second)
	synctest.Wait()
	after := l.Status()
	assert.EqualValues(t, 1, after.Counts.ProofErrors)
	assert.EqualValues(t, 1, after.Counts.TryErrors)
	assert.Equal(t, 300*time.Millisecond, after.Counts.ProofTime)
	assert.EqualValues(t, b.count(kindProve), after.Counts.Proofs+after.Counts.ProofErrors)
}
