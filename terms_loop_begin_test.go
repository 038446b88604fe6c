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

// tally counts the events that are waiting, by kind and name.
func tally(events <-chan Event) map[string]int {
	n := make(map[string]int)
	for len(events) > 0 {
		e := <-events
		n[string(e.Kind)+" "+e.Name]++
	}
	return n
}

// C06: each leadership of a process has a higher term, whether the last one was released or lost, and even in the same
// millisecond.
func TestLoopTermsRiseInOneProcess(t *testing.T) { synctest.Test(t, testLoopTermsRiseInOneProcess) }

func testLoopTermsRiseInOneProcess(t *testing.T) {
	for _, durable := range []bool{false, true} {
		st := newFakeStore()
		l, b := st.leader(t, Options{Terms: true})
		b.durable = durable
		l.store = b.terms(l.opts, l.clock)
		var last Term
		began := time.Now()
		for range 10 {
			err := l.Run(t.Context(), "x", func(ctx context.Context) error {
				term, ok := TermOf(ctx)
				assert.True(t, ok)
				assert.Greater(t, term, last)
				assert.Equal(t, term, st.row("x").term)
				last = term
				return nil
			})
			require.NoError(t, err)
			assert.Equal(t, EndReturned, st.row("x").ended)
		}
		assert.Less(t, time.Since(began), 10*time.Millisecond, "the clock may be what makes them rise")
		j := &job{drain: time.Second}
		goRun(t.Context(), l, "x", j.task)
		synctest.Wait()
		assert.Greater(t, j.term(0), last)
		for i := range 3 {
			b.session().steal("x")
			time.Sleep(10 * time.Second)
			require.Equal(t, i+2, j.count())
			assert.ErrorIs(t, j.run(i).cause, ErrLost)
			assert.Greater(t, j.term(i+1), j.term(i))
			assert.Equal(t, EndLost, st.row("x").ended, "how the last term ended is kept")
			assert.True(t, st.row("x").released.IsZero())
		}
		assert.Zero(t, j.overlapped())
	}
}

// A task starts when its term is in the table and not before. Meanwhile the session is proved as ever.
func TestLoopTermsTaskAwaitsItsTerm(t *testing.T) { synctest.Test(t, testLoopTermsTaskAwaitsItsTerm) }

func testLoopTermsTaskAwaitsItsTerm(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{Terms: true})
	goRun(t.Context(), l, "other", obey)
	synctest.Wait()
	st.set(func() { st.termTime = 9 * time.Second })
	j := &job{}
	goRun(t.Context(), l, "x", j.task)
	synctest.Wait()
	proofs := b.count(kindProve)
	time.Sleep(9*time.Second - time.Millisecond)
	assert.Zero(t, j.count())
	assert.NotNil(t, st.holder("x"))
	assert.Equal(t, StateTakeover, taskOf(l.Status(), "x").State)
	assert.False(t, l.IsLeading("x"))
	assert.Zero(t, st.row("x"))
	assert.GreaterOrEqual(t, b.count(kindProve)-proofs, 4, "proofs are delayed")
	time.Sleep(2 * time.Millisecond)
	require.Equal(t, 1, j.count())
	assert.Equal(t, st.row("x").term, j.term(0))
	assert.True(t, l.IsLeading("x"))
	st.set(func() { st.termTime = 0 })
}

// A term that was begun for a lock that was lost meanwhile is no one's: nobody after it has to wait for its end.
func TestLoopTermsUnused(t *testing.T) { synctest.Test(t, testLoopTermsUnused) }

func testLoopTermsUnused(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{Terms: true})
	st.set(func() { st.termTime = 3 * time.Second })
	j := &job{}
	ctx, cancel := context.WithCancel(t.Context())
	c := goRun(ctx, l, "x", j.task)
	time.Sleep(time.Second)
	cancel()
	<-c.done
	assert.Nil(t, st.holder("x"))
	time.Sleep(10 * time.Second)
	row := st.row("x")
	assert.NotZero(t, row.term)
	assert.Equal(t, EndUnused, row.ended)
	assert.False(t, row.released.IsZero())
	assert.Zero(t, j.count())
	st.set(func() { st.termTime = 0 })
	next, _ := st.leader(t, Options{Terms: true, TakeoverDelay: time.Minute})
	jn := &job{}
	goRun(t.Context(), next, "x", jn.task)
	time.Sleep(time.Second)
	require.Equal(t, 1, jn.count())
	assert.Greater(t, jn.term(0), row.term)

	st.set(func() { st.termTime = 3 * time.Second })
	other := &job{}
	goRun(t.Context(), l, "y", other.task)
	time.Sleep(time.Second)
	b.session().terminate() // the bump is under way, and the name is asked for again
	time.Sleep(2*time.Second + time.Millisecond)
	unused := st.row("y").term
	assert.NotZero(t, unused)
	assert.Zero(t, other.count(), "a task began in the term of another session")
	time.Sleep(20 * time.Second)
	require.Equal(t, 1, other.count())
	assert.Greater(t, other.term(0), unused)
	assert.Equal(t, st.row("y").term, other.term(0))
	st.set(func() { st.termTime = 0 })
}

