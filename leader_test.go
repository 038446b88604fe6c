// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errTask = errors.New("the task's own error")

// What Run returns: one test for each row of the table in docs/design.md.

func TestRunReturnsTheTasksResult(t *testing.T) { synctest.Test(t, testRunReturnsTheTasksResult) }

func testRunReturnsTheTasksResult(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	for _, want := range []error{nil, errTask} {
		runs := 0
		err := l.Run(t.Context(), "x", func(context.Context) error {
			runs++
			assert.True(t, l.IsLeading("x"))
			assert.NotNil(t, st.holder("x"))
			return want
		})
		assert.Equal(t, want, err)
		assert.Equal(t, 1, runs)
		assert.Nil(t, st.holder("x"), "the lock is given back before Run returns")
		assert.False(t, l.IsLeading("x"))
	}
	assert.Equal(t, 1, b.dialed())
	assert.Equal(t, 2, b.count(kindTell))
}

func TestRunReturnsTheEndOfItsContext(t *testing.T) {
	synctest.Test(t, testRunReturnsTheEndOfItsContext)
}

func testRunReturnsTheEndOfItsContext(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	mine := errors.New("mine")
	ctx, cancel := context.WithCancelCause(t.Context())
	j := &job{drain: 3 * time.Second, err: errTask}
	events := l.Watch(t.Context())
	c := goRun(ctx, l, "x", j.task)
	time.Sleep(time.Minute)
	cancel(mine)
	time.Sleep(3*time.Second - 1)
	synctest.Wait()
	assert.False(t, c.returned())
	assert.NotNil(t, st.holder("x"), "the lock is held until the task has returned")
	assert.False(t, l.IsLeading("x"))
	assert.NoError(t, Confirm(j.run(0).ctx), "the lock is still held: its task may clean up")
	time.Sleep(time.Nanosecond)
	synctest.Wait()
	require.True(t, c.returned())
	assert.Equal(t, context.Canceled, c.err)
	assert.Equal(t, mine, j.run(0).cause)
	assert.Nil(t, st.holder("x"))
	assert.Equal(t, []EventKind{Connected, Gained, Stopping, Failed, Released}, kinds(events))

	ctx, cancel2 := context.WithTimeout(t.Context(), time.Second)
	defer cancel2()
	assert.Equal(t, context.DeadlineExceeded, l.Run(ctx, "x", j.task))
}

func TestRunComparesNoErrors(t *testing.T) { synctest.Test(t, testRunComparesNoErrors) }

// oddError panics when it is compared: errors.Is takes it for comparable.
type oddError struct{ detail any }

func (oddError) Error() string { return "odd" }

// plainOddError is known to be uncomparable.
type plainOddError struct{ details []string }

func (plainOddError) Error() string { return "odd" }

func testRunComparesNoErrors(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	for _, odd := range []error{oddError{[]string{"a"}}, plainOddError{[]string{"a"}}} {
		for _, end := range []func(context.CancelCauseFunc){
			func(cancel context.CancelCauseFunc) { cancel(odd) },
			func(context.CancelCauseFunc) { b.fault(kindProve, fakeFault{err: &sessionError{err: odd}}) },
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			events := l.Watch(ctx)
			causes := make(chan error, 100)
			c := goTry(ctx, l, "x", func(ctx context.Context) error {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return odd
			})
			time.Sleep(time.Minute)
			end(cancel)
			require.ErrorContains(t, <-causes, "odd")
			<-c.done
			if ctx.Err() != nil {
				assert.Equal(t, context.Canceled, c.err)
			} else {
				assert.ErrorIs(t, c.err, ErrLost)
				assert.ErrorContains(t, c.err, "odd")
				assert.Equal(t, 1, count(kinds(events), Failed))
			}
			cancel(nil)
			assert.Equal(t, plainOddError{}.Error(), l.Run(t.Context(), "x", func(context.Context) error { return odd }).Error())
			assert.Zero(t, st.held())
		}
	}
}

func TestRunReturnsErrResigned(t *testing.T) { synctest.Test(t, testRunReturnsErrResigned) }

