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

func TestLoopKnown(t *testing.T) { synctest.Test(t, testLoopKnown) }

func testLoopKnown(t *testing.T) {
	st := newFakeStore()
	a, ab := st.leader(t, Options{Terms: true, Node: "a", Addr: "a:80"})
	b, bb := st.leader(t, Options{Terms: true, Node: "b", Addr: "b:80"})
	v := b.Known("x")
	assert.Equal(t, []Holder{{Name: "x"}}, v.Holders)
	require.Error(t, v.Err, "not known yet")
	require.Zero(t, v.Time)
	j := &job{}
	goRun(t.Context(), a, "x", j.task)
	time.Sleep(2 * time.Second)
	v = b.Known("x", "y")
	require.NoError(t, v.Err)
	assert.Less(t, time.Since(v.Time), 1300*time.Millisecond)
	require.Len(t, v.Holders, 2)
	assert.Equal(t, "a:80", v.Holders[0].Addr)
	assert.Equal(t, j.term(0), v.Holders[0].Term)
	assert.True(t, v.Holders[0].Held && v.Holders[0].Current)
	assert.Equal(t, Holder{Name: "y"}, v.Holders[1])
	there, age := b.Elsewhere("x")
	assert.Equal(t, v.Holders[0], there)
	assert.Less(t, age, 1300*time.Millisecond)
	a.Known()
	time.Sleep(time.Second)
	itself, _ := a.Elsewhere("x")
	assert.Equal(t, Holder{Name: "x"}, itself)
	b.opts.Addr = "a:80" // by mistake
	mine, _ := b.Elsewhere("x")
	assert.Equal(t, Holder{Name: "x"}, mine)
	b.opts.Addr = "b:80"
	all := b.Known().Holders
	require.Len(t, all, 1)
	assert.Equal(t, "x", all[0].Name)

	bb.session().cut(true, true)
	st.set(func() { bb.dark = true })
	heard := v.Time
	time.Sleep(10 * time.Second) // Lease and more
	v = b.Known("x")
	require.Error(t, v.Err, "cut off")
	assert.Equal(t, Holder{Name: "x"}, v.Holders[0])
	assert.WithinDuration(t, heard, v.Time, 2*time.Second, "the age of what is known")

	goRun(t.Context(), b, "x", j.task)
	ab.session().terminate()
	st.set(func() { ab.failures, bb.dark = 100, false })
	time.Sleep(15 * time.Second)
	v = b.Known("x")
	require.NoError(t, v.Err)
	assert.Equal(t, "b:80", v.Holders[0].Addr)
}

// A process that slept must not pass on what it knew before.
func TestLoopKnownIsNotStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newFakeStore().leader(t, Options{Terms: true})
		goRun(t.Context(), l, "x", obey)
		time.Sleep(time.Second)
		l.Known()
		time.Sleep(time.Second)
		require.True(t, l.Known("x").Holders[0].Held)
		l.clock.skew.Store(int64(time.Hour))
		v := l.Known("x")
		assert.ErrorIs(t, v.Err, errStale)
		assert.False(t, v.Holders[0].Held)
	})
}

func TestLoopKnownStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newFakeStore().leader(t, Options{})
		l.Known("x")
		time.Sleep(attention / 2)
		asked := b.count("holders")
		require.Positive(t, asked)
		time.Sleep(attention/2 + 2*time.Second)
		assert.Error(t, l.Known("x").Err, "it was asked a moment ago, and nobody looks any more")
		time.Sleep(2 * attention)
		asked = b.count("holders")
		time.Sleep(time.Minute)
		assert.Equal(t, asked, b.count("holders"), "nobody wants to know")
		assert.Error(t, l.Known("x").Err)
		time.Sleep(3 * time.Second)
		require.NoError(t, l.Known("x").Err)
		require.NoError(t, l.Resign(t.Context())) // the bubble has no goroutine left
		v := l.Known("x")
		assert.ErrorIs(t, v.Err, ErrResigned)
		assert.Len(t, v.Holders, 1)
	})
}

// Names may come from strangers.
func TestLoopKnownIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newFakeStore().leader(t, Options{})
		for i := range 2 * knownNames {
			l.Known(string(rune('a'+i%26)) + time.Duration(i).String())
		}
		l.known.mu.Lock()
		defer l.known.mu.Unlock()
		assert.Len(t, l.known.names, knownNames)
	})
}

// One refusal of a database, as of one that is busy, is no news.
func TestLoopObserveOutlivesAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newFakeStore().leader(t, Options{Terms: true})
		goRun(t.Context(), l, "x", obey)
		time.Sleep(time.Second)
		var views []View
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = l.Observe(ctx, func(v View) { views = append(views, v) }, "x")
		}()
		time.Sleep(2 * time.Second)
		b.fault(kindHolders, fakeFault{err: errFakeSoft}, fakeFault{err: errFakeSoft})
		time.Sleep(4 * time.Second)
		cancel()
		<-done
		assert.Len(t, views, 1)
		assert.True(t, views[0].Holders[0].Held)
		assert.Empty(t, b.faults[kindHolders], "the errors were met")
	})
}
