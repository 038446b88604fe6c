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

// holderOf asks l for the holder of "x".
func holderOf(t *testing.T, l *Leader) Holder {
	t.Helper()
	holders, err := l.Holders(t.Context(), "x")
	require.NoError(t, err)
	require.Len(t, holders, 1)
	return holders[0]
}

// A Holder is shown with the term that goes on, and never with the one before it.
func TestLoopTermsHolders(t *testing.T) { synctest.Test(t, testLoopTermsHolders) }

func testLoopTermsHolders(t *testing.T) {
	for _, durable := range []bool{false, true} {
		st := newFakeStore()
		a, ab := st.leader(t, Options{Terms: true, Node: "a", Addr: "a:1"})
		b, bb := st.leader(t, Options{Terms: true, Node: "b", Addr: "b:1"})
		for l, backend := range map[*Leader]*fakeBackend{a: ab, b: bb} {
			backend.durable = durable
			l.store = backend.terms(l.opts, l.clock)
		}
		all, err := b.Holders(t.Context())
		require.NoError(t, err)
		assert.Empty(t, all, "no name was ever led")
		assert.Equal(t, Holder{Name: "x"}, holderOf(t, b))

		ctx, cancel := context.WithCancel(t.Context())
		c := goRun(ctx, a, "x", obey)
		time.Sleep(time.Second)
		row := st.row("x")
		want := Holder{
			Name: "x", Held: true, Node: "a", PID: st.holder("x").pid, Since: row.taken,
			Current: true, Addr: "a:1", Term: row.term,
		}
		assert.Equal(t, want, holderOf(t, b))
		time.Sleep(time.Second)
		cancel()
		<-c.done
		end := End{Term: row.term, Reason: EndResigned, At: st.row("x").released}
		assert.Equal(t, Holder{Name: "x", Ended: end}, holderOf(t, b))
		testHoldersDuringTakeover(t, st, b, end)
	}
}

// testHoldersDuringTakeover has b take the name x over, whose last term has ended.
func testHoldersDuringTakeover(t *testing.T, st *fakeStore, b *Leader, end End) {
	t.Helper()
	st.set(func() { st.termTime = 3 * time.Second })
	j := &job{}
	goRun(t.Context(), b, "x", j.task)
	time.Sleep(time.Second)
	st.set(func() { st.termTime = 0 })
	h := holderOf(t, b)
	assert.Equal(t, "b", h.Node)
	assert.True(t, h.Held)
	assert.False(t, h.Current)
	assert.Zero(t, h.Term)
	assert.Empty(t, h.Addr)
	assert.Equal(t, end, h.Ended)
	time.Sleep(5 * time.Second)
	require.Equal(t, 1, j.count())
	all, err := b.Holders(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, j.term(0), all[0].Term)
	assert.Equal(t, "b:1", all[0].Addr)
	assert.True(t, all[0].Current)
	assert.Equal(t, End{Reason: EndResigned}, all[0].Ended)
}

// A holder that died is not shown as current when its lock is gone or another's, and is said to have died.
func TestLoopTermsHolderDied(t *testing.T) { synctest.Test(t, testLoopTermsHolderDied) }

func testLoopTermsHolderDied(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{Terms: true, TakeoverDelay: 5 * time.Second})
	st.deadRow()
	assert.Equal(t, Holder{Name: "x", Ended: End{Term: 5, Reason: EndDied}}, holderOf(t, l))
	st.lockRow("x", true)
	goRun(t.Context(), l, "x", obey)
	time.Sleep(time.Second)
	h := holderOf(t, l)
	assert.True(t, h.Held)
	assert.False(t, h.Current)
	assert.Equal(t, End{Term: 5, Reason: EndDied}, h.Ended)
	st.lockRow("x", false)
	time.Sleep(10 * time.Second)
	h = holderOf(t, l)
	assert.True(t, h.Current)
	assert.Equal(t, End{Reason: EndDied}, h.Ended)
}

// Observe tells what is so, then that nothing is known, then what is so again, each once, and ends with its
// caller or its Leader.
func TestLoopTermsObserveEnds(t *testing.T) { synctest.Test(t, testLoopTermsObserveEnds) }

func testLoopTermsObserveEnds(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{Terms: true, Node: "a"})
	watcher, wb := st.leader(t, Options{Terms: true})
	goRun(t.Context(), l, "x", obey)
	time.Sleep(time.Second)
	views := make(chan View, 100)
	ended := make(chan error, 1)
	go func() { ended <- watcher.Observe(t.Context(), func(v View) { views <- v }) }()
	synctest.Wait()
	require.Len(t, views, 1, "the first answer is told at once")
	first := <-views
	require.NoError(t, first.Err)
	require.Len(t, first.Holders, 1)
	assert.True(t, first.Holders[0].Current)

	st.set(func() { wb.dark = true })
	wb.session().cut(true, true)
	cut := time.Now()
	time.Sleep(time.Minute)
	require.Len(t, views, 1, "what is unknown is told once")
	unknown := <-views
	require.Error(t, unknown.Err)
	assert.Equal(t, []Holder{{Name: "x"}}, unknown.Holders)
	assert.LessOrEqual(t, unknown.Time.Sub(cut), watcher.opts.Lease+2*watcher.opts.Retry)

	st.set(func() { wb.dark = false })
	time.Sleep(time.Minute)
	require.Len(t, views, 1)
	again := <-views
	require.NoError(t, again.Err)
	assert.Equal(t, first.Holders, again.Holders)

	resigned := time.Now()
	require.NoError(t, watcher.Resign(t.Context()))
	assert.ErrorIs(t, <-ended, ErrResigned)
	assert.Less(t, time.Since(resigned), 2*watcher.opts.Retry)
	assert.Empty(t, views)
	assert.ErrorIs(t, watcher.Observe(t.Context(), func(View) {}, "x"), ErrResigned)
	other, cancel := context.WithCancel(t.Context())
	go func() { ended <- l.Observe(other, func(v View) { views <- v }, "x") }()
	time.Sleep(3 * time.Second)
	assert.Len(t, views, 1)
	cancel()
	left := time.Now()
	assert.ErrorIs(t, <-ended, context.Canceled)
	assert.Zero(t, time.Since(left))
}

// A busy table of terms says nothing of who leads: then Observe says that it does not know, and Holders why.
func TestLoopTermsObserveWithoutTheTable(t *testing.T) {
	synctest.Test(t, testLoopTermsObserveWithoutTheTable)
}

func testLoopTermsObserveWithoutTheTable(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{Terms: true})
	b.durable = true
	l.store = b.terms(l.opts, l.clock)
	goRun(t.Context(), l, "x", obey)
	time.Sleep(time.Second)
	st.set(func() { st.termErr = errFakeSoft })
	_, err := l.Holders(t.Context(), "x")
	require.ErrorIs(t, err, errFakeSoft)
	views := make(chan View, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Observe(ctx, func(v View) { views <- v }, "x") }()
	time.Sleep(10 * time.Second)
	require.Len(t, views, 1)
	v := <-views
	assert.ErrorIs(t, v.Err, errFakeSoft)
	assert.Equal(t, []Holder{{Name: "x"}}, v.Holders)
	st.set(func() { st.termErr = nil })
	time.Sleep(3 * time.Second)
	require.Len(t, views, 1)
	v = <-views
	assert.True(t, v.Holders[0].Current)
	cancel()
	assert.ErrorIs(t, <-ended, context.Canceled)
}
