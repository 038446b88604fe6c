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

// watched collects what Watch tells of l, until the test ends.
func watched(t *testing.T, l *Leader) func() (kinds []EventKind) {
	t.Helper()
	events := l.Watch(t.Context())
	var kinds []EventKind
	return func() []EventKind {
		synctest.Wait()
		for {
			select {
			case e := <-events:
				kinds = append(kinds, e.Kind)
			default:
				return kinds
			}
		}
	}
}

// disconnecting returns a Leader that is to keep no connection while it waits, and one that leads "x" meanwhile.
func disconnecting(t *testing.T, opts Options) (holder, l *Leader, b *fakeBackend) {
	t.Helper()
	st := newFakeStore()
	holder, _ = st.leader(t, Options{})
	goRun(t.Context(), holder, "x", obey)
	synctest.Wait()
	opts.Disconnect = true
	l, b = st.leader(t, opts)
	return holder, l, b
}

// A standby that is to keep no connection has one only while it asks, and nobody reads of that.
func TestLoopDisconnect(t *testing.T) { synctest.Test(t, testLoopDisconnect) }

func testLoopDisconnect(t *testing.T) {
	holder, l, b := disconnecting(t, Options{})
	events := watched(t, l)
	j := &job{}
	goRun(t.Context(), l, "x", j.task)
	synctest.Wait()
	for range 100 {
		_, open := b.opened()
		require.Zero(t, open)
		s := l.Status()
		require.False(t, s.Connected)
		require.True(t, s.Resting)
		require.NoError(t, s.Err)
		require.Equal(t, StateContending, taskOf(s, "x").State)
		require.Less(t, time.Since(s.Since), 1200*time.Millisecond)
		time.Sleep(time.Second)
		synctest.Wait()
	}
	all, _ := b.opened()
	assert.InDelta(t, 100, all, 10, "one for each Retry")
	assert.Equal(t, all, b.count(kindTry))
	assert.Zero(t, b.count(kindProve))
	assert.Equal(t, []EventKind{Connected, Waiting}, events())

	require.NoError(t, holder.Resign(t.Context()))
	time.Sleep(1200 * time.Millisecond)
	synctest.Wait()
	require.True(t, l.IsLeading("x"))
	before, _ := b.opened()
	time.Sleep(time.Minute)
	after, open := b.opened()
	assert.Equal(t, before, after, "who leads keeps its session")
	assert.Equal(t, 1, open)
	assert.Equal(t, []EventKind{Connected, Waiting, Gained}, events())

	b.session().terminate()
	synctest.Wait()
	require.Equal(t, 1, j.count())
	require.ErrorIs(t, j.run(0).cause, ErrLost)
	time.Sleep(10 * time.Second)
	assert.True(t, l.IsLeading("x"))
	assert.Equal(t, []EventKind{Connected, Waiting, Gained, Disconnected, Lost, Connected, Gained}, events())
}

// Who is new does not wait for the next try of those that rest.
func TestLoopDisconnectNewCallers(t *testing.T) { synctest.Test(t, testLoopDisconnectNewCallers) }

func testLoopDisconnectNewCallers(t *testing.T) {
	_, l, b := disconnecting(t, Options{Retry: time.Minute})
	goRun(t.Context(), l, "x", obey)
	time.Sleep(time.Second)
	rests := func() {
		t.Helper()
		synctest.Wait()
		_, open := b.opened()
		require.Zero(t, open)
		require.True(t, l.Status().Resting)
	}
	rests()

	holders, err := l.Holder(t.Context(), "x")
	require.NoError(t, err)
	assert.True(t, holders.Held)
	rests()

	ran, err := l.Try(t.Context(), "x", obey)
	require.NoError(t, err)
	assert.False(t, ran)
	rests()

	ran, err = l.Try(t.Context(), "y", func(context.Context) error { return nil })
	require.NoError(t, err)
	assert.True(t, ran)
	rests()

	ctx, cancel := context.WithCancel(t.Context())
	z := &job{}
	c := goRun(ctx, l, "z", z.task)
	synctest.Wait()
	assert.Equal(t, 1, z.count())
	time.Sleep(10 * time.Minute)
	assert.True(t, l.IsLeading("z"))
	cancel()
	<-c.done
	time.Sleep(2 * time.Minute) // the next try is the end of the session
	rests()

	began := time.Now()
	require.NoError(t, l.Resign(t.Context()))
	assert.Zero(t, time.Since(began))
	assert.False(t, l.Status().Resting, "it will not try any more")
}

