// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// leaderPlace is a place of locks for the Leaders of one test.
type leaderPlace struct {
	leader func(t *testing.T, opts Options) *Leader // resigns when the test ends
	// lose has l lose name, in the way that is to be feared at this place.
	lose func(t *testing.T, l *Leader, name string)
	// notice is how long that may go unnoticed.
	notice time.Duration
}

// leaderTests is what two Leaders promise each other, whatever the place of their locks.
var leaderTests = []struct {
	name string
	test func(t *testing.T, p *leaderPlace)
}{
	{"OneLeads", testLeadersOneLeads},
	{"HandOver", testLeadersHandOver},
	{"TryIsRefused", testLeadersTryIsRefused},
	{"Resign", testLeadersResign},
	{"Drain", testLeadersDrain},
	{"Loss", testLeadersLoss},
	{"LossAlone", testLeadersLossAlone},
	{"SecondRun", testLeadersSecondRun},
	{"EndOfContext", testLeadersEndOfContext},
	{"Holder", testLeadersHolder},
	{"StepDown", testLeadersStepDown},
	{"Join", testLeadersJoin},
}

func TestLeadersFake(t *testing.T) {
	for _, c := range leaderTests {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.test(t, fakeLeaders()) })
		})
	}
}

func TestLeadersSQLite(t *testing.T) {
	for _, c := range leaderTests {
		t.Run(c.name, func(t *testing.T) {
			flat(t, "")
			c.test(t, sqliteLeaders(t))
		})
	}
}

func TestLeadersPostgres(t *testing.T) {
	dsn := pgtest.URL(t)
	for _, c := range leaderTests {
		t.Run(c.name, func(t *testing.T) {
			flat(t, dsn)
			c.test(t, postgresLeaders(dsn))
		})
	}
}

func fakeLeaders() *leaderPlace {
	st := newFakeStore()
	backends := make(map[*Leader]*fakeBackend)
	return &leaderPlace{
		notice: 0,
		leader: func(t *testing.T, opts Options) *Leader {
			t.Helper()
			l, b := st.leader(t, opts)
			backends[l] = b
			return l
		},
		lose: func(_ *testing.T, l *Leader, _ string) { backends[l].session().terminate() },
	}
}

func sqliteLeaders(t *testing.T) *leaderPlace {
	t.Helper()
	path, db := sqliteNewFile(t)
	return &leaderPlace{
		notice: 500 * time.Millisecond, // one Check, and a slow machine
		leader: func(t *testing.T, opts Options) *Leader {
			t.Helper()
			opts.Check = 50 * time.Millisecond
			return newLeader(t, SQLite(db), opts)
		},
		lose: func(t *testing.T, l *Leader, name string) {
			t.Helper()
			loseFiles(t, path, Key(l.Status().Namespace, name))
		},
	}
}

func postgresLeaders(dsn string) *leaderPlace {
	return &leaderPlace{
		notice: 200 * time.Millisecond,
		leader: func(t *testing.T, opts Options) *Leader {
			t.Helper()
			return newLeader(t, Postgres(dsn), opts)
		},
		lose: func(t *testing.T, l *Leader, _ string) {
			t.Helper()
			pgtest.Exec(t, dsn, "SELECT pg_terminate_backend($1)", l.Status().SessionPID)
		},
	}
}

// newLeader returns a Leader that resigns when the test ends.
func newLeader(t *testing.T, b Backend, opts Options) *Leader {
	t.Helper()
	l, err := New(b, opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		assert.NoError(t, l.Resign(ctx))
	})
	return l
}

const soon = 10 * time.Second

// await waits until name runs on node, and returns when that began.
func (r *recorder) await(t *testing.T, name, node string) interval {
	t.Helper()
	var last interval
	poll(t, soon, name+" runs on "+node, func() bool {
		runs := r.of(name, node)
		if len(runs) == 0 {
			return false
		}
		last = runs[len(runs)-1]
		return last.told.IsZero()
	})
	return last
}

