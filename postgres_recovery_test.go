// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresStandbyLosesItsSession is C11: a standby whose session is gone leads all the same when it is its turn, and
// on a session that lives.
func TestPostgresStandbyLosesItsSession(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	t.Run("Kill", func(t *testing.T) {
		t.Parallel()
		testPostgresStandby(t, dsn, func(b *Leader, _ *pgtest.Proxy) {
			pgtest.Exec(t, dsn, "SELECT pg_terminate_backend($1)", b.Status().SessionPID)
		})
	})
	t.Run("BlackHole", func(t *testing.T) {
		t.Parallel()
		testPostgresStandby(t, dsn, func(b *Leader, proxy *pgtest.Proxy) {
			generation := b.Status().Generation
			proxy.Swallow(true, true)
			poll(t, soon, "b gives its session up", func() bool { return b.Status().Generation > generation })
			assert.Equal(t, StateConnecting, taskOf(b.Status(), "x").State)
			proxy.Heal()
		})
	})
	t.Run("BlackHoleUnseen", func(t *testing.T) { // a leaves before b can know
		t.Parallel()
		testPostgresStandby(t, dsn, func(_ *Leader, proxy *pgtest.Proxy) {
			proxy.Swallow(true, true)
			time.AfterFunc(faultLease+faultCheck, proxy.Heal)
		})
	})
}

// leaderAndStandby has a lead x, and b, behind a proxy, wait for it.
func leaderAndStandby(t *testing.T, dsn string) (proxy *pgtest.Proxy, a, b *Leader, r *recorder) {
	t.Helper()
	proxy = pgtest.NewProxy(t, hostOf(t, dsn))
	a = newLeader(t, Postgres(dsn), faultOptions(t, "a"))
	b = newLeader(t, Postgres(proxy.URL(dsn)), faultOptions(t, "b"))
	r = &recorder{}
	goRun(t.Context(), a, "x", r.task("a", "x", nil))
	r.await(t, "x", "a")
	goRun(t.Context(), b, "x", r.task("b", "x", nil))
	poll(t, soon, "b contends", contends(b, "x"))
	return proxy, a, b, r
}

func testPostgresStandby(t *testing.T, dsn string, fault func(b *Leader, proxy *pgtest.Proxy)) {
	t.Helper()
	proxy, a, b, r := leaderAndStandby(t, dsn)
	fault(b, proxy)
	require.NoError(t, a.Resign(t.Context()))
	left := time.Now()
	next := r.await(t, "x", "b")
	t.Logf("leads %v after the resignation", next.start.Sub(left))
	pid := holderPID(t, pgtest.Connect(t, dsn), t.Name(), "x")
	assert.NotZero(t, pid)
	assert.Equal(t, pid, b.Status().SessionPID, "on a live session")
	assert.Zero(t, r.overlap())
}

// TestPostgresLeadsWithoutStacking is C14: after many proofs one unlock frees the lock.
func TestPostgresLeadsWithoutStacking(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	opts := faultOptions(t, "a")
	opts.Check = 20 * time.Millisecond
	l := newLeader(t, Postgres(dsn), opts)
	r := &recorder{}
	goRun(t.Context(), l, "x", r.task("a", "x", nil))
	i := r.await(t, "x", "a")
	proofs := make(map[time.Duration]bool)
	poll(t, soon, "20 proofs", func() bool {
		proofs[grantOf(i.ctx).lease.sent.Load().mono] = true
		return len(proofs) > 20
	})
	assert.Equal(t, 1, locks(t, dsn))
	require.NoError(t, l.Resign(t.Context()))
	assert.Zero(t, locks(t, dsn))
	b := newLeader(t, Postgres(dsn), faultOptions(t, "b"))
	goRun(t.Context(), b, "x", r.task("b", "x", nil))
	r.await(t, "x", "b")
}

