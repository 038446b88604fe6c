// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// jump moves the wall clock of l alone. Forward it is also what a suspended machine looks like on waking: the monotonic clock, and
// with it all timers, stood still.
func jump(l *Leader, d time.Duration) { l.clock.skew.Add(int64(d)) }

// trusted requires that all that a task and its process can ask agree on whether it leads x, and returns what they say.
func trusted(ctx context.Context, t *testing.T, l *Leader) bool {
	t.Helper()
	yes := Confirm(ctx) == nil
	_, until := Deadline(ctx)
	assert.Equal(t, yes, until || yes && l.backend.(*fakeBackend).durable)
	if g := grantOf(ctx); g.ctx.Err() == nil && g.over.Load() != &errReturned {
		assert.Equal(t, yes, l.IsLeading("x"))
		assert.Equal(t, yes, len(l.Leading()) > 0)
		assert.Equal(t, yes, taskOf(l.Status(), "x").State == StateLeading)
	} else {
		assert.False(t, yes && g.over.Load() != nil)
	}
	return yes
}

func TestLoopWallClockSetForward(t *testing.T) { synctest.Test(t, testLoopWallClockSetForward) }

func testLoopWallClockSetForward(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	j := &job{drain: time.Second}
	goRun(t.Context(), l, "x", j.task)
	for n := 1; n <= 10; n++ {
		time.Sleep(time.Minute + time.Duration(n)*100*time.Millisecond)
		synctest.Wait()
		require.Equal(t, n, j.count())
		ctx := j.run(-1).ctx
		require.True(t, trusted(ctx, t, l))
		first := b.session()
		jump(l, time.Hour)
		jumped := time.Now()
		require.False(t, trusted(ctx, t, l), "before any timer has run")
		time.Sleep(time.Second)
		synctest.Wait()
		r := j.run(-1)
		require.ErrorIs(t, r.cause, errLeaseEnd)
		assert.LessOrEqual(t, r.cancelled.Sub(jumped), clockGap)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, n+1, j.count(), "once, and regained")
		assert.True(t, trusted(j.run(-1).ctx, t, l))
		assert.EqualValues(t, n, l.Status().Losses)
		assert.True(t, first != st.holder("x"))
		how, when := first.end()
		assert.Equal(t, "closed", how)
		assert.Equal(t, j.run(-2).ended, when, "no lock was free before its task had returned")
	}
	assert.Zero(t, j.overlapped())
}

// A clock that is set back makes no proof younger: the lease ends on the monotonic clock, to the nanosecond.
func TestLoopWallClockSetBack(t *testing.T) { synctest.Test(t, testLoopWallClockSetBack) }

func testLoopWallClockSetBack(t *testing.T) {
	for _, steps := range []int{1, 3, 50} { // in which it is set back, spread over the time of a lease
		st := newFakeStore()
		l, b := st.leader(t, Options{})
		j := &job{}
		goRun(t.Context(), l, "x", j.task)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		ctx := j.run(0).ctx
		jump(l, -time.Hour)
		require.True(t, trusted(ctx, t, l))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, j.count(), "it costs nothing")
		require.Zero(t, l.Status().Losses)

		first := b.session()
		sent := st.lastProof(first)
		first.cut(true, true)
		end := sent.Add(6 * time.Second)
		for range steps {
			jump(l, -time.Hour)
			require.True(t, trusted(ctx, t, l))
			deadline, _ := Deadline(ctx)
			assert.Equal(t, end, deadline)
			time.Sleep(time.Until(end) / time.Duration(steps+1))
		}
		time.Sleep(time.Until(end) - 1)
		synctest.Wait()
		require.True(t, trusted(ctx, t, l))
		time.Sleep(time.Nanosecond)
		require.False(t, trusted(ctx, t, l))
		synctest.Wait()
		require.ErrorIs(t, j.run(0).cause, errLeaseEnd)
		assert.Equal(t, end, j.run(0).cancelled)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 2, j.count())
		assert.True(t, l.IsLeading("x"))
		require.NoError(t, l.Resign(t.Context()))
	}
}

// A clock that is set right again at once, as by two tools that disagree, is no suspend.
func TestLoopWallClockThereAndBack(t *testing.T) { synctest.Test(t, testLoopWallClockThereAndBack) }

func testLoopWallClockThereAndBack(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	j := &job{}
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Minute + time.Second)
	ctx := j.run(0).ctx
	for range 100 {
		synctest.Wait() // a proof that is sent in between is another matter
		jump(l, -time.Hour)
		require.True(t, trusted(ctx, t, l))
		jump(l, time.Hour)
		require.True(t, trusted(ctx, t, l))
		jump(l, time.Second)
		jump(l, -time.Second)
		time.Sleep(700 * time.Millisecond)
	}
	assert.Equal(t, 1, j.count())
}

// A suspend costs the leadership if it has outlasted the lease, to the nanosecond, and otherwise nothing. It may be in pieces.
func TestLoopSuspendCountsInTheLease(t *testing.T) {
	synctest.Test(t, testLoopSuspendCountsInTheLease)
}

