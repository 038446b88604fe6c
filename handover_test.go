// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLoopHandOver: the holder stops in its own time, another process takes over, and the first one stands by. Alone it leads again.
func TestLoopHandOver(t *testing.T) { synctest.Test(t, testLoopHandOver) }

func testLoopHandOver(t *testing.T) {
	st := newFakeStore()
	a, b := st.leader(t, Options{Terms: true})
	first := &job{drain: 5 * time.Second}
	run := goRun(t.Context(), a, "x", first.task)
	synctest.Wait()
	require.True(t, a.IsLeading("x"))
	other, _ := st.leader(t, Options{Terms: true})
	second := &job{}
	ctx, stop := context.WithCancel(t.Context())
	follower := goRun(ctx, other, "x", second.task)
	time.Sleep(3 * time.Second)

	began := time.Now()
	b.session().plead("x")
	synctest.Wait()
	assert.False(t, a.IsLeading("x"))
	assert.Equal(t, StateStopping, taskOf(a.Status(), "x").State)
	assert.ErrorIs(t, context.Cause(first.run(0).ctx), ErrHandOver)
	assert.NoError(t, Confirm(first.run(0).ctx), "the lock is held until the task has returned")
	b.session().plead("x") // once more is nothing new
	time.Sleep(5 * time.Second)
	synctest.Wait()
	assert.True(t, other.IsLeading("x"))
	assert.Equal(t, 5*time.Second, second.run(0).began.Sub(began))
	assert.Equal(t, StateCooling, taskOf(a.Status(), "x").State)
	assert.EqualError(t, taskOf(a.Status(), "x").Err, "leader: asked to hand over")
	assert.Equal(t, EndResigned, st.row("x").ended, "given back cleanly")

	time.Sleep(time.Minute)
	assert.Equal(t, StateContending, taskOf(a.Status(), "x").State)
	assert.Equal(t, 1, first.count())
	stop()
	<-follower.done
	time.Sleep(2 * time.Second)
	require.Equal(t, 2, first.count(), "Run goes on")

	b.session().plead("x")
	time.Sleep(5 * time.Second)
	synctest.Wait()
	assert.Equal(t, StateCooling, taskOf(a.Status(), "x").State)
	time.Sleep(handOverPauses*time.Second + 2*time.Second)
	assert.Equal(t, 3, first.count(), "nobody else wants to")
	require.NoError(t, a.Resign(t.Context()))
	<-run.done
	assert.ErrorIs(t, run.err, ErrResigned)
}

// TestLoopHandOverOfATry ends the task, and Try returns what it did.
func TestLoopHandOverOfATry(t *testing.T) { synctest.Test(t, testLoopHandOverOfATry) }

func testLoopHandOverOfATry(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	time.AfterFunc(time.Second, func() { b.session().plead("x") })
	began := time.Now()
	ran, err := l.Try(t.Context(), "x", func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("half done: %w", context.Cause(ctx))
	})
	assert.True(t, ran)
	assert.ErrorIs(t, err, ErrHandOver)
	assert.Equal(t, time.Second, time.Since(began))
	assert.Zero(t, st.held())
}

// TestLoopHandOverIsRefused where it is switched off, and means nothing where there is nothing to hand over.
func TestLoopHandOverIsRefused(t *testing.T) { synctest.Test(t, testLoopHandOverIsRefused) }

func testLoopHandOverIsRefused(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{NoHandover: true})
	other, beside := st.leader(t, Options{})
	goRun(t.Context(), l, "x", obey)
	synctest.Wait()
	goRun(t.Context(), other, "x", obey)
	goRun(t.Context(), other, "y", obey)
	synctest.Wait()
	b.session().plead("x")
	beside.session().plead("x") // it stands by
	beside.session().plead("z") // and has never heard of this one
	time.Sleep(time.Minute)
	assert.True(t, l.IsLeading("x"))
	assert.True(t, other.IsLeading("y"))
	assert.Equal(t, StateContending, taskOf(other.Status(), "x").State)
}

// TestLoopHandOverBesideOtherEnds: whoever comes first has it.
func TestLoopHandOverBesideOtherEnds(t *testing.T) {
	for name, end := range map[string]func(l *Leader, b *fakeBackend, cancel func()){
		"ctx":    func(_ *Leader, _ *fakeBackend, cancel func()) { cancel() },
		"resign": func(l *Leader, _ *fakeBackend, _ func()) { go func() { _ = l.Resign(context.Background()) }() },
		"loss":   func(_ *Leader, b *fakeBackend, _ func()) { b.session().terminate() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := newFakeStore()
				l, b := st.leader(t, Options{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				j := &job{drain: time.Second, err: errors.New("cut short")}
				c := goRun(ctx, l, "x", j.task)
				synctest.Wait()
				b.session().plead("x")
				synctest.Wait()
				end(l, b, cancel)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				switch name {
				case "ctx":
					require.True(t, c.returned())
					assert.ErrorIs(t, c.err, context.Canceled)
				case "resign":
					require.True(t, c.returned())
					assert.ErrorIs(t, c.err, ErrResigned)
				case "loss":
					assert.Equal(t, StateCooling, taskOf(l.Status(), "x").State)
					time.Sleep(time.Minute)
					assert.Equal(t, 2, j.count(), "it contends again")
				}
			})
		})
	}
}

func TestParsePleas(t *testing.T) {
	key := Key("public", "invoices.nightly")
	payload := fmt.Sprintf("resign:%016x", uint64(key))
	assert.Equal(t, []int64{key}, parsePleas(payload))
	assert.Empty(t, parseKeys(payload), "older versions find no key that is free")
	for _, other := range []string{"", "resign", "resign:", "resign:x", "resign:d458", "d458f03dc868185d", "handover:d458f03dc868185d"} {
		assert.Empty(t, parsePleas(other), other)
	}
}