// TestPostgresHandover measures clean handovers. Retry is so long that only the notification can be the reason.
func TestPostgresHandover(t *testing.T) {
	const handovers = 50
	dsn := pgtest.URL(t)
	flat(t, dsn)
	r := &recorder{}
	opts := faultOptions(t, "")
	opts.Retry = 30 * time.Second
	leaders := make(map[string]*Leader)
	for _, node := range []string{"a", "b"} {
		opts.Node = node
		leaders[node] = newLeader(t, Postgres(dsn), opts)
	}
	start := func(node string) (*call, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		return goRun(ctx, leaders[node], "x", r.task(node, "x", nil)), cancel
	}
	run, stop := start("a")
	last := r.await(t, "x", "a")
	var gaps []time.Duration
	for range handovers {
		to := map[string]string{"a": "b", "b": "a"}[last.node]
		nextRun, nextStop := start(to)
		poll(t, soon, "the standby has asked in vain", func() bool {
			l := leaders[to]
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.current != nil && !l.current.busy && len(l.contenders) == 1 && len(l.fresh) == 0
		})
		poll(t, soon, "calm", func() bool { return time.Since(last.start) > 2*herdGap })
		stop()
		require.ErrorIs(t, run.wait(t), context.Canceled)
		next := r.await(t, "x", to)
		runs := r.of("x", last.node)
		gaps = append(gaps, next.start.Sub(runs[len(runs)-1].end))
		run, stop, last = nextRun, nextStop, next
	}
	m := median(gaps)
	t.Logf("%d handovers, from the task's return to the successor's start: %v median, %v at worst", handovers, m, gaps[len(gaps)-1])
	assert.Less(t, m, 10*5*time.Millisecond)
	assert.Less(t, gaps[len(gaps)-1], 5*time.Second, "by a notification")
	assert.Zero(t, r.overlap())
}

// TestPostgresManyLosses is C12: what a loss leaves behind would add up.
func TestPostgresManyLosses(t *testing.T) {
	const losses = 200
	dsn := pgtest.URL(t)
	flat(t, dsn)
	l := newLeader(t, Postgres(dsn), faultOptions(t, "a"))
	r := &recorder{}
	goRun(t.Context(), l, "x", r.task("a", "x", nil))
	admin := pgtest.Connect(t, dsn)
	var goroutines, files int
	var gaps []time.Duration
	for n := range losses {
		i := r.await(t, "x", "a")
		require.Len(t, r.get(nil), n+1)
		if n == 10 {
			goroutines, files = len(ourGoroutines()), openFiles()
		}
		at := time.Now()
		_, err := admin.Exec(t.Context(), "SELECT pg_terminate_backend($1)", l.Status().SessionPID)
		require.NoError(t, err)
		<-i.ctx.Done()
		poll(t, soon, "led anew", func() bool {
			setDial(l, time.Now()) // its pauses grow, for a server that ends every session
			return len(r.get(nil)) == n+2
		})
		gaps = append(gaps, time.Since(at))
	}
	t.Logf("%d losses: led anew after %v median, %v at worst", losses, median(gaps), gaps[len(gaps)-1])
	require.NotZero(t, goroutines, "or nothing is counted")
	assert.Zero(t, r.overlap())
	assert.EqualValues(t, losses, l.Status().Losses)
	poll(t, soon, "as many goroutines as in the beginning", func() bool { return len(ourGoroutines()) <= goroutines })
	poll(t, soon, "as many files", func() bool { return openFiles() <= files })
	poll(t, soon, "one session", func() bool { return backends(t, dsn) == 1 })
	assert.Equal(t, 1, locks(t, dsn))
}

// TestPostgresResignIsBounded is C22: on a dead network every call returns in time.
func TestPostgresResignIsBounded(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	for _, h := range holes {
		t.Run("Resign"+h.name, func(t *testing.T) { t.Parallel(); testPostgresResignBounded(t, dsn, h) })
		t.Run("Run"+h.name, func(t *testing.T) { t.Parallel(); testPostgresRunBounded(t, dsn, h) })
	}
}

func testPostgresResignBounded(t *testing.T, dsn string, h hole) {
	t.Helper()
	testPostgresBounded(t, dsn, h, time.Second, func(l *Leader, _ context.CancelFunc, _ *call) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = l.Resign(ctx) // nil or not, as long as it returns
	})
}