func testLoopSuspendCountsInTheLease(t *testing.T) {
	for _, pieces := range []int{1, 2, 7} {
		for _, after := range []time.Duration{0, time.Millisecond, 700 * time.Millisecond, 1999 * time.Millisecond} { // the proof
			st := newFakeStore()
			l, b := st.leader(t, Options{})
			j := &job{}
			goRun(t.Context(), l, "x", j.task)
			time.Sleep(time.Minute)
			synctest.Wait()
			b.fault(kindProve, fakeFault{}, fakeFault{hang: true}) // the next one is the last one
			proofs := b.count(kindProve)
			for b.count(kindProve) == proofs {
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			sent := st.lastProof(b.session())
			time.Sleep(time.Until(sent.Add(after)))
			ctx := j.run(0).ctx
			left := 6*time.Second - time.Since(sent)
			for range pieces {
				jump(l, (left-1)/time.Duration(pieces))
				require.True(t, trusted(ctx, t, l))
			}
			jump(l, (left-1)%time.Duration(pieces))
			require.True(t, trusted(ctx, t, l))
			jump(l, 1)
			require.False(t, trusted(ctx, t, l))
			woke := time.Now()
			time.Sleep(clockGap)
			synctest.Wait()
			require.ErrorIs(t, j.run(0).cause, errLeaseEnd)
			assert.LessOrEqual(t, j.run(0).cancelled.Sub(woke), clockGap)
			require.NoError(t, l.Resign(t.Context()))
		}
	}
}

// The server has ended the session of the machine that slept, and another one leads by the time it wakes.
func TestLoopSuspendThroughATakeover(t *testing.T) { synctest.Test(t, testLoopSuspendThroughATakeover) }

func testLoopSuspendThroughATakeover(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	standby, _ := st.leader(t, Options{})
	j := &job{}
	goRun(t.Context(), l, "x", j.task)
	synctest.Wait()
	goRun(t.Context(), standby, "x", j.task)
	time.Sleep(time.Minute)
	synctest.Wait()
	ctx := j.run(0).ctx
	jump(l, time.Hour)
	b.session().terminate()
	require.False(t, trusted(ctx, t, l), "before the loop, or anybody, has heard of it")
	woke := time.Now()
	time.Sleep(1200 * time.Millisecond)
	synctest.Wait()
	assert.Equal(t, woke, j.run(0).cancelled, "the socket says so")
	require.ErrorIs(t, j.run(0).cause, ErrLost)
	assert.False(t, j.run(0).confirmedLate)
	require.Equal(t, 2, j.count())
	time.Sleep(time.Hour)
	assert.Equal(t, 2, j.count(), "nothing is led twice")
	assert.NotEqual(t, l.IsLeading("x"), standby.IsLeading("x"))
	assert.Zero(t, j.overlapped())
}

// A standby that slept has lost no more than its session.
func TestLoopSuspendOfAStandby(t *testing.T) { synctest.Test(t, testLoopSuspendOfAStandby) }

func testLoopSuspendOfAStandby(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	standby, b := st.leader(t, Options{})
	j := &job{}
	goRun(t.Context(), l, "x", j.task)
	synctest.Wait()
	goRun(t.Context(), standby, "x", j.task)
	time.Sleep(time.Minute)
	jump(standby, time.Hour)
	time.Sleep(10 * time.Second)
	synctest.Wait()
	assert.EqualValues(t, 1, standby.Status().Losses)
	all, now := b.opened()
	assert.Equal(t, 2, all)
	assert.Equal(t, 1, now)
	assert.Equal(t, StateContending, taskOf(standby.Status(), "x").State)
	assert.Equal(t, 1, j.count())
	require.NoError(t, l.Resign(t.Context()))
	synctest.Wait()
	assert.True(t, standby.IsLeading("x"))
	assert.True(t, trusted(j.run(-1).ctx, t, standby))
}

// The machine sleeps while the answer to a try is on its way, which grants the lock:
//
//	0 s    try sent
//	0.5 s  the machine sleeps for an hour
//	1 s    the answer: granted, for a session that the server may have ended long ago
//
// No task may start on that.
func TestLoopSuspendDuringATry(t *testing.T) { synctest.Test(t, testLoopSuspendDuringATry) }

func testLoopSuspendDuringATry(t *testing.T) {
	for _, once := range []bool{false, true} {
		st := newFakeStore()
		l, b := st.leader(t, Options{})
		goRun(t.Context(), l, "keep", (&job{drain: 2 * time.Second}).task) // the session is retired, not killed: the answer comes in
		time.Sleep(time.Minute)
		first := b.session()
		b.fault(kindTry, fakeFault{delay: time.Second})
		j := &job{}
		var c *call
		if once {
			c = goTry(t.Context(), l, "x", j.task)
		} else {
			c = goRun(t.Context(), l, "x", j.task)
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		jump(l, time.Hour)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		assert.Zero(t, j.count())
		assert.False(t, l.IsLeading("x"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if once {
			require.True(t, c.returned())
			require.NoError(t, c.err)
			assert.False(t, c.ran, "the session given up has the lock until its task has returned: it is not free")
			assert.Zero(t, j.count())
			require.NoError(t, l.Resign(t.Context()))
			continue
		}
		require.Equal(t, 1, j.count(), "on a session that lives")
		assert.True(t, first != st.holder("x"))
		assert.True(t, trusted(j.run(0).ctx, t, l))
		assert.False(t, c.returned())
		require.NoError(t, l.Resign(t.Context()))
	}
}

// The machine sleeps while it connects.
func TestLoopSuspendDuringADial(t *testing.T) { synctest.Test(t, testLoopSuspendDuringADial) }

func testLoopSuspendDuringADial(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	j := &job{}
	b.dialTime = time.Second
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(500 * time.Millisecond)
	jump(l, time.Hour)
	time.Sleep(time.Minute)
	synctest.Wait()
	assert.Equal(t, 1, j.count(), "a proof after the sleep is as good as any")
	assert.Zero(t, l.Status().Losses)
}

// Where locks do not expire the kernel holds them through anything.
func TestLoopClocksMeanNothingWithoutExpiry(t *testing.T) {
	synctest.Test(t, testLoopClocksMeanNothingWithoutExpiry)
}

func testLoopClocksMeanNothingWithoutExpiry(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	b.durable = true
	j := &job{}
	goRun(t.Context(), l, "x", j.task)
	for _, d := range []time.Duration{time.Hour, -time.Hour, -24 * time.Hour, 1000 * time.Hour} {
		time.Sleep(time.Minute)
		synctest.Wait()
		jump(l, d)
		require.True(t, trusted(j.run(0).ctx, t, l))
	}
	time.Sleep(time.Minute)
	assert.Equal(t, 1, j.count())
	assert.Zero(t, l.Status().Losses)
}

// Two machines go through anything that their clocks and links may do: none believes itself for longer than a lease after its
// last proof, by a clock that counts sleep and is never set, and never do both. Not with a sleep and a setting back at once: a
// machine whose wall clock loses what it has slept, within one lease, knows of neither.
func TestLoopRandomClocks(t *testing.T) {
	for name, suspends := range map[string]bool{"suspends": true, "set back": false} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				synctest.Test(t, func(t *testing.T) { testLoopRandomClocks(t, suspends) })
			}
		})
	}
}

