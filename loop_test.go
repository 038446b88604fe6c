// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The lease counts from when the proof was sent. An answer that comes later than that revives nothing.
func TestLoopLeaseCountsFromSend(t *testing.T) { synctest.Test(t, testLoopLeaseCountsFromSend) }

func testLoopLeaseCountsFromSend(t *testing.T) {
	const lease = 6 * time.Second
	for _, delay := range []time.Duration{lease / 2, lease * 95 / 100, lease * 3 / 2} {
		st := newFakeStore()
		l, b := st.leader(t, Options{})
		j := &job{hold: make(chan struct{})}
		goRun(t.Context(), l, "x", j.task)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		first := b.session()
		before := st.lastProof(first)
		b.fault(kindProve, fakeFault{delay: delay}, fakeFault{hang: true})
		sent := before.Add(2 * time.Second)
		time.Sleep(time.Until(sent.Add(min(delay, lease-2*time.Second))) - 1)
		synctest.Wait()
		assert.True(t, l.IsLeading("x"), delay)
		deadline, ok := Deadline(j.run(0).ctx)
		assert.True(t, ok)
		assert.Equal(t, before.Add(lease), deadline, "%v: the answer is still out", delay)
		end := before.Add(lease) // of trust
		if sent.Add(delay).Before(end) {
			end = sent.Add(lease)
		}
		time.Sleep(time.Until(end) - 1)
		synctest.Wait()
		require.NoError(t, Confirm(j.run(0).ctx), delay)
		time.Sleep(time.Nanosecond)
		require.ErrorIs(t, Confirm(j.run(0).ctx), ErrLost, delay)
		assert.False(t, l.IsLeading("x"), delay)
		synctest.Wait()
		assert.Equal(t, end, j.run(0).cancelled, delay)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			require.ErrorIs(t, Confirm(j.run(0).ctx), ErrLost, delay)
			require.False(t, l.IsLeading("x"), delay)
		}
		close(j.hold)
		require.NoError(t, l.Resign(t.Context()))
	}
}

// A grant, an answer or an unlock that comes in after the session was given up means nothing any more.
func TestLoopLateAnswersMeanNothing(t *testing.T) { synctest.Test(t, testLoopLateAnswersMeanNothing) }

func testLoopLateAnswersMeanNothing(t *testing.T) {
	const lease = 6 * time.Second
	for _, delay := range []time.Duration{lease / 2, lease * 95 / 100, lease * 3 / 2} {
		st := newFakeStore()
		l, b := st.leader(t, Options{})
		keep := &job{drain: time.Minute} // so that the session is retired, not killed, and the answer comes in
		goRun(t.Context(), l, "keep", keep.task)
		time.Sleep(time.Minute)
		synctest.Wait()
		first := b.session()
		proof := st.lastProof(first)

		// A late grant. The proofs behind it hang, so the session is lost in any case.
		b.fault(kindTry, fakeFault{delay: delay})
		b.fault(kindProve, fakeFault{hang: true})
		late := &job{}
		goRun(t.Context(), l, "late", late.task)
		sent := time.Now()
		end := proof.Add(lease)
		time.Sleep(time.Until(end))
		synctest.Wait()
		assert.Equal(t, end, keep.run(0).cancelled, delay)
		if sent.Add(delay).Before(end) {
			assert.Equal(t, 1, late.count(), delay)
			assert.Equal(t, end, late.run(0).cancelled, delay)
		} else {
			assert.Equal(t, 0, late.count(), "%v: the grant is void before it arrives", delay)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Zero(t, late.overlapped())
		assert.True(t, l.IsLeading("late"), "got again on the new session")
		assert.True(t, first != st.holder("late"))
		require.NoError(t, l.Resign(t.Context()))
		assert.Zero(t, st.held())
	}
}

func TestLoopLateUnlock(t *testing.T) { synctest.Test(t, testLoopLateUnlock) }

func testLoopLateUnlock(t *testing.T) {
	const lease = 6 * time.Second
	for _, delay := range []time.Duration{lease / 2, lease * 95 / 100, lease * 3 / 2} {
		st := newFakeStore()
		l, b := st.leader(t, Options{})
		keep := &job{drain: time.Minute}
		goRun(t.Context(), l, "keep", keep.task)
		time.Sleep(time.Minute)
		events := l.Watch(t.Context())
		b.fault(kindUnlock, fakeFault{delay: delay})
		began := time.Now()
		require.NoError(t, l.Run(t.Context(), "x", func(context.Context) error { return nil }))
		assert.LessOrEqual(t, time.Since(began), lease, "%v: a release waits for a lease at most", delay)
		synctest.Wait()
		for len(events) > 0 {
			if e := <-events; e.Name == "x" {
				assert.Contains(t, []EventKind{Gained, Released}, e.Kind, delay)
			}
		}
		require.NoError(t, l.Run(t.Context(), "x", func(context.Context) error { return nil }))
		time.Sleep(time.Minute * 2)
		synctest.Wait()
		assert.True(t, l.IsLeading("keep"))
		require.NoError(t, l.Resign(t.Context()))
		assert.Zero(t, st.held())
	}
}

// The lease has ended, which nobody has noticed yet, when the answer to a proof comes in that would carry it on:
//
//	0 s    proof, answered
//	2 s    proof sent
//	2.5 s  the machine sleeps for 4 s: the first proof is 6.5 s old, the second 4.5 s
//	2.7 s  answer
//
// What has been found to be over must stay so.
func TestLoopLateProofRevivesNothing(t *testing.T) { synctest.Test(t, testLoopLateProofRevivesNothing) }

func testLoopLateProofRevivesNothing(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	j := &job{drain: time.Second}
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Minute + time.Second)
	b.fault(kindProve, fakeFault{delay: 700 * time.Millisecond})
	time.Sleep(1500 * time.Millisecond)
	l.clock.skew.Add(int64(4 * time.Second))
	require.ErrorIs(t, Confirm(j.run(0).ctx), ErrLost)
	time.Sleep(300 * time.Millisecond)
	synctest.Wait()
	require.ErrorIs(t, Confirm(j.run(0).ctx), ErrLost)
	assert.Equal(t, errLeaseEnd.Error(), l.Status().Err.Error())
	require.ErrorIs(t, j.run(0).cause, ErrLost)
}

// The schedule that TestRunGivesALateGrantBack can only hope for:
//
//	caller   its context has ended: it decides to leave
//	loop     the answer to a try: its lock is granted
//	caller   leaves
//
// Nobody would give that lock back.
func TestLoopGrantsNothingToWhoLeaves(t *testing.T) {
	synctest.Test(t, testLoopGrantsNothingToWhoLeaves)
}

func testLoopGrantsNothingToWhoLeaves(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	lead(t, l, 1, 0)
	b.fault(kindTry, fakeFault{delay: time.Second})
	c, err := l.enter(t.Context(), "x", false, obey)
	require.NoError(t, err)
	_, done, err := l.start(doneContext(), nil, c)
	require.True(t, done)
	require.Equal(t, context.Canceled, err)
	require.NoError(t, l.release(c))
	time.Sleep(2 * time.Second)
	synctest.Wait()
	l.leave(c)
	synctest.Wait()
	assert.Equal(t, 1, st.held())
}