func testPostgresRunBounded(t *testing.T, dsn string, h hole) {
	t.Helper()
	testPostgresBounded(t, dsn, h, faultLease, func(_ *Leader, stop context.CancelFunc, run *call) {
		stop()
		assert.ErrorIs(t, run.wait(t), context.Canceled)
	})
}

// TestPostgresReleaseIntoABlackHole has the very statement vanish that gives the lock back, or its answer.
func TestPostgresReleaseIntoABlackHole(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	for _, h := range holes {
		if !h.mid {
			continue
		}
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			stranded := h.strands(t, dsn)
			proxy := pgtest.NewProxy(t, hostOf(t, dsn))
			d := dig(proxy, h)
			a := newLeader(t, Postgres(proxy.URL(dsn)), faultOptions(t, "a"))
			b := newLeader(t, Postgres(dsn), faultOptions(t, "b"))
			r := &recorder{}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			run := goRun(ctx, a, "x", r.task("a", "x", func(interval) time.Duration { d.armed.Store(true); return 0 }))
			r.await(t, "x", "a")
			goRun(t.Context(), b, "x", r.task("b", "x", nil))
			poll(t, soon, "b contends", contends(b, "x"))
			from := time.Now()
			stop()
			assert.ErrorIs(t, run.wait(t), context.Canceled)
			require.True(t, d.opened.Load())
			took := time.Since(*d.since.Load())
			due := d.since.Load().Add(faultTimeout)
			if stranded {
				never(t, time.Until(due.Add(takeoverTime)), "b leads", func() bool { return len(r.of("x", "b")) > 0 })
				due = time.Now()
				proxy.OnClient(nil)
				proxy.Heal() // which resets the connection, so now the server knows
			}
			next := r.await(t, "x", "b")
			t.Logf("returned %v after the hole opened; the successor led %v after the stop", took, next.start.Sub(from))
			assert.LessOrEqual(t, took, faultLease+slack)
			assert.LessOrEqual(t, next.start.Sub(due), takeoverTime)
			assert.Zero(t, r.overlap())
			proxy.OnClient(nil)
			proxy.Heal()
		})
	}
}

func testPostgresBounded(t *testing.T, dsn string, h hole, bound time.Duration, end func(*Leader, context.CancelFunc, *call)) {
	t.Helper()
	proxy := pgtest.NewProxy(t, hostOf(t, dsn))
	d := dig(proxy, h)
	l := newLeader(t, Postgres(proxy.URL(dsn)), faultOptions(t, "a"))
	r := &recorder{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	run := goRun(ctx, l, "x", r.task("a", "x", nil))
	r.await(t, "x", "a")
	d.open(t)
	from := time.Now()
	end(l, stop, run)
	took := time.Since(from)
	t.Logf("returned after %v", took)
	assert.LessOrEqual(t, took, bound+slack)
}

// TestPostgresSilentAddress dials what accepts and never answers.
func TestPostgresSilentAddress(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	for _, mode := range []string{"disable", "require"} {
		t.Run(mode, func(t *testing.T) {
			proxy := pgtest.NewProxy(t, hostOf(t, dsn))
			proxy.Swallow(true, true)
			l := newLeader(t, Postgres("postgres://nobody@"+proxy.Addr()+"/nothing?sslmode="+mode), faultOptions(t, "a"))
			ctx, stop := context.WithCancel(t.Context())
			run := goRun(ctx, l, "x", obey)
			other := goRun(t.Context(), l, "y", obey)
			poll(t, soon, "a dial", func() bool { return proxy.Accepted() > 0 })
			from := time.Now()
			stop()
			assert.ErrorIs(t, run.wait(t), context.Canceled)
			assert.Less(t, time.Since(from), promptly+slack)
			from = time.Now()
			bounded, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			assert.NoError(t, l.Resign(bounded))
			assert.ErrorIs(t, other.wait(t), ErrResigned)
			t.Logf("resigned after %v", time.Since(from))
			assert.Less(t, time.Since(from), promptly+slack)
			poll(t, soon, "the dial ends", func() bool { return proxy.Conns() == 0 })
		})
	}
}
