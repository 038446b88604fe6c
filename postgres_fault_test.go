// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// The timings of these tests are shorter than anybody would choose, but far longer than a statement takes under the race
// detector on a busy machine.
const (
	faultRetry   = 200 * time.Millisecond
	faultCheck   = 200 * time.Millisecond
	faultLease   = time.Second
	faultTimeout = 2 * time.Second
	faultStop    = faultTimeout - faultLease // what a task may take to stop

	// promptly is the lateness that the documentation allows, and slack what the race detector and the neighbours of
	// the test may add to it.
	promptly = 100 * time.Millisecond
	slack    = 200 * time.Millisecond
	// takeoverTime is how long a free lock may stay free: 1.3 Retry, and what a busy machine makes of that, where two slow
	// tries in a row make the next one wait for 20 times as long.
	takeoverTime = faultRetry*13/10 + 5*slack
)

func faultOptions(t *testing.T, node string) Options {
	t.Helper()
	return Options{
		Node: node, Namespace: t.Name(),
		Retry: faultRetry, Check: faultCheck, Lease: faultLease, SessionTimeout: faultTimeout,
	}
}

// hostOf returns the host:port that dsn leads to.
func hostOf(t *testing.T, dsn string) string {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	return fmt.Sprintf("%s:%d", config.Host, config.Port)
}

// onSession has the worker of l's session run f in between its statements.
func onSession(t *testing.T, l *Leader, f func(*pgSession) error) {
	t.Helper()
	done := make(chan error, 1)
	poll(t, soon, "the session is at rest", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.current == nil || l.current.busy {
			return false
		}
		l.orderLocked(func(s session) error {
			done <- f(s.(*pgSession))
			return nil
		}, func(error) {})
		return true
	})
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(soon):
		require.Fail(t, "the session does not answer")
	}
}

func execOn(t *testing.T, l *Leader, sql string, args ...any) {
	t.Helper()
	onSession(t, l, func(s *pgSession) error {
		s.dear = 0 // on a slow machine locks are counted less often
		_, err := s.conn.Exec(context.Background(), sql, args...)
		return err
	})
}

// setDial moves the next dial of l, and has it forget that the last ones came to nothing.
func setDial(l *Leader, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		l.failures, l.dialAt = 0, at
		l.poke()
	}
}

func workersOf(l *Leader) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.workers
}

func contends(l *Leader, name string) func() bool {
	return func() bool { return taskOf(l.Status(), name).State == StateContending }
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// holderPID returns the process that holds the lock of name at the server, or 0.
func holderPID(t *testing.T, conn *pgx.Conn, namespace, name string) (pid uint32) {
	t.Helper()
	key := uint64(Key(namespace, name))
	err := conn.QueryRow(context.Background(), `SELECT coalesce(max(pid), 0) FROM pg_locks
		WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND classid = $1 AND objid = $2`,
		uint32(key>>32), uint32(key)).Scan(&pid)
	require.NoError(t, err)
	return pid
}

// TestPostgresKill is C01: the server ends the session of whoever leads, with 20 names on it, again and again.
func TestPostgresKill(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	testPostgresKill(t, dsn, 30)
}

func testPostgresKill(t *testing.T, dsn string, rounds int) {
	t.Helper()
	const names = 20
	r := &recorder{}
	leaders := make(map[string]*Leader)
	for _, node := range []string{"a", "b"} {
		l := newLeader(t, Postgres(dsn), faultOptions(t, node))
		leaders[node] = l
		for n := range names {
			name := fmt.Sprint(n)
			goRun(t.Context(), l, name, r.task(node, name, nil))
		}
	}
	admin := pgtest.Connect(t, dsn)
	leads := func() map[string][]interval {
		on := make(map[string][]interval)
		for _, i := range r.get(func(i interval) bool { return i.told.IsZero() }) {
			on[i.node] = append(on[i.node], i)
		}
		return on
	}
	var notices, spreads []time.Duration
	var worst time.Duration
	killed := 0
	for range rounds {
		poll(t, soon, "all names are led", func() bool { on := leads(); return len(on["a"])+len(on["b"]) == names })
		on, node := leads(), "a"
		if len(on["b"]) > len(on["a"]) {
			node = "b"
		}
		l := leaders[node]
		killed += len(on[node])
		at := time.Now()
		_, err := admin.Exec(t.Context(), "SELECT pg_terminate_backend($1)", l.Status().SessionPID)
		require.NoError(t, err)
		poll(t, soon, "all are told", func() bool {
			return len(r.get(func(i interval) bool { return i.node == node && i.start.Before(at) && i.told.IsZero() })) == 0
		})
		setDial(l, time.Now().Add(2*faultRetry)) // the other one is to have them all
		var first, last time.Duration
		for _, i := range on[node] {
			i = r.get(func(j interval) bool { return j.ctx == i.ctx })[0]
			require.ErrorIs(t, i.cause, ErrLost)
			require.ErrorContains(t, i.cause, "terminating connection due to administrator command")
			if first == 0 {
				first = i.told.Sub(at)
			}
			first, last = min(first, i.told.Sub(at)), max(last, i.told.Sub(at))
		}
		notices, spreads, worst = append(notices, last), append(spreads, last-first), max(worst, last)
	}
	overlap := r.overlap()
	m := median(notices)
	t.Logf("%d kills, %d leaderships: last of the tasks told after %v median, %v at worst; spread %v median; longest overlap %v",
		rounds, killed, m, worst, median(spreads), overlap)
	assert.Less(t, m, 10*10*time.Millisecond)
	assert.Less(t, worst, promptly+2*slack)
	assert.LessOrEqual(t, overlap, worst+5*time.Millisecond, "no longer than the notice takes")
}

// TestPostgresBlackHole is C02: packets vanish and nothing is closed.
func TestPostgresBlackHole(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	for _, c := range holes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testPostgresBlackHole(t, dsn, c)
		})
	}
}

