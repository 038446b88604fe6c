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

func TestStatusFollowsTheStates(t *testing.T) { synctest.Test(t, testStatusFollowsTheStates) }

func testStatusFollowsTheStates(t *testing.T) {
	st := newFakeStore()
	holder, _ := st.leader(t, Options{})
	ctx, release := context.WithCancel(t.Context())
	goRun(ctx, holder, "x", obey)
	synctest.Wait()

	l, b := st.leader(t, Options{Node: "me"})
	began := time.Now()
	assert.Equal(t, Status{Node: "me", Namespace: "test", Since: began, ProofAge: -1, Lease: 6 * time.Second}, l.Status())
	time.Sleep(time.Second)
	b.dialTime = 2 * time.Second
	j := &job{drain: 3 * time.Second}
	run, cancel := context.WithCancel(t.Context())
	c := goRun(run, l, "x", j.task)
	synctest.Wait()
	entered := time.Now()
	assert.Equal(t, []TaskStatus{{Name: "x", State: StateConnecting, Since: entered}}, l.Status().Tasks)

	time.Sleep(3 * time.Second)
	synctest.Wait()
	tries := l.Status().Counts.Tries
	assert.EqualValues(t, b.count(kindTry), tries)
	assert.Equal(t, Status{
		Node: "me", Namespace: "test", Place: "memory", Connected: true, Since: entered.Add(2 * time.Second), SessionPID: 2,
		ProofAge: time.Second, Counts: Counts{Connects: 1, Tries: tries}, Lease: 6 * time.Second,
		Tasks: []TaskStatus{{Name: "x", State: StateContending, Since: entered}},
	}, l.Status())

	release()
	synctest.Wait()
	gained := time.Now()
	assert.Equal(t, []TaskStatus{{Name: "x", State: StateLeading, Since: gained}}, l.Status().Tasks)
	time.Sleep(time.Minute)
	b.session().terminate()
	synctest.Wait()
	lost := time.Now()
	s := l.Status()
	assert.False(t, s.Connected)
	assert.Equal(t, lost, s.Since)
	assert.EqualValues(t, 1, s.Generation)
	assert.EqualValues(t, 1, s.Losses)
	require.ErrorIs(t, s.Err, errFakeEnded)
	task := taskOf(s, "x")
	assert.Equal(t, StateStopping, task.State)
	assert.Equal(t, lost, task.Since)
	assert.EqualValues(t, 1, task.Losses)
	require.ErrorIs(t, task.Err, errFakeEnded)

	time.Sleep(3 * time.Second)
	synctest.Wait()
	task = taskOf(l.Status(), "x")
	assert.Equal(t, StateConnecting, task.State)
	assert.Equal(t, lost.Add(3*time.Second), task.Since)
	time.Sleep(time.Minute)
	assert.Equal(t, StateLeading, taskOf(l.Status(), "x").State)
	assert.NoError(t, taskOf(l.Status(), "x").Err)

	b.fault(kindUnlock, fakeFault{delay: time.Second})
	cancel()
	time.Sleep(3500 * time.Millisecond)
	synctest.Wait()
	assert.Equal(t, StateStopping, taskOf(l.Status(), "x").State, "its lock is being given back")
	time.Sleep(time.Second)
	synctest.Wait()
	assert.True(t, c.returned())
	assert.Empty(t, l.Status().Tasks)
}

// Status is asked for at every moment of a release, some of which last for a moment only.
func TestStatusDuringRelease(t *testing.T) { synctest.Test(t, testStatusDuringRelease) }

func testStatusDuringRelease(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				for _, task := range l.Status().Tasks {
					if task.State == StateLeading && task.Since.IsZero() {
						t.Error("leads since never")
					}
				}
			}
		}
	}()
	for range 2000 {
		require.NoError(t, l.Run(t.Context(), "x", func(context.Context) error { return nil }))
	}
	close(stop)
	synctest.Wait()
}

func TestTasksAndNotes(t *testing.T) { synctest.Test(t, testTasksAndNotes) }

func testTasksAndNotes(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	l.Note("b")
	l.Note("b")
	l.Note("a")
	assert.Equal(t, []string{"a", "b"}, l.Tasks())
	assert.Empty(t, l.Leading())
	assert.Zero(t, b.dialed())
	goRun(t.Context(), l, "c", obey)
	goRun(t.Context(), l, "b", obey)
	goRun(t.Context(), l, "b", obey)
	synctest.Wait()
	assert.Equal(t, []string{"a", "b", "c"}, l.Tasks())
	assert.Equal(t, []string{"b", "c"}, l.Leading())
	assert.True(t, l.IsLeading("b"))
	assert.False(t, l.IsLeading("a"))
	require.NoError(t, l.Resign(t.Context()))
	synctest.Wait()
	assert.Equal(t, []string{"a", "b"}, l.Tasks())
}

func TestHolder(t *testing.T) { synctest.Test(t, testHolder) }