// sleeper is a machine and the truth about its sleep.
type sleeper struct {
	l     *Leader
	b     *fakeBackend
	slept []sleep
}

type sleep struct {
	at time.Time
	d  time.Duration
}

func (m *sleeper) sleep(d time.Duration) {
	m.slept = append(m.slept, sleep{time.Now(), d})
	jump(m.l, d)
}

// age returns the true time since the last proof that was counted in s.
func (m *sleeper) age(s *lease) time.Duration {
	sent := s.clock.epoch.Add(s.sent.Load().mono)
	age := time.Since(sent)
	for _, sleep := range m.slept {
		if sleep.at.After(sent) {
			age += sleep.d
		}
	}
	return age
}

// expire has the server end the sessions that it has not heard of for its time, which goes on while a machine sleeps.
func (m *sleeper) expire() {
	m.l.mu.Lock()
	workers := append([]*worker{m.l.current}, m.l.retired...)
	m.l.mu.Unlock()
	for _, w := range workers {
		if w != nil && m.age(w.lease) >= 10*time.Second {
			w.session.(*fakeSession).terminate()
		}
	}
}

func testLoopRandomClocks(t *testing.T, suspends bool) {
	t.Helper()
	st := newFakeStore()
	j := &job{}
	var machines []*sleeper
	for range 2 {
		l, b := st.leader(t, Options{})
		machines = append(machines, &sleeper{l: l, b: b})
		goRun(t.Context(), l, "x", j.task)
	}
	check := func() {
		believers := 0
		for _, m := range machines {
			if g, ok := m.l.leading.Load("x"); ok && g.(*grant).leads() {
				believers++
				require.Less(t, m.age(g.(*grant).lease), 6*time.Second)
			}
		}
		require.LessOrEqual(t, believers, 1)
	}
	for range 300 {
		m := machines[rand.IntN(2)]
		time.Sleep(1 + rand.N(500*time.Millisecond))
		synctest.Wait() // what goes on at this instant comes before a sleep
		switch d := rand.N(9 * time.Second); rand.IntN(5) {
		case 0, 1:
			if suspends {
				m.sleep(d)
				m.expire()
			} else {
				jump(m.l, -1000*d)
			}
		case 2, 3:
			if s := m.b.session(); s != nil {
				s.cut(rand.IntN(2) == 0, rand.IntN(2) == 0)
			}
		case 4:
			time.Sleep(d)
		}
		check() // before anybody has looked at a clock
		synctest.Wait()
		check()
	}
	for _, m := range machines {
		m.b.session().cut(false, false)
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	assert.NotEqual(t, machines[0].l.IsLeading("x"), machines[1].l.IsLeading("x"), "one leads in the end")
	assert.Greater(t, j.count(), 1)
	for i := range j.count() {
		assert.False(t, j.run(i).confirmedLate)
	}
}