func testRunReturnsErrResigned(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	j := &job{drain: 3 * time.Second}
	leads := goRun(t.Context(), l, "x", j.task)
	synctest.Wait()
	waits := goRun(t.Context(), l, "x", j.task)
	synctest.Wait()
	began := time.Now()
	require.NoError(t, l.Resign(t.Context()))
	synctest.Wait()
	assert.Equal(t, 3*time.Second, time.Since(began))
	require.True(t, leads.returned() && waits.returned())
	assert.Equal(t, ErrResigned, leads.err)
	assert.Equal(t, ErrResigned, waits.err)
	assert.Equal(t, ErrResigned, j.run(0).cause)
	assert.Equal(t, 1, j.count())
	assert.Zero(t, st.held())
}

func TestRunContendsAgainAfterALoss(t *testing.T) { synctest.Test(t, testRunContendsAgainAfterALoss) }

func testRunContendsAgainAfterALoss(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	j := &job{drain: 3 * time.Second, err: errTask}
	events := l.Watch(t.Context())
	c := goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Minute)
	lost := time.Now()
	b.session().terminate()
	synctest.Wait()
	first := j.run(0)
	assert.Equal(t, lost, first.cancelled, "a killed session is seen at once")
	require.ErrorIs(t, first.cause, ErrLost)
	require.ErrorIs(t, first.cause, errFakeEnded)
	require.ErrorIs(t, Confirm(first.ctx), ErrLost)
	assert.False(t, l.IsLeading("x"))
	time.Sleep(time.Minute)
	synctest.Wait()
	require.Equal(t, 2, j.count())
	assert.False(t, c.returned())
	assert.Equal(t, lost.Add(3*time.Second), j.run(1).began, "the new one waits for the return of the old one only")
	assert.Zero(t, j.overlapped())
	assert.Equal(t, []EventKind{Connected, Gained, Disconnected, Lost, Failed, Connected, Gained}, kinds(events))
	status := l.Status()
	assert.EqualValues(t, 1, status.Losses)
	assert.EqualValues(t, 1, taskOf(status, "x").Losses)
}

func TestRunReturnsErrUnsupported(t *testing.T) { synctest.Test(t, testRunReturnsErrUnsupported) }

func testRunReturnsErrUnsupported(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	events := l.Watch(t.Context())
	b.failures, b.dialErr = 1, errors.Join(ErrUnsupported, errors.New("a pooler"))
	b.dialTime = time.Second
	var calls []*call
	for _, name := range []string{"x", "x", "y"} {
		calls = append(calls, goRun(t.Context(), l, name, obey))
	}
	calls = append(calls, goTry(t.Context(), l, "z", obey))
	holder := make(chan error, 1)
	go func() {
		_, err := l.Holder(t.Context(), "x")
		holder <- err
	}()
	time.Sleep(time.Second)
	synctest.Wait()
	for _, c := range calls {
		require.True(t, c.returned())
		require.ErrorIs(t, c.err, ErrUnsupported)
		assert.False(t, c.ran)
	}
	require.ErrorIs(t, <-holder, ErrUnsupported)
	assert.Equal(t, []EventKind{Unsupported}, kinds(events))
	// The place may be put right meanwhile: a new call asks again.
	assert.NoError(t, l.Run(t.Context(), "x", func(context.Context) error { return nil }))
}

func TestRunUnwindsAPanic(t *testing.T) { synctest.Test(t, testRunUnwindsAPanic) }

func testRunUnwindsAPanic(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	other, _ := st.leader(t, Options{})
	beside := &job{}
	goRun(t.Context(), l, "beside", beside.task)
	synctest.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, unwind := range []func(context.Context){
		func(context.Context) { panic("boom") },
		func(context.Context) { runtime.Goexit() },
		func(ctx context.Context) { cancel(); <-ctx.Done(); panic("boom") },
	} {
		done, returned := make(chan any, 1), false
		go func() {
			defer func() { done <- recover() }()
			_ = l.Run(ctx, "x", func(ctx context.Context) error { unwind(ctx); return nil })
			returned = true
		}()
		<-done
		assert.False(t, returned)
		assert.Nil(t, st.holder("x"), "given back before Run is left")
		assert.NotContains(t, l.Tasks(), "x")
		assert.NoError(t, other.Run(t.Context(), "x", func(context.Context) error { return nil }))
	}
	assert.Equal(t, 1, beside.count())
	assert.True(t, l.IsLeading("beside"))
}