// pair is two Leaders, of which a leads x and b stands by.
func (p *leaderPlace) pair(t *testing.T, r *recorder, drain time.Duration) (a, b *Leader, runA, runB *call, stopA context.CancelFunc) {
	t.Helper()
	draining := func(interval) time.Duration { return drain }
	a = p.leader(t, Options{Node: "a", Retry: 100 * time.Millisecond})
	b = p.leader(t, Options{Node: "b", Retry: 100 * time.Millisecond})
	ctxA, stopA := context.WithCancel(t.Context())
	t.Cleanup(stopA)
	runA = goRun(ctxA, a, "x", r.task("a", "x", draining))
	r.await(t, "x", "a")
	runB = goRun(t.Context(), b, "x", r.task("b", "x", draining))
	poll(t, soon, "b contends", func() bool { return taskOf(b.Status(), "x").State == StateContending })
	return a, b, runA, runB, stopA
}

func (c *call) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(soon):
		require.Fail(t, "the call does not return")
	}
	return c.err
}

func testLeadersOneLeads(t *testing.T, p *leaderPlace) {
	t.Helper()
	r := &recorder{}
	a, b, _, _, _ := p.pair(t, r, 0)
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		require.True(t, a.IsLeading("x"))
		require.False(t, b.IsLeading("x"))
		require.NoError(t, Confirm(r.of("x", "a")[0].ctx))
	}
	assert.Equal(t, []string{"x"}, a.Leading())
	assert.Empty(t, b.Leading())
	assert.Len(t, r.get(nil), 1)
}

func testLeadersHandOver(t *testing.T, p *leaderPlace) {
	t.Helper()
	r := &recorder{}
	a, b := p.leader(t, Options{Node: "a"}), p.leader(t, Options{Node: "b"})
	done := errors.New("done")
	release := make(chan struct{})
	first := goRun(t.Context(), a, "x", func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		go func() { // ends when the test releases it
			<-release
			cancel()
		}()
		_ = r.task("a", "x", nil)(ctx)
		return done
	})
	r.await(t, "x", "a")
	second := goRun(t.Context(), b, "x", r.task("b", "x", nil))
	poll(t, soon, "b contends", func() bool { return taskOf(b.Status(), "x").State == StateContending })
	close(release)
	require.ErrorIs(t, first.wait(t), done)
	r.await(t, "x", "b")
	assert.Zero(t, r.overlap())
	require.NoError(t, b.Resign(t.Context()))
	require.ErrorIs(t, second.wait(t), ErrResigned)
}

func testLeadersTryIsRefused(t *testing.T, p *leaderPlace) {
	t.Helper()
	r := &recorder{}
	a, b, _, _, stopA := p.pair(t, r, 0)
	for _, l := range []*Leader{a, b} {
		ran, err := l.Try(t.Context(), "x", func(context.Context) error { t.Error("it ran"); return nil })
		assert.NoError(t, err)
		assert.False(t, ran)
	}
	ran, err := b.Try(t.Context(), "y", func(context.Context) error { return errTask })
	assert.True(t, ran)
	assert.ErrorIs(t, err, errTask)
	stopA()
	r.await(t, "x", "b")
	ran, err = a.Try(t.Context(), "x", func(context.Context) error { t.Error("it ran"); return nil })
	assert.NoError(t, err)
	assert.False(t, ran)
}

func testLeadersResign(t *testing.T, p *leaderPlace) {
	t.Helper()
	r := &recorder{}
	a, b, runA, runB, _ := p.pair(t, r, 20*time.Millisecond)
	require.NoError(t, a.Resign(t.Context()))
	assert.ErrorIs(t, runA.wait(t), ErrResigned)
	r.await(t, "x", "b")
	assert.Zero(t, r.overlap())
	assert.ErrorIs(t, r.of("x", "a")[0].cause, ErrResigned)
	assert.ErrorIs(t, a.Run(t.Context(), "x", obey), ErrResigned)
	require.NoError(t, b.Resign(t.Context()))
	assert.ErrorIs(t, runB.wait(t), ErrResigned)
}

// testLeadersDrain is C19: the lock stays held while the work stops, which takes several Retrys and Checks.
func testLeadersDrain(t *testing.T, p *leaderPlace) {
	t.Helper()
	r := &recorder{}
	_, _, runA, _, stopA := p.pair(t, r, 700*time.Millisecond)
	stopA()
	assert.ErrorIs(t, runA.wait(t), context.Canceled)
	next := r.await(t, "x", "b")
	first := r.of("x", "a")[0]
	assert.Zero(t, r.overlap())
	assert.GreaterOrEqual(t, next.start.Sub(first.told), 700*time.Millisecond)
}