type hole struct {
	name     string
	up, down bool
	mid      bool // it opens under a statement, rather than while the session waits
}

var holes = []hole{
	{"BothIdle", true, true, false},
	{"BothMid", true, true, true},
	{"UpIdle", true, false, false},
	{"UpMid", true, false, true},
	{"DownIdle", false, true, false},
	{"DownMid", false, true, true},
}

// strands tells whether a session that is silent in h stays with the server of dsn until the network is back. From 14
// on, idle_session_timeout ends it. PostgreSQL 13 asks only the kernel of the other side, and here that is the proxy's,
// which is well and answers.
func (h hole) strands(t *testing.T, dsn string) bool {
	t.Helper()
	var version int
	require.NoError(t, pgtest.Connect(t, dsn).QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version))
	return h.up && version < 140000
}

// holdsFor requires that is stays true for d.
func holdsFor(t *testing.T, d time.Duration, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		require.True(t, is(), what)
	}
}

// never requires that cond stays false for d.
func never(t *testing.T, d time.Duration, what string, cond func() bool) {
	t.Helper()
	holdsFor(t, d, "never: "+what, func() bool { return !cond() })
}

// digger opens a hole under the first connection of a proxy.
type digger struct {
	proxy  *pgtest.Proxy
	hole   hole
	armed  atomic.Bool
	opened atomic.Bool
	since  atomic.Pointer[time.Time] // it is open, if by a statement
	lastUp atomic.Pointer[time.Time] // of the first connection, and not into the hole
}

func dig(proxy *pgtest.Proxy, h hole) *digger {
	d := &digger{proxy: proxy, hole: h}
	d.lastUp.Store(&time.Time{})
	proxy.OnClient(func(conn int, _ []byte) {
		if conn != 1 {
			return
		}
		if d.armed.CompareAndSwap(true, false) {
			proxy.Swallow(h.up, h.down)
			now := time.Now()
			d.since.Store(&now)
			d.opened.Store(true)
		}
		if !d.opened.Load() || !h.up {
			now := time.Now()
			d.lastUp.Store(&now)
		}
	})
	return d
}

// open opens the hole under the next statement, or after the next answer.
func (d *digger) open(t *testing.T) {
	t.Helper()
	if d.hole.mid {
		d.armed.Store(true)
		poll(t, soon, "a statement", d.opened.Load)
		return
	}
	from := time.Now()
	poll(t, soon, "an answer", func() bool {
		up := *d.lastUp.Load()
		return up.After(from) && d.proxy.LastDown().After(up)
	})
	d.opened.Store(true)
	d.proxy.Swallow(d.hole.up, d.hole.down)
}

