// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"fmt"
	"strings"
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
	st.set(func() {
		for key, row := range st.terms {
			row.addr = strings.Repeat("a", maxAddr) + ":80"
			st.terms[key] = row
		}
	})
	time.Sleep(2 * time.Second)
	long, _ := b.Elsewhere("x")
	assert.Equal(t, Holder{Name: "x"}, long, "no Leader has written that")
	st.set(func() {
		for key, row := range st.terms {
			row.addr = "a:80"
			st.terms[key] = row
		}
	})
	all := b.Known().Holders
	require.Len(t, all, 1)
	assert.Equal(t, "x", all[0].Name)

	bb.session().cut(true, true)
	st.set(func() { bb.dark = true })
	heard := b.Known("x").Time
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

// Who asks who leads hears of a handover at once, and not a Retry later; but not more often in a storm of them.
func TestLoopKnownAfterARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFakeStore()
		const retry = 10 * time.Second
		a, _ := st.leader(t, Options{Terms: true, Node: "a", Addr: "a:80", Retry: retry})
		b, _ := st.leader(t, Options{Terms: true, Node: "b", Addr: "b:80", Retry: retry})
		c, cb := st.leader(t, Options{Terms: true, Node: "c", Addr: "c:80", Retry: retry})
		ctx, stop := context.WithCancel(t.Context())
		j := &job{}
		goRun(ctx, a, "x", j.task)
		synctest.Wait()
		for _, l := range []*Leader{b, c} {
			goRun(t.Context(), l, "x", j.task)
			l.Known("x")
		}
		time.Sleep(3 * time.Second)
		there, _ := c.Elsewhere("x")
		require.Equal(t, "a", there.Node)
		stop()
		time.Sleep(2 * succession)
		second, standby := b, c
		if c.IsLeading("x") {
			second, standby = c, b
		}
		require.True(t, second.IsLeading("x"))
		there, _ = standby.Elsewhere("x")
		assert.Equal(t, second.opts.Node, there.Node)

		asked := cb.count(kindHolders)
		for range 100 {
			st.set(func() {
				for _, s := range st.sessions {
					s.news = append(s.news, Key("test", "x"))
					s.changeLocked()
				}
			})
			c.Known("x")
			time.Sleep(succession)
		}
		assert.LessOrEqual(t, cb.count(kindHolders)-asked, 2, "in half a Retry")
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

// Names may come from strangers: they hide none that this process contends for, and who asks for one too many is told so.
func TestLoopKnownIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFakeStore()
		l, _ := st.leader(t, Options{})
		other, _ := st.leader(t, Options{Node: "other"})
		goRun(t.Context(), other, "x", obey)
		time.Sleep(time.Second)
		var strangers []string
		for i := range 2 * knownNames {
			strangers = append(strangers, fmt.Sprint("stranger", i))
			l.Known(strangers[i])
		}
		goRun(t.Context(), l, "x", obey)
		synctest.Wait()
		assert.ErrorIs(t, l.Known("x").Err, errNotAsked)
		time.Sleep(2 * time.Second)
		v := l.Known("x")
		require.NoError(t, v.Err)
		assert.Equal(t, "other", v.Holders[0].Node)
		assert.NoError(t, l.Known(strangers[0]).Err)
		v = l.Known(strangers[len(strangers)-1], "x")
		assert.ErrorIs(t, v.Err, errCrowded)
		assert.True(t, v.Holders[1].Held)
		l.known.mu.Lock()
		defer l.known.mu.Unlock()
		assert.Len(t, l.known.names, knownNames+1)
	})
}

// What is no name, as of a stranger, costs the others nothing.
func TestLoopKnownOfWhatIsNoName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFakeStore()
		l, _ := st.leader(t, Options{})
		other, _ := st.leader(t, Options{Node: "other"})
		goRun(t.Context(), other, "x", obey)
		for _, bad := range []string{"", "\x00", "\xff", strings.Repeat("x", 5000)} {
			l.Known("x", bad)
			time.Sleep(3 * time.Second)
			v := l.Known("x")
			assert.NoError(t, v.Err, "%.5q", bad)
			assert.Equal(t, "other", v.Holders[0].Node, "%.5q", bad)
			assert.ErrorContains(t, l.Known(bad).Err, "the name", "%.5q", bad)
		}
	})
}

// What a process leads it knows by itself, before the database has been asked and when it has not been for long.
func TestLoopKnownOfOneself(t *testing.T) {
	for _, terms := range []bool{false, true} {
		t.Run(fmt.Sprint("terms ", terms), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, b := newFakeStore().leader(t, Options{Node: "a", Terms: terms})
				j := &job{}
				goRun(t.Context(), l, "x", j.task)
				time.Sleep(time.Second)
				led := func() {
					t.Helper()
					v := l.Known("x")
					assert.Error(t, v.Err)
					assert.True(t, v.Holders[0].Held)
					assert.Equal(t, terms, v.Holders[0].Current)
					assert.Equal(t, "a", v.Holders[0].Node)
					if terms {
						assert.Equal(t, j.term(0), v.Holders[0].Term)
					}
				}
				led()
				time.Sleep(2 * attention)
				assert.ErrorIs(t, l.Known().Err, errIdle, "nobody has asked, which is not the fault of the database")
				time.Sleep(2 * attention)
				led()
				time.Sleep(2 * attention) // or the database might have answered the question of this call before the end
				b.session().terminate()
				synctest.Wait()
				assert.False(t, l.Known("x").Holders[0].Held)
			})
		})
	}
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