func TestRunUnwindsAPanicAfterALoss(t *testing.T) { synctest.Test(t, testRunUnwindsAPanicAfterALoss) }

func testRunUnwindsAPanicAfterALoss(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		_ = l.Run(t.Context(), "x", func(ctx context.Context) error { <-ctx.Done(); panic("boom") })
	}()
	synctest.Wait()
	began := time.Now()
	b.session().terminate()
	assert.Equal(t, "boom", <-done)
	assert.Zero(t, time.Since(began))
	assert.Empty(t, l.Tasks())
}

func TestRunUnwindsAPanicWhenReleaseHangs(t *testing.T) {
	synctest.Test(t, testRunUnwindsAPanicWhenReleaseHangs)
}

func testRunUnwindsAPanicWhenReleaseHangs(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	beside := &job{drain: 2 * time.Second}
	goRun(t.Context(), l, "beside", beside.task)
	synctest.Wait()
	first := b.session()
	b.fault(kindUnlock, fakeFault{hang: true})
	done := make(chan any, 1)
	began := time.Now()
	go func() {
		defer func() { done <- recover() }()
		_ = l.Run(t.Context(), "x", func(context.Context) error { panic("boom") })
	}()
	assert.Equal(t, "boom", <-done)
	assert.Equal(t, time.Second, time.Since(began))
	synctest.Wait()
	assert.Equal(t, time.Second, beside.run(0).cancelled.Sub(began), "the session is given up")
	how, _ := first.end()
	assert.Empty(t, how, "but held open while a task of it runs")
	time.Sleep(2 * time.Second)
	synctest.Wait()
	how, _ = first.end()
	assert.Equal(t, "killed", how)
	assert.NotContains(t, l.Tasks(), "x")
	time.Sleep(time.Second)
	assert.True(t, l.IsLeading("beside"))
	assert.Zero(t, beside.overlapped())
}

func TestRunNeverRunsTheTaskOfADeadContext(t *testing.T) {
	synctest.Test(t, testRunNeverRunsTheTaskOfADeadContext)
}

func testRunNeverRunsTheTaskOfADeadContext(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	ctx := doneContext()
	bad := func(context.Context) error { t.Error("it ran"); return nil }
	for range 100 {
		assert.Equal(t, context.Canceled, l.Run(ctx, "x", bad))
		ran, err := l.Try(ctx, "x", bad)
		assert.False(t, ran)
		assert.Equal(t, context.Canceled, err)
	}
	assert.Zero(t, b.dialed())
}

// A grant and the end of the context meet: whatever wins, the lock is given back and the task never runs with a dead
// context. The answer to the try takes as long as the context lasts.
func TestRunGivesALateGrantBack(t *testing.T) { synctest.Test(t, testRunGivesALateGrantBack) }

func testRunGivesALateGrantBack(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	keep := goRun(t.Context(), l, "keep", obey)
	synctest.Wait()
	for i := range 300 {
		offset := time.Duration(i%3-1) * time.Millisecond
		b.fault(kindTry, fakeFault{delay: 100 * time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond+offset)
		ran := false
		err := l.Run(ctx, "x", func(context.Context) error { ran = true; return nil })
		if offset != 0 { // at the same instant, either may be first
			assert.Equal(t, offset > 0, ran)
		}
		if err != nil {
			assert.Equal(t, context.DeadlineExceeded, err)
		}
		cancel()
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		require.Nil(t, st.holder("x"), "round %d", i)
	}
	assert.False(t, keep.returned())
}

func TestRunFollowsALocalRun(t *testing.T) { synctest.Test(t, testRunFollowsALocalRun) }

func testRunFollowsALocalRun(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	j := &job{drain: time.Second}
	ctx, cancel := context.WithCancel(t.Context())
	first := goRun(ctx, l, "x", j.task)
	synctest.Wait()
	second := goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Hour)
	assert.Equal(t, 1, j.count())
	assert.Equal(t, 1, taskOf(l.Status(), "x").Standbys)
	tries := b.count(kindTry)
	cancel()
	time.Sleep(time.Second)
	synctest.Wait()
	assert.True(t, first.returned())
	assert.Equal(t, 2, j.count())
	assert.False(t, second.returned())
	assert.Zero(t, j.overlapped())
	assert.Equal(t, tries+1, b.count(kindTry), "nothing is asked for a name that is held here")
}