func testPostgresBlackHole(t *testing.T, dsn string, h hole) {
	t.Helper()
	stranded := h.strands(t, dsn)
	proxy := pgtest.NewProxy(t, hostOf(t, dsn))
	d := dig(proxy, h)
	a := newLeader(t, Postgres(proxy.URL(dsn)), faultOptions(t, "a"))
	b := newLeader(t, Postgres(dsn), faultOptions(t, "b"))
	r := &recorder{}
	var goodbyes, dials atomic.Int64
	goRun(t.Context(), a, "x", r.task("a", "x", func(i interval) time.Duration {
		if !errors.Is(i.cause, ErrLost) {
			return 0
		}
		time.Sleep(faultStop)
		goodbyes.Store(proxy.Count('X'))
		dials.Store(int64(proxy.Accepted()))
		return 0
	}))
	r.await(t, "x", "a")
	goRun(t.Context(), b, "x", r.task("b", "x", nil))
	poll(t, soon, "b contends", contends(b, "x"))

	d.open(t)
	poll(t, soon, "the task is told", func() bool { return !r.of("x", "a")[0].told.IsZero() })
	assert.False(t, a.IsLeading("x"))
	due := d.lastUp.Load().Add(faultTimeout)
	if stranded {
		never(t, time.Until(due.Add(takeoverTime)), "somebody leads", func() bool { return len(r.running("x")) > 0 })
		due = time.Now()
		proxy.OnClient(nil)
		proxy.Heal() // which resets the connection, so now the server knows
	}
	poll(t, soon, "a successor", func() bool { return len(r.get(nil)) == 2 })
	poll(t, soon, "the task returns", func() bool { return !r.of("x", "a")[0].end.IsZero() })

	was, next := r.of("x", "a")[0], r.get(nil)[1]
	late := was.told.Sub(was.proved.Add(faultLease))
	freed := next.start.Sub(due)
	t.Logf("told %v after the lease; the successor on %s %v after the server could know; overlap %v", late, next.node, freed, r.overlap())
	assert.ErrorIs(t, was.cause, ErrLost)
	assert.ErrorIs(t, Confirm(was.ctx), ErrLost)
	assert.GreaterOrEqual(t, late, time.Duration(0), "not before the lease ends")
	assert.LessOrEqual(t, late, promptly+slack)
	assert.LessOrEqual(t, r.overlap(), max(late, 0)+5*time.Millisecond, "a task that takes all its time overlaps by no more than its notice came late")
	assert.LessOrEqual(t, freed, takeoverTime)
	if next.start.Before(was.end) {
		assert.GreaterOrEqual(t, freed, -5*time.Millisecond, "the server alone has freed the lock")
	}
	assert.Zero(t, goodbyes.Load(), "no goodbye while the task runs")
	assert.EqualValues(t, 1, dials.Load(), "nor a cancel request")

	if !stranded {
		assert.Equal(t, "b", next.node, "a cannot know that the lock is free")
	}
	proxy.OnClient(nil)
	proxy.Heal()
	poll(t, soon, "a contends again, or leads", func() bool {
		s := a.Status()
		return s.Connected && s.Retired == 0 && (taskOf(s, "x").State == StateContending) == (next.node == "b")
	})
	poll(t, soon, "nobody sits in the dead read", func() bool { return workersOf(a) == 1 })
	require.NoError(t, b.Resign(t.Context()))
	r.await(t, "x", "a")
	assert.Len(t, r.of("x", "a"), 2)
}

// TestPostgresLateAnswer is C03: trust counts from when a proof was sent, and a late answer revives nothing.
func TestPostgresLateAnswer(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	for _, part := range []float64{0.5, 0.95, 1.5} {
		t.Run(fmt.Sprint(part), func(t *testing.T) {
			t.Parallel()
			testPostgresLateAnswer(t, dsn, time.Duration(part*float64(faultLease)))
		})
	}
}