// More rows are stuck than there are places to wait: each is told once, none holds up a free one, and all get on.
func TestLoopTermsManyStuckRows(t *testing.T) { synctest.Test(t, testLoopTermsManyStuckRows) }

func testLoopTermsManyStuckRows(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{Terms: true})
	events := l.Watch(t.Context())
	const n = 3 * mostWaiting
	for i := range n {
		st.lockRow(fmt.Sprint(i), true)
	}
	jobs := lead(t, l, n, 0)
	time.Sleep(time.Minute)
	free := &job{}
	goRun(t.Context(), l, "free", free.task)
	proofs := b.count(kindProve)
	time.Sleep(time.Minute)
	require.Equal(t, 1, free.count())
	assert.Less(t, free.run(0).began.Sub(time.Now().Add(-time.Minute)), 100*time.Millisecond)
	assert.GreaterOrEqual(t, b.count(kindProve)-proofs, 29)
	told := tally(events)
	for i, j := range jobs {
		assert.Zero(t, j.count())
		assert.Equal(t, 1, told[string(Blocked)+" "+fmt.Sprint(i)], i)
		st.lockRow(fmt.Sprint(i), false)
	}
	time.Sleep(3 * time.Second)
	for _, j := range jobs {
		assert.Equal(t, 1, j.count())
	}
	for _, task := range l.Status().Tasks {
		assert.Zero(t, task.Blocker, task.Name)
		assert.Equal(t, StateLeading, task.State)
	}
}

// Who leads is lost by what the table says, not by its silence.
func TestLoopTermsCheckFails(t *testing.T) { synctest.Test(t, testLoopTermsCheckFails) }

func testLoopTermsCheckFails(t *testing.T) {
	for _, durable := range []bool{false, true} {
		st := newFakeStore()
		l, b := st.leader(t, Options{Terms: true})
		b.durable = durable
		l.store = b.terms(l.opts, l.clock)
		events := l.Watch(t.Context())
		j := &job{}
		goRun(t.Context(), l, "x", j.task)
		time.Sleep(time.Second)
		checks := b.count(kindTerms)
		for range 10 {
			b.fault(kindTerms, fakeFault{err: errFakeSoft})
		}
		st.set(func() { st.termErr = errFakeSoft })
		time.Sleep(19 * time.Second)
		if !durable {
			assert.GreaterOrEqual(t, b.count(kindTerms)-checks, 9)
		}
		assert.NoError(t, Confirm(j.run(0).ctx))
		assert.Equal(t, 1, j.count())
		assert.Zero(t, l.Status().Losses)
		assert.Equal(t, 1, tally(events)[string(TermsRefused)+" "])
		st.set(func() { st.termErr = nil; b.faults[kindTerms] = nil })
		time.Sleep(10 * time.Second)
		st.set(func() { delete(st.terms, Key("test", "x")) })
		time.Sleep(10 * time.Second)
		assert.Equal(t, 2, j.count(), "it is checked no more")
	}
}

// A term that was seen in the table, by whomever it was written there, is the floor of all later ones.
func TestLoopTermsFloor(t *testing.T) { synctest.Test(t, testLoopTermsFloor) }

func testLoopTermsFloor(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{Terms: true})
	j := &job{drain: 3 * time.Second}
	goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Second)
	key := Key("test", "x")
	high := j.term(0) + 1e12
	st.set(func() { st.terms[key] = termRow{name: "x", term: high, node: "other"} })
	time.Sleep(2100 * time.Millisecond)
	require.ErrorIs(t, Confirm(j.run(0).ctx), ErrLost)
	st.set(func() { delete(st.terms, key) }) // while the task still runs
	time.Sleep(10 * time.Second)
	require.Equal(t, 2, j.count())
	assert.Greater(t, j.term(1), high)
}
