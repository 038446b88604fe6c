// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errSick = errors.New("the disk is full")

func TestStepDownError(t *testing.T) {
	err := StepDown(errSick, time.Second)
	assert.ErrorIs(t, err, errSick)
	assert.EqualError(t, err, "leader: stepped down: the disk is full")
	assert.EqualError(t, StepDown(nil, -time.Second), "leader: stepped down")
}

// TestLoopStepDown is C24 for a node that is sick: another one wins each time, and alone it is back after the pause.
func TestLoopStepDown(t *testing.T) { synctest.Test(t, testLoopStepDown) }

func testLoopStepDown(t *testing.T) {
	st := newFakeStore()
	sick, _ := st.leader(t, Options{Terms: true})
	events := sick.Watch(t.Context())
	var runs atomic.Int32
	down := goRun(t.Context(), sick, "x", func(context.Context) error {
		runs.Add(1)
		return fmt.Errorf("recovery: %w", StepDown(errSick, 10*time.Second))
	})
	synctest.Wait()
	require.EqualValues(t, 1, runs.Load())
	assert.Equal(t, EndError, st.row("x").ended, "given back cleanly")
	task := taskOf(sick.Status(), "x")
	assert.Equal(t, StateCooling, task.State)
	assert.ErrorIs(t, task.Err, errSick)
	began := time.Now()
	ran, err := sick.Try(t.Context(), "x", obey)
	assert.False(t, ran)
	require.NoError(t, err)
	assert.Zero(t, time.Since(began), "a Try does not wait for the end of the pause")

	time.Sleep(9 * time.Second)
	assert.EqualValues(t, 1, runs.Load())
	time.Sleep(3 * time.Second)
	assert.EqualValues(t, 2, runs.Load(), "alone, it is back after the pause")

	healthy, _ := st.leader(t, Options{Terms: true})
	j := &job{}
	ctx, stop := context.WithCancel(t.Context())
	c := goRun(ctx, healthy, "x", j.task)
	time.Sleep(2 * time.Second)
	assert.Equal(t, 1, j.count(), "the other one has it in the pause")
	time.Sleep(time.Minute)
	assert.EqualValues(t, 2, runs.Load())
	assert.Equal(t, StateContending, taskOf(sick.Status(), "x").State)
	stop()
	<-c.done
	time.Sleep(2 * time.Second)
	assert.EqualValues(t, 3, runs.Load(), "the pause is over")
	require.NoError(t, sick.Resign(t.Context()))
	<-down.done
	assert.ErrorIs(t, down.err, ErrResigned)
	told := 0
	for e := range events {
		if e.Kind == SteppedDown {
			told++
			assert.ErrorIs(t, e.Err, errSick)
		}
	}
	assert.Equal(t, 3, told)
}

// However the leadership ends in which the task steps down.
func TestLoopStepDownAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(l *Leader, b *fakeBackend, cancel func()) error{
		"ctx": func(_ *Leader, _ *fakeBackend, cancel func()) error {
			cancel()
			return context.Canceled
		},
		"resign": func(l *Leader, _ *fakeBackend, _ func()) error {
			_ = l.Resign(context.Background())
			return ErrResigned
		},
		"loss": func(_ *Leader, b *fakeBackend, _ func()) error {
			b.session().terminate()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, b := newFakeStore().leader(t, Options{})
				j := &job{err: StepDown(errSick, time.Minute)}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := goRun(ctx, l, "x", j.task)
				synctest.Wait()
				want := end(l, b, cancel)
				time.Sleep(30 * time.Second)
				assert.Equal(t, 1, j.count())
				if want != nil {
					require.True(t, c.returned())
					assert.ErrorIs(t, c.err, want)
					return
				}
				assert.Equal(t, StateCooling, taskOf(l.Status(), "x").State)
				time.Sleep(time.Minute)
				assert.Equal(t, 2, j.count())
			})
		})
	}
}

// A Try that steps down leaves the name to others as a Run does.
func TestLoopStepDownOfTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newFakeStore().leader(t, Options{})
		events := l.Watch(t.Context())
		ran, err := l.Try(t.Context(), "x", func(context.Context) error { return StepDown(errSick, time.Minute) })
		assert.True(t, ran)
		assert.ErrorIs(t, err, errSick)
		testPaused(t, l, time.Minute)
		require.NoError(t, l.Resign(t.Context()))
		assert.Contains(t, kinds(events), SteppedDown)
	})
}

// The pause outlives the Run whose task has asked for it.
func TestLoopStepDownOutlivesItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newFakeStore().leader(t, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		c := goRun(ctx, l, "x", func(context.Context) error { return StepDown(errSick, time.Minute) })
		synctest.Wait()
		cancel()
		<-c.done
		testPaused(t, l, time.Minute)
		goRun(t.Context(), l, "y", func(context.Context) error { return StepDown(errSick, time.Minute) })
		synctest.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		assert.NotContains(t, l.pauses, "x", "a pause that is over is forgotten")
	})
}

// testPaused expects that x, which has just been left to others, is for that long.
func testPaused(t *testing.T, l *Leader, pause time.Duration) {
	t.Helper()
	began := time.Now()
	ran, err := l.Try(t.Context(), "x", obey)
	assert.False(t, ran)
	require.NoError(t, err)
	assert.Zero(t, time.Since(began), "a Try does not wait for the end of the pause")
	j := &job{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := goRun(ctx, l, "x", j.task)
	synctest.Wait()
	assert.Equal(t, StateCooling, taskOf(l.Status(), "x").State)
	time.Sleep(pause - time.Second)
	assert.Zero(t, j.count(), "a new Run waits")
	time.Sleep(3 * time.Second)
	assert.Equal(t, 1, j.count())
	cancel()
	<-c.done
}

// Without a least pause the task would be run in a loop.
func TestLoopStepDownPausesAtLeastForRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newFakeStore().leader(t, Options{})
		var runs atomic.Int32
		goRun(t.Context(), l, "x", func(context.Context) error {
			runs.Add(1)
			return StepDown(errSick, 0)
		})
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, runs.Load(), int32(61))
		assert.Greater(t, runs.Load(), int32(25), "it tries again")
	})
}

// panicError is an error whose methods panic when it is asked what it is.
type panicError struct{}

func (panicError) Error() string { return "odd" }
func (panicError) As(any) bool   { panic("odd") }

// An error of the user's whose methods panic is a panic of the task: its lock is given back.
func TestLoopErrorThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newFakeStore().leader(t, Options{})
		assert.PanicsWithValue(t, "odd", func() {
			_ = l.Run(t.Context(), "x", func(context.Context) error { return panicError{} })
		})
		assert.False(t, l.IsLeading("x"))
		ran, err := l.Try(t.Context(), "x", func(context.Context) error { return nil })
		assert.True(t, ran)
		assert.NoError(t, err)
	})
}