func testPostgresLateAnswer(t *testing.T, dsn string, delay time.Duration) {
	t.Helper()
	proxy := pgtest.NewProxy(t, hostOf(t, dsn))
	opts := faultOptions(t, "a")
	opts.Check = faultLease / 50 // or the trust in the proof before would end first
	l := newLeader(t, Postgres(proxy.URL(dsn)), opts)
	r := &recorder{}
	release := make(chan struct{})
	goRun(t.Context(), l, "x", func(ctx context.Context) error {
		return r.task("a", "x", func(i interval) time.Duration {
			if errors.Is(i.cause, ErrLost) {
				<-release // until the late answer is there
			}
			return 0
		})(ctx)
	})
	first := r.await(t, "x", "a")
	g := grantOf(first.ctx)

	sent := make(chan time.Time, 1)
	var armed atomic.Bool
	armed.Store(true)
	proxy.OnClient(func(conn int, _ []byte) {
		if conn == 1 && armed.CompareAndSwap(true, false) {
			sent <- time.Now()
			proxy.Delay(delay)
		}
	})
	at := <-sent
	poll(t, soon, "the late answer", func() bool { return proxy.LastDown().After(at) })
	landed := time.Now()
	proxy.Heal()
	assert.GreaterOrEqual(t, landed.Sub(at), delay)
	counted := func() time.Time { return g.lease.clock.epoch.Add(g.lease.sent.Load().mono) }
	told := func() bool { return !r.of("x", "a")[0].told.IsZero() }
	poll(t, soon, "a later proof, or the loss", func() bool { return told() || counted().After(at) })
	close(release)
	was := r.of("x", "a")[0]
	t.Logf("the answer came after %v: lost %t", landed.Sub(at), !was.told.IsZero())
	switch {
	case was.told.IsZero():
		assert.Less(t, delay, faultLease)
		assert.NoError(t, Confirm(was.ctx))
	default:
		late := was.told.Sub(was.proved.Add(faultLease))
		assert.LessOrEqual(t, was.told.Sub(at), faultLease+promptly+slack, "no trust from the arrival")
		assert.GreaterOrEqual(t, late, time.Duration(0))
		assert.LessOrEqual(t, late, promptly+slack)
	}
	if delay > faultLease {
		require.False(t, was.told.IsZero())
		assert.True(t, was.told.Before(landed), "told before the answer lands")
		assert.ErrorIs(t, Confirm(was.ctx), ErrLost)
		poll(t, soon, "led anew", func() bool { return len(r.running("x")) == 1 })
		assert.ErrorIs(t, Confirm(was.ctx), ErrLost, "for good")
		assert.Zero(t, r.overlap())
	} else if delay <= faultLease/2 {
		assert.True(t, was.told.IsZero(), "half a lease is no loss: %v", was.cause)
	}
}

// TestPostgresCut is the end of the connection that comes with a sign.
func TestPostgresCut(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	for name, cut := range map[string]func(*pgtest.Proxy){"RST": (*pgtest.Proxy).Reset, "FIN": (*pgtest.Proxy).CutFIN} {
		t.Run(name, func(t *testing.T) { testPostgresCut(t, dsn, cut) })
	}
}

func testPostgresCut(t *testing.T, dsn string, cut func(*pgtest.Proxy)) {
	t.Helper()
	proxy := pgtest.NewProxy(t, hostOf(t, dsn))
	l := newLeader(t, Postgres(proxy.URL(dsn)), faultOptions(t, "a"))
	r := &recorder{}
	goRun(t.Context(), l, "x", r.task("a", "x", nil))
	var notices []time.Duration
	for n := range 10 {
		r.await(t, "x", "a")
		at := time.Now()
		cut(proxy)
		poll(t, soon, "the task is told", func() bool { return !r.get(nil)[n].told.IsZero() })
		setDial(l, time.Now())
		i := r.get(nil)[n]
		assert.ErrorIs(t, i.cause, ErrLost)
		assert.ErrorContains(t, i.cause, "has closed the connection without a word")
		notices = append(notices, i.told.Sub(at))
		poll(t, soon, "led anew", func() bool { return len(r.get(nil)) == n+2 })
	}
	t.Logf("told after %v median, %v at worst", median(notices), notices[len(notices)-1])
	assert.Less(t, median(notices), promptly)
	assert.Zero(t, r.overlap())
	assert.Equal(t, 0, l.Status().Retired, "the server has ended these sessions")
}