// Who waits for nothing does not rest until the next try: there is none.
func TestLoopDisconnectNobodyWaits(t *testing.T) { synctest.Test(t, testLoopDisconnectNobodyWaits) }

func testLoopDisconnectNobodyWaits(t *testing.T) {
	_, l, _ := disconnecting(t, Options{Retry: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	c := goRun(ctx, l, "x", obey)
	time.Sleep(time.Second)
	require.True(t, l.Status().Resting)
	cancel()
	<-c.done
	synctest.Wait()
	assert.False(t, l.Status().Resting)
}

// A failure now and then is followed by the shortest pause: each session in between has answered.
func TestLoopDisconnectForgetsFailures(t *testing.T) {
	synctest.Test(t, testLoopDisconnectForgetsFailures)
}

func testLoopDisconnectForgetsFailures(t *testing.T) {
	_, l, b := disconnecting(t, Options{})
	events := l.Watch(t.Context())
	goRun(t.Context(), l, "x", obey)
	for range 20 {
		time.Sleep(time.Minute)
		b.store.set(func() { b.failures = 1 })
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	var failed time.Time
	failures := 0
	for len(events) > 0 {
		switch e := <-events; e.Kind {
		case Unreachable:
			failed = e.Time
			failures++
		case Connected:
			if failures > 0 {
				assert.LessOrEqual(t, e.Time.Sub(failed), 100*time.Millisecond)
			}
		}
	}
	assert.Equal(t, 20, failures)
}

// Proofs that take longer than Check follow each other, and do not keep the session.
func TestLoopDisconnectSlowProofs(t *testing.T) { synctest.Test(t, testLoopDisconnectSlowProofs) }

func testLoopDisconnectSlowProofs(t *testing.T) {
	_, l, b := disconnecting(t, Options{Check: 20 * time.Millisecond})
	b.store.set(func() { b.lag = 50 * time.Millisecond })
	goRun(t.Context(), l, "x", obey)
	for range 10 {
		time.Sleep(time.Second)
	}
	all, _ := b.opened()
	assert.Greater(t, all, 7, "one for each Retry")
}

// Who may ask for nothing until the end of a pause connects for nothing until then.
func TestLoopDisconnectCooling(t *testing.T) { synctest.Test(t, testLoopDisconnectCooling) }

func testLoopDisconnectCooling(t *testing.T) {
	_, l, b := disconnecting(t, Options{})
	runs := 0
	goRun(t.Context(), l, "y", func(ctx context.Context) error {
		if runs++; runs == 1 {
			return StepDown(errors.New("not here"), time.Minute)
		}
		return obey(ctx)
	})
	time.Sleep(5 * time.Second)
	before, open := b.opened()
	assert.Zero(t, open)
	assert.Equal(t, StateCooling, taskOf(l.Status(), "y").State)
	time.Sleep(54 * time.Second)
	after, _ := b.opened()
	assert.Equal(t, before, after)
	ran, err := l.Try(t.Context(), "x", obey) // somebody else's name
	require.NoError(t, err)
	assert.False(t, ran)
	time.Sleep(2 * time.Second)
	assert.True(t, l.IsLeading("y"))
}

// Trouble with the database is told, and its end, as without Disconnect.
func TestLoopDisconnectTrouble(t *testing.T) { synctest.Test(t, testLoopDisconnectTrouble) }

func testLoopDisconnectTrouble(t *testing.T) {
	_, l, b := disconnecting(t, Options{})
	events := watched(t, l)
	goRun(t.Context(), l, "x", obey)
	time.Sleep(10 * time.Second)
	require.Equal(t, []EventKind{Connected, Waiting}, events())

	b.store.set(func() { b.failures = 1000 })
	time.Sleep(1300 * time.Millisecond)
	synctest.Wait()
	s := l.Status()
	assert.False(t, s.Resting)
	require.ErrorIs(t, s.Err, errFakeDial)
	assert.Equal(t, StateConnecting, taskOf(s, "x").State)
	b.store.set(func() { b.failures = 0 })
	time.Sleep(time.Minute)
	assert.Equal(t, []EventKind{Connected, Waiting, Unreachable, Connected}, events())
	assert.True(t, l.Status().Resting)

	// Tries that fail back off on one session: a new one each time would begin at the shortest pause.
	before, _ := b.opened()
	tries := b.count(kindTry)
	soft := fakeFault{err: errors.New("out of shared memory")}
	b.fault(kindTry, soft, soft, soft, soft)
	for b.count(kindTry) < tries+5 {
		time.Sleep(100 * time.Millisecond)
	}
	after, _ := b.opened()
	assert.Equal(t, 1, after-before)
}