func testHolder(t *testing.T) {
	st := newFakeStore()
	a, ab := st.leader(t, Options{Node: "a"})
	l, b := st.leader(t, Options{Node: "b"})
	h, err := l.Holder(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, Holder{Name: "x"}, h)
	goRun(t.Context(), a, "x", obey)
	synctest.Wait()
	for _, who := range []*Leader{l, a} {
		h, err = who.Holder(t.Context(), "x")
		require.NoError(t, err)
		assert.Equal(t, Holder{Name: "x", Held: true, Node: "a", PID: 2, Since: ab.session().began}, h)
	}
	asked := b.count(kindHolders)
	b.fault(kindHolders, fakeFault{delay: time.Second})
	answers := make(chan Holder, 11)
	ask := func() {
		h, err := l.Holder(t.Context(), "x")
		assert.NoError(t, err)
		answers <- h
	}
	go ask()
	synctest.Wait()
	for range 10 {
		go ask()
	}
	for range 11 {
		assert.Equal(t, h, <-answers)
	}
	assert.Equal(t, asked+2, b.count(kindHolders), "calls made at the same time share one statement")
	b.fault(kindHolders, fakeFault{err: errFakeSoft})
	_, err = l.Holder(t.Context(), "x")
	require.ErrorIs(t, err, errFakeSoft)
	require.ErrorContains(t, err, `leader: holder of "x": `)
}

// The session is lost while it is asked, or the caller has gone: the rest is asked again, and nothing stays behind.
func TestHolderOverALoss(t *testing.T) { synctest.Test(t, testHolderOverALoss) }

func testHolderOverALoss(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	b.fault(kindHolders, fakeFault{delay: time.Second, err: &sessionError{err: errFakeSoft}})
	errs := make(chan error, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	for _, ctx := range []context.Context{ctx, t.Context()} {
		go func() {
			_, err := l.Holder(ctx, "x")
			errs <- err
		}()
	}
	require.ErrorIs(t, <-errs, context.DeadlineExceeded)
	require.NoError(t, <-errs)

	b.fault(kindHolders, fakeFault{delay: time.Second, err: &sessionError{err: errFakeSoft}})
	b.store.set(func() { b.failures = 1 << 30 })
	ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := l.Holder(ctx, "x")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	time.Sleep(time.Minute)
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Nil(t, l.running, "nobody waits for the answer any more")
}

// A caller's context is code of the caller's: it may look at the Leader at any time.
func TestCallsLetTheirContextLook(t *testing.T) { synctest.Test(t, testCallsLetTheirContextLook) }

func testCallsLetTheirContextLook(t *testing.T) {
	nothing := func(context.Context) error { return nil }
	for name, call := range map[string]func(ctx context.Context, l *Leader){
		"Holder": func(ctx context.Context, l *Leader) { _, _ = l.Holder(ctx, "x") },
		"Try":    func(ctx context.Context, l *Leader) { _, _ = l.Try(ctx, "x", nothing) },
		"Run":    func(ctx context.Context, l *Leader) { _ = l.Run(ctx, "x", obey) },
		"Run inside": func(ctx context.Context, l *Leader) {
			_ = l.Run(ctx, "outer", func(inner context.Context) error {
				inner = nosyContext{inner, t, l}
				assert.Error(t, l.Run(inner, "outer", nothing))
				return l.Run(inner, "x", obey)
			})
		},
		"Watch":  func(ctx context.Context, l *Leader) { l.Watch(ctx) },
		"Resign": func(ctx context.Context, l *Leader) { _ = l.Resign(ctx) },
		"Resign inside": func(ctx context.Context, l *Leader) {
			_ = l.Run(ctx, "x", func(inner context.Context) error { return l.Resign(nosyContext{inner, t, l}) })
		},
	} {
		for _, fault := range []func(l *Leader, b *fakeBackend){
			func(*Leader, *fakeBackend) {},
			func(_ *Leader, b *fakeBackend) { b.store.set(func() { b.failures = 1 << 30 }) },
			func(_ *Leader, b *fakeBackend) { b.fault(kindProve, fakeFault{hang: true}) },
			func(l *Leader, _ *fakeBackend) { goRun(t.Context(), l, "stuck", (&job{drain: time.Minute}).task) },
			func(l *Leader, _ *fakeBackend) { goRun(t.Context(), l, "x", (&job{drain: time.Second}).task) },
		} {
			st := newFakeStore()
			l, b := st.leader(t, Options{})
			fault(l, b)
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			call(nosyContext{ctx, t, l}, l)
			cancel()
			require.False(t, t.Failed(), name)
			require.NoError(t, l.Resign(t.Context()))
		}
	}
}

func TestNamespaceOfTheFirstConnection(t *testing.T) {
	synctest.Test(t, testNamespaceOfTheFirstConnection)
}

func testNamespaceOfTheFirstConnection(t *testing.T) {
	st := newFakeStore()
	b := &fakeBackend{store: st, faults: make(map[string][]fakeFault), counts: make(map[string]int)}
	l, err := New(b, Options{})
	require.NoError(t, err)
	assert.Empty(t, l.Status().Namespace)
	goRun(t.Context(), l, "x", obey)
	synctest.Wait()
	assert.Equal(t, "fake", l.Status().Namespace)
	st.mu.Lock()
	assert.NotNil(t, st.locks[Key("fake", "x")])
	st.mu.Unlock()
	require.NoError(t, l.Resign(t.Context()))
}