// TestPostgresGiveUp gives a session up in each way that there is, under a task that takes all the time that it may: nothing of
// ours frees the lock before the task has returned.
func TestPostgresGiveUp(t *testing.T) {
	flat(t, pgtest.URL(t))
	for name, give := range map[string]func(t *testing.T, dsn string, a *Leader, proxy *pgtest.Proxy){
		"Lease": func(_ *testing.T, _ string, _ *Leader, proxy *pgtest.Proxy) { proxy.Stall(false, true) },
		"Unlock": func(t *testing.T, dsn string, a *Leader, _ *pgtest.Proxy) { // 42501, on a session that lives
			t.Helper()
			pgtest.Exec(t, dsn, "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_advisory_unlock(bigint) FROM PUBLIC")
			a.mu.Lock()
			defer a.mu.Unlock()
			a.frees = append(a.frees, a.slots["y"].key) // as if its task had returned
			a.poke()
		},
		"ReadOnly": func(t *testing.T, _ string, a *Leader, _ *pgtest.Proxy) {
			t.Helper()
			execOn(t, a, "SET default_transaction_read_only = on")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.URL(t)
			testPostgresGiveUp(t, dsn, func(a *Leader, proxy *pgtest.Proxy) { give(t, dsn, a, proxy) })
		})
	}
}