func TestRunOfItsOwnNameIsAnError(t *testing.T) { synctest.Test(t, testRunOfItsOwnNameIsAnError) }

func testRunOfItsOwnNameIsAnError(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	other, _ := st.leader(t, Options{Namespace: "other"})
	nothing := func(context.Context) error { return nil }
	var detached context.Context
	err := l.Run(t.Context(), "a", func(ctx context.Context) error {
		detached = context.WithoutCancel(ctx) //nolint:fatcontext // to use it too late is the test
		require.ErrorContains(t, l.Run(ctx, "a", obey), `run "a": called from inside`)
		_, err := l.Try(ctx, "a", obey)
		require.ErrorContains(t, err, `run "a": called from inside`)
		return l.Run(ctx, "b", func(ctx context.Context) error {
			require.ErrorContains(t, l.Run(ctx, "a", obey), "called from inside")
			require.ErrorContains(t, l.Run(ctx, "b", obey), "called from inside")
			require.NoError(t, other.Run(ctx, "a", nothing), "a Leader of its own knows nothing of this one's names")
			return l.Run(ctx, "c", nothing)
		})
	})
	require.NoError(t, err)
	assert.NoError(t, l.Run(detached, "a", nothing), "the task has returned")
}

func TestRunHandsOverAtOnce(t *testing.T) { synctest.Test(t, testRunHandsOverAtOnce) }

func testRunHandsOverAtOnce(t *testing.T) {
	st := newFakeStore()
	j := &job{drain: time.Second}
	ctx, cancel := context.WithCancel(t.Context())
	l, _ := st.leader(t, Options{})
	goRun(ctx, l, "x", j.task)
	synctest.Wait()
	for range 5 {
		standby, _ := st.leader(t, Options{})
		goRun(t.Context(), standby, "x", j.task)
	}
	time.Sleep(time.Hour)
	assert.Equal(t, 1, j.count())
	cancel()
	time.Sleep(time.Second)
	synctest.Wait()
	require.Equal(t, 2, j.count())
	assert.Equal(t, j.run(0).ended, j.run(1).began)
	assert.Zero(t, j.overlapped())
}

// kinds drains the events that have been emitted so far.
func kinds(events <-chan Event) []EventKind {
	synctest.Wait()
	var kinds []EventKind
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return kinds
			}
			kinds = append(kinds, e.Kind)
		default:
			return kinds
		}
	}
}

// A Leader that New has not made says so, and panics nowhere.
func TestLeaderNotMadeByNew(t *testing.T) {
	l := &Leader{}
	require.EqualError(t, l.Run(t.Context(), "x", obey), errNotMade.Error())
	_, err := l.Try(t.Context(), "x", obey)
	require.ErrorIs(t, err, errNotMade)
	_, err = l.Holder(t.Context(), "x")
	require.ErrorIs(t, err, errNotMade)
	l.Note("x")
	assert.Equal(t, []string{"x"}, l.Tasks())
	assert.Empty(t, l.Leading())
	assert.False(t, l.IsLeading("x"))
	assert.False(t, l.Status().Connected)
	ctx, cancel := context.WithCancel(t.Context())
	events := l.Watch(ctx)
	cancel()
	<-events
	require.NoError(t, l.Resign(t.Context()))
}