func testLeadersLoss(t *testing.T, p *leaderPlace) {
	t.Helper()
	r := &recorder{}
	a, _, runA, _, _ := p.pair(t, r, 0)
	before := a.Status()
	lost := time.Now()
	p.lose(t, a, "x")
	poll(t, soon, "the task is told", func() bool { return !r.of("x", "a")[0].told.IsZero() })
	first := r.of("x", "a")[0]
	assert.ErrorIs(t, first.cause, ErrLost)
	assert.ErrorIs(t, Confirm(first.ctx), ErrLost)
	assert.LessOrEqual(t, first.told.Sub(lost), p.notice+100*time.Millisecond)
	poll(t, soon, "another run, here or there", func() bool { return len(r.running("x")) == 1 && len(r.get(nil)) > 1 })
	assert.LessOrEqual(t, r.overlap(), p.notice)
	assert.False(t, runA.returned(), "it contends again")
	assert.Equal(t, uint64(1), taskOf(a.Status(), "x").Losses)
	assert.GreaterOrEqual(t, a.Status().Losses, before.Losses)
}

// testLeadersLossAlone is C06: nobody else is there, so the lock is had again at once, and the task hears of the gap.
func testLeadersLossAlone(t *testing.T, p *leaderPlace) {
	t.Helper()
	r := &recorder{}
	l := p.leader(t, Options{Node: "a", Retry: 100 * time.Millisecond})
	goRun(t.Context(), l, "x", r.task("a", "x", func(interval) time.Duration { return 50 * time.Millisecond }))
	for n := range 3 {
		r.await(t, "x", "a")
		require.Len(t, r.get(nil), n+1)
		p.lose(t, l, "x")
		poll(t, soon, "another run", func() bool { return len(r.get(nil)) == n+2 })
	}
	assert.Zero(t, r.overlap(), "never two at once in one process")
	for _, i := range r.get(nil)[:3] {
		assert.ErrorIs(t, i.cause, ErrLost)
	}
	assert.Equal(t, uint64(3), taskOf(l.Status(), "x").Losses)
}

func testLeadersSecondRun(t *testing.T, p *leaderPlace) {
	t.Helper()
	r := &recorder{}
	a, _, _, _, stopA := p.pair(t, r, 0)
	ctx, stop := context.WithCancel(t.Context())
	second := goRun(ctx, a, "x", r.task("a again", "x", nil))
	poll(t, soon, "it stands by", func() bool { return taskOf(a.Status(), "x").Standbys == 1 })
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		require.Len(t, r.running("x"), 1)
	}
	stopA()
	poll(t, soon, "another leads", func() bool { return len(r.running("x")) == 1 && len(r.get(nil)) == 2 })
	stop()
	assert.ErrorIs(t, second.wait(t), context.Canceled)
	r.await(t, "x", "b")
	assert.Zero(t, r.overlap())
}

// testLeadersEndOfContext has a task return so soon after the end of its caller's context that Run has not seen that end
// itself yet: it must say ctx.Err() all the same.
func testLeadersEndOfContext(t *testing.T, p *leaderPlace) {
	t.Helper()
	l := p.leader(t, Options{Retry: 100 * time.Millisecond})
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		require.ErrorIs(t, l.Run(ctx, "x", func(ctx context.Context) error {
			go cancel()
			<-ctx.Done()
			return errTask
		}), context.Canceled)
	}
}

func testLeadersHolder(t *testing.T, p *leaderPlace) {
	t.Helper()
	r := &recorder{}
	a, b, _, _, stopA := p.pair(t, r, 0)
	for _, l := range []*Leader{a, b} {
		h, err := l.Holder(t.Context(), "x")
		require.NoError(t, err)
		assert.True(t, h.Held)
		assert.Equal(t, "a", h.Node)
	}
	stopA()
	r.await(t, "x", "b")
	h, err := a.Holder(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, "b", h.Node)
	h, err = a.Holder(t.Context(), "nobody's")
	require.NoError(t, err)
	assert.False(t, h.Held)
}