// weakRole makes a role that is no superuser, and returns the URL for it.
func weakRole(t *testing.T, dsn string) string {
	t.Helper()
	role := fmt.Sprintf("leader_test_%08x", rand.Uint32())
	pgtest.Exec(t, dsn, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret'")
	t.Cleanup(func() { pgtest.Exec(t, dsn, "DROP ROLE "+role) })
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.User = url.UserPassword(role, "secret")
	return u.String()
}

func testPostgresGiveUp(t *testing.T, dsn string, give func(*Leader, *pgtest.Proxy)) {
	t.Helper()
	weak := weakRole(t, dsn)
	proxy := pgtest.NewProxy(t, hostOf(t, dsn))
	a := newLeader(t, Postgres(proxy.URL(weak)), faultOptions(t, "a"))
	b := newLeader(t, Postgres(dsn), faultOptions(t, "b"))
	r := &recorder{}
	var goodbyes, dials atomic.Int64
	goRun(t.Context(), a, "x", r.task("a", "x", func(interval) time.Duration {
		time.Sleep(faultStop)
		goodbyes.Store(proxy.Count('X'))
		dials.Store(int64(proxy.Accepted()))
		return 0
	}))
	goRun(t.Context(), a, "y", r.task("a", "y", func(interval) time.Duration { return faultTimeout }))
	r.await(t, "x", "a")
	r.await(t, "y", "a")
	goRun(t.Context(), b, "x", r.task("b", "x", nil))
	poll(t, soon, "b contends", contends(b, "x"))
	pid := a.Status().SessionPID
	admin := pgtest.Connect(t, dsn)
	give(a, proxy)
	poll(t, soon, "the task is told", func() bool { return !r.of("x", "a")[0].told.IsZero() })
	freedAt := time.Time{}
	poll(t, soon, "the task returns", func() bool {
		if freedAt.IsZero() && holderPID(t, admin, t.Name(), "x") != pid {
			freedAt = time.Now()
		}
		return !r.of("x", "a")[0].end.IsZero()
	})
	was := r.of("x", "a")[0]
	t.Logf("lost by: %v", was.cause)
	assert.ErrorIs(t, was.cause, ErrLost)
	if !freedAt.IsZero() {
		// The server has ended the session, if it has not been asked within the last moments of the task.
		assert.WithinDuration(t, was.end, freedAt, 50*time.Millisecond, "the lock was free while the task ran")
	}
	assert.Zero(t, goodbyes.Load(), "no goodbye while the task runs")
	assert.EqualValues(t, 1, dials.Load(), "nor a cancel request")
	proxy.Heal()
	x := func(i interval) bool { return i.name == "x" }
	poll(t, soon, "a successor, here or there", func() bool { return len(r.get(x)) == 2 })
	next := r.get(x)[1]
	t.Logf("the successor on %s %v after the return; overlap %v", next.node, next.start.Sub(was.end), r.overlap())
	assert.LessOrEqual(t, r.overlap(), max(0, was.told.Sub(was.proved.Add(faultLease)))+time.Millisecond)
	assert.Less(t, next.start.Sub(was.end), faultTimeout+takeoverTime)
}

// TestPostgresOneLockLost is C07: the connection is fine, and one of its locks is gone.
func TestPostgresOneLockLost(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	proxy := pgtest.NewProxy(t, hostOf(t, dsn))
	a := newLeader(t, Postgres(proxy.URL(dsn)), faultOptions(t, "a"))
	b := newLeader(t, Postgres(dsn), faultOptions(t, "b"))
	r := &recorder{}
	for _, name := range []string{"x", "y", "z"} {
		goRun(t.Context(), a, name, r.task("a", name, nil))
		r.await(t, name, "a")
		goRun(t.Context(), b, name, r.task("b", name, nil))
		poll(t, soon, "b contends", contends(b, name))
	}
	pid := a.Status().SessionPID
	execOn(t, a, "SELECT pg_catalog.pg_advisory_unlock($1)", Key(t.Name(), "x"))
	at := time.Now()
	poll(t, soon, "x is told", func() bool { return !r.of("x", "a")[0].told.IsZero() })
	was := r.of("x", "a")[0]
	assert.ErrorIs(t, was.cause, ErrLost)
	assert.ErrorIs(t, was.cause, errLockGone)
	t.Logf("told after %v", was.told.Sub(at))
	assert.LessOrEqual(t, was.told.Sub(at), faultCheck+slack)
	poll(t, soon, "x is led again", func() bool { return len(r.running("x")) == 1 })
	assert.LessOrEqual(t, r.overlap(), faultCheck+slack)
	assert.Len(t, r.of("y", "a"), 1)
	assert.True(t, a.IsLeading("y") && a.IsLeading("z"), "the others lead on")
	assert.Equal(t, pid, a.Status().SessionPID, "in the same session")
	assert.Zero(t, proxy.Count('X'))

	// And all at once: then the session is not trusted any more.
	execOn(t, a, "SELECT pg_catalog.pg_advisory_unlock_all()")
	for _, name := range []string{"y", "z"} {
		poll(t, soon, name+" is told", func() bool { return !r.of(name, "a")[0].told.IsZero() })
		assert.ErrorIs(t, r.of(name, "a")[0].cause, errLockGone)
		poll(t, soon, name+" is led again", func() bool { return len(r.running(name)) == 1 })
	}
	assert.LessOrEqual(t, r.overlap(), faultCheck+slack)
	poll(t, soon, "another session", func() bool { s := a.Status(); return s.Connected && s.SessionPID != pid })
}

// TestPostgresStuckTask is C25: a task that heeds nothing.
func TestPostgresStuckTask(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	opts := faultOptions(t, "a")
	opts.StopTimeout = faultCheck
	a := newLeader(t, Postgres(dsn), opts)
	b := newLeader(t, Postgres(dsn), faultOptions(t, "b"))
	var runs atomic.Int64
	release := make(chan struct{})
	run := goRun(t.Context(), a, "x", func(context.Context) error { runs.Add(1); <-release; return nil })
	poll(t, soon, "a leads", func() bool { return a.IsLeading("x") })
	r := &recorder{}
	goRun(t.Context(), b, "x", r.task("b", "x", nil))
	poll(t, soon, "b contends", contends(b, "x"))
	pgtest.Exec(t, dsn, "SELECT pg_terminate_backend($1)", a.Status().SessionPID)
	r.await(t, "x", "b")
	assert.False(t, a.IsLeading("x"))
	poll(t, soon, "a says so", func() bool { return taskOf(a.Status(), "x").State == StateOverrun })
	require.NoError(t, b.Resign(t.Context()))
	for end := time.Now().Add(4 * faultRetry); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		require.EqualValues(t, 1, runs.Load(), "no second one beside it")
		require.Zero(t, locks(t, dsn), "nor its lock")
	}
	ctx, cancel := context.WithTimeout(t.Context(), faultRetry)
	defer cancel()
	err := a.Resign(ctx)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.True(t, err != nil && strings.Contains(err.Error(), `"x"`), "%v", err)
	close(release)
	assert.ErrorIs(t, run.wait(t), ErrResigned)
}
