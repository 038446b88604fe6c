// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// sessionPlace is a place of locks for one test: sessions in it, and what may befall them.
type sessionPlace struct {
	open func(t *testing.T, node string) session // closed when the test ends
	// take takes keys, or all, from s behind its back.
	take func(t *testing.T, s session, keys ...int64)
	// end is the other side ending s; nil where there is no other side.
	end  func(t *testing.T, s session)
	deaf bool // nothing can be told
	// strict: a session that has lost every lock is not trusted any more.
	strict bool
}

// sessionTests is the contract of session.go. Each backend passes all of it, and so does the fake, which therefore cannot
// drift.
var sessionTests = []struct {
	name string
	test func(t *testing.T, p *sessionPlace)
}{
	{"Exclude", testSessionExcludes},
	{"MixedKeys", testSessionMixedKeys},
	{"NoStacking", testSessionDoesNotStack},
	{"Unlock", testSessionUnlock},
	{"Prove", testSessionProve},
	{"ProveAllGone", testSessionProveAllGone},
	{"Interrupts", testSessionInterrupts},
	{"Tell", testSessionTell},
	{"Holders", testSessionHolders},
	{"Close", testSessionCloseFrees},
	{"Kill", testSessionKillFrees},
	{"KillInWait", testSessionKillEndsWait},
	{"Ended", testSessionEnded},
	{"EdgeKeys", testSessionEdgeKeys},
	{"ManyKeys", testSessionManyKeys},
	{"Sent", testSessionSent},
}

func TestConformanceFake(t *testing.T) {
	for _, c := range sessionTests {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.test(t, fakePlace()) })
		})
	}
}

func TestConformanceSQLite(t *testing.T) {
	for _, c := range sessionTests {
		t.Run(c.name, func(t *testing.T) {
			flat(t, "")
			c.test(t, sqlitePlaceOf(t))
		})
	}
}

func TestConformancePostgres(t *testing.T) {
	dsn := pgtest.URL(t)
	for _, c := range sessionTests {
		t.Run(c.name, func(t *testing.T) {
			flat(t, dsn)
			c.test(t, postgresPlace(dsn))
		})
	}
}

func fakePlace() *sessionPlace {
	st := newFakeStore()
	b := &fakeBackend{store: st, faults: make(map[string][]fakeFault), counts: make(map[string]int)}
	return &sessionPlace{
		open: func(t *testing.T, node string) session {
			t.Helper()
			return openSession(t, b, node)
		},
		take: func(_ *testing.T, s session, keys ...int64) {
			if len(keys) == 0 {
				s.(*fakeSession).steal()
			}
			st.set(func() {
				for _, key := range keys {
					delete(st.locks, key)
				}
			})
		},
		end: func(_ *testing.T, s session) { s.(*fakeSession).terminate() },
	}
}

func sqlitePlaceOf(t *testing.T) *sessionPlace {
	t.Helper()
	path, db := sqliteNewFile(t)
	return &sessionPlace{
		deaf: true,
		open: func(t *testing.T, node string) session {
			t.Helper()
			return openSession(t, SQLite(db), node)
		},
		take: func(t *testing.T, _ session, keys ...int64) {
			t.Helper()
			loseFiles(t, path, keys...)
		},
	}
}

// loseFiles has lock files of an SQLite database replaced, as by somebody who tidies up: all, or those of keys.
func loseFiles(t *testing.T, path string, keys ...int64) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open cannot be removed here")
	}
	names, err := filepath.Glob(path + ".leader/????????????????.lock")
	require.NoError(t, err)
	if len(keys) > 0 {
		names = nil
	}
	for _, key := range keys {
		names = append(names, filepath.Join(path+".leader", fmt.Sprintf("%016x.lock", uint64(key))))
	}
	for _, name := range names {
		require.NoError(t, os.Remove(name))
	}
}

func postgresPlace(dsn string) *sessionPlace {
	return &sessionPlace{
		strict: true,
		open: func(t *testing.T, node string) session {
			t.Helper()
			return openSession(t, Postgres(dsn), node)
		},
		take: func(t *testing.T, s session, keys ...int64) {
			t.Helper()
			conn := s.(*pgSession).conn
			s.(*pgSession).dear = 0 // on a slow machine locks are counted less often
			if len(keys) == 0 {
				_, err := conn.Exec(t.Context(), "SELECT pg_catalog.pg_advisory_unlock_all()")
				require.NoError(t, err)
			}
			for _, key := range keys {
				_, err := conn.Exec(t.Context(), "SELECT pg_catalog.pg_advisory_unlock($1)", key)
				require.NoError(t, err)
			}
		},
		end: func(t *testing.T, s session) {
			t.Helper()
			admin, pid := pgtest.Connect(t, dsn), s.about().pid
			_, err := admin.Exec(t.Context(), "SELECT pg_terminate_backend($1)", pid) // 13 has no second argument, to wait
			require.NoError(t, err)
			poll(t, 5*time.Second, "the server process is gone", func() bool {
				var n int
				err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&n)
				return err == nil && n == 0
			})
		},
	}
}

func openSession(t *testing.T, b Backend, node string) session {
	t.Helper()
	opts, err := Options{Node: node}.withDefaults(b)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s, err := b.open(ctx, opts, &clock{epoch: time.Now()})
	require.NoError(t, err)
	t.Cleanup(func() {
		s.close()
		s.kill()
	})
	return s
}

func take(t *testing.T, s session, keys ...int64) []int64 {
	t.Helper()
	held, err := s.try(keys)
	require.NoError(t, err)
	slices.Sort(held)
	return held
}

func give(t *testing.T, s session, keys ...int64) (missing []int64) {
	t.Helper()
	missing, err := s.unlock(keys)
	require.NoError(t, err)
	slices.Sort(missing)
	return missing
}

func proof(t *testing.T, s session) (lost []int64) {
	t.Helper()
	lost, err := s.prove()
	require.NoError(t, err)
	slices.Sort(lost)
	return lost
}

// poll asks until is true: for what happens on another machine's, or another goroutine's, own time.
func poll(t *testing.T, within time.Duration, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			require.Fail(t, "too late", "%s: not within %v", what, within)
		}
	}
}

func testSessionExcludes(t *testing.T, p *sessionPlace) {
	t.Helper()
	a, b := p.open(t, "a"), p.open(t, "b")
	assert.Equal(t, a.about().namespace, b.about().namespace)
	assert.Equal(t, []int64{7}, take(t, a, 7))
	for range 3 {
		assert.Empty(t, take(t, b, 7))
	}
	assert.Empty(t, give(t, a, 7))
	assert.Equal(t, []int64{7}, take(t, b, 7))
	assert.Empty(t, take(t, a, 7))
	assert.Empty(t, give(t, b, 7))
}

func testSessionMixedKeys(t *testing.T, p *sessionPlace) {
	t.Helper()
	a, b := p.open(t, "a"), p.open(t, "b")
	assert.Equal(t, []int64{2, 4, 6}, take(t, a, 6, 2, 4))
	assert.Equal(t, []int64{1, 3, 5}, take(t, b, 1, 2, 3, 4, 5, 6))
	assert.Empty(t, take(t, a, 1, 3, 5))
	assert.Empty(t, take(t, a))
	assert.Empty(t, give(t, a, 2, 4))
	assert.Equal(t, []int64{2, 4}, take(t, b, 2, 4, 6))
	assert.Empty(t, proof(t, a))
	assert.Empty(t, proof(t, b))
}

// testSessionDoesNotStack is C14: proofs, refused tries and second tries by others must not raise a count.
func testSessionDoesNotStack(t *testing.T, p *sessionPlace) {
	t.Helper()
	a, b := p.open(t, "a"), p.open(t, "b")
	for range 20 {
		require.Equal(t, []int64{1}, take(t, a, 1))
		require.Empty(t, proof(t, a))
		require.Empty(t, take(t, b, 1))
		require.Empty(t, give(t, a, 1))
		require.Equal(t, []int64{1}, take(t, b, 1))
		require.Empty(t, give(t, b, 1))
	}
}

func testSessionUnlock(t *testing.T, p *sessionPlace) {
	t.Helper()
	a, b := p.open(t, "a"), p.open(t, "b")
	take(t, a, 1, 2)
	take(t, b, 3)
	assert.Equal(t, []int64{3, 4}, give(t, a, 1, 3, 4), "not held here, or by nobody")
	assert.Empty(t, take(t, a, 3), "still held there")
	p.take(t, a, 2)
	assert.Equal(t, []int64{2}, give(t, a, 2))
	assert.Empty(t, proof(t, a), "what was given back is not missed")
	assert.Equal(t, []int64{1, 2}, take(t, b, 1, 2))
}

func testSessionProve(t *testing.T, p *sessionPlace) {
	t.Helper()
	a, b := p.open(t, "a"), p.open(t, "b")
	assert.Empty(t, proof(t, a), "with no lock")
	take(t, a, 1, 2, 3)
	for range 3 {
		assert.Empty(t, proof(t, a))
	}
	p.take(t, a, 2)
	assert.Equal(t, []int64{2}, proof(t, a))
	assert.Empty(t, proof(t, a), "told once")
	assert.Equal(t, []int64{2}, take(t, b, 1, 2, 3))
	assert.Empty(t, take(t, a, 2))
	give(t, b, 2)
	assert.Equal(t, []int64{2}, take(t, a, 2), "may be held again")
	assert.Empty(t, proof(t, a))
}

func testSessionProveAllGone(t *testing.T, p *sessionPlace) {
	t.Helper()
	a, b := p.open(t, "a"), p.open(t, "b")
	take(t, a, 1, 2, 3)
	p.take(t, a)
	if p.strict {
		_, err := a.prove()
		var over *sessionError
		require.ErrorAs(t, err, &over)
		require.ErrorIs(t, err, errLockGone)
		assert.False(t, over.ended, "nobody has said that it ended")
		assert.Equal(t, []int64{1, 2, 3}, take(t, b, 1, 2, 3))
		return
	}
	assert.Equal(t, []int64{1, 2, 3}, proof(t, a))
	assert.Equal(t, []int64{1, 2, 3}, take(t, b, 1, 2, 3))
	assert.Empty(t, proof(t, a))
	assert.Equal(t, []int64{4}, take(t, a, 1, 4), "the session lives")
}

// testSessionInterrupts is how a worker uses its session: a wait that is interrupted at any time, statements in between,
// and nothing that was told may be lost.
func testSessionInterrupts(t *testing.T, p *sessionPlace) {
	t.Helper()
	const interrupts = 1000
	a, b := p.open(t, "a"), p.open(t, "b")
	stop := make(chan struct{})
	var told []int64
	var teller sync.WaitGroup
	teller.Go(func() { // until stop is closed
		for key := int64(1); ; key++ {
			select {
			case <-stop:
				return
			case <-time.After(rand.N(time.Millisecond)):
			}
			if !assert.NoError(t, a.tell([]int64{key, -key})) {
				return
			}
			told = append(told, key, -key)
		}
	})
	var heard []int64
	for i := range interrupts {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(rand.N(500*time.Microsecond), cancel)
		keys, err := b.wait(ctx)
		require.NoError(t, err)
		heard = append(heard, keys...)
		timer.Stop()
		cancel()
		if i%4 == 0 {
			require.Empty(t, proof(t, b))
		}
	}
	close(stop)
	teller.Wait()
	require.NotEmpty(t, told)
	if p.deaf {
		assert.Empty(t, heard)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for len(heard) < len(told) && ctx.Err() == nil {
		keys, err := b.wait(ctx)
		require.NoError(t, err)
		heard = append(heard, keys...)
	}
	assert.Equal(t, told, heard, "all, in order")
}

func testSessionTell(t *testing.T, p *sessionPlace) {
	t.Helper()
	a, b, c := p.open(t, "a"), p.open(t, "b"), p.open(t, "c")
	want := []int64{1, -1, math.MaxInt64, math.MinInt64}
	for key := range int64(1000) { // beyond one notification
		want = append(want, key+10)
	}
	require.NoError(t, a.tell(want))
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	for _, s := range []session{b, c} {
		var heard []int64
		for end := time.Now().Add(10 * time.Second); !p.deaf && len(heard) < len(want) && time.Now().Before(end); {
			keys, err := s.wait(short())
			require.NoError(t, err)
			heard = append(heard, keys...)
		}
		if !p.deaf {
			assert.Equal(t, want, heard)
		}
		keys, err := s.wait(short())
		require.NoError(t, err)
		assert.Empty(t, keys, "once")
	}
	keys, err := a.wait(short())
	require.NoError(t, err)
	assert.Empty(t, keys, "not by oneself")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	keys, err = a.wait(ctx)
	require.NoError(t, err)
	assert.Empty(t, keys)
}

func testSessionHolders(t *testing.T, p *sessionPlace) {
	t.Helper()
	a, b := p.open(t, "node a"), p.open(t, "node b")
	take(t, a, 1, math.MinInt64)
	take(t, b, -2)
	for _, s := range []session{a, b} {
		holders, err := s.holders([]int64{1, -2, 3, math.MinInt64})
		require.NoError(t, err)
		require.Len(t, holders, 3)
		for key, node := range map[int64]string{1: "node a", -2: "node b", math.MinInt64: "node a"} {
			assert.True(t, holders[key].Held)
			assert.Equal(t, node, holders[key].Node)
			assert.NotZero(t, holders[key].PID)
			assert.WithinDuration(t, time.Now(), holders[key].Since, time.Minute)
		}
	}
	holders, err := a.holders(nil)
	require.NoError(t, err)
	assert.Empty(t, holders)
	give(t, a, 1)
	holders, err = b.holders([]int64{1})
	require.NoError(t, err)
	assert.Empty(t, holders)
}

// frees requires that what s holds is free soon after end.
func (p *sessionPlace) frees(t *testing.T, end func(session)) {
	t.Helper()
	a, b := p.open(t, "a"), p.open(t, "b")
	take(t, a, 1, 2)
	started := time.Now()
	end(a)
	var held []int64
	poll(t, 5*time.Second, "both locks are free", func() bool {
		held = append(held, take(t, b, slices.DeleteFunc([]int64{1, 2}, func(key int64) bool { return slices.Contains(held, key) })...)...)
		return len(held) == 2
	})
	assert.Less(t, time.Since(started), time.Second)
	a.kill()
	a.kill()
	assertOver(t, a)
}

func testSessionCloseFrees(t *testing.T, p *sessionPlace) {
	t.Helper()
	p.frees(t, func(s session) { s.close() })
}

func testSessionKillFrees(t *testing.T, p *sessionPlace) {
	t.Helper()
	p.frees(t, func(s session) { s.kill() })
}

func testSessionKillEndsWait(t *testing.T, p *sessionPlace) {
	t.Helper()
	a := p.open(t, "a")
	take(t, a, 1)
	done := make(chan error, 1)
	go func() { // ends with the session
		_, err := a.wait(context.Background())
		done <- err
	}()
	a.kill()
	select {
	case err := <-done:
		assert.Equal(t, ReasonConnection, sessionReason(err))
	case <-time.After(5 * time.Second):
		t.Error("kill does not end a wait")
	}
	assertOver(t, a)
}

func testSessionEnded(t *testing.T, p *sessionPlace) {
	t.Helper()
	if p.end == nil {
		t.Skip("nobody else can end a session here")
	}
	b := p.open(t, "b")
	for i, first := range overMethods {
		a := p.open(t, "a")
		key := int64(i)
		take(t, a, key)
		p.end(t, a)
		err := first.call(a)
		var over *sessionError
		if assert.ErrorAs(t, err, &over, first.name) {
			assert.True(t, over.ended, "%s: by the other side: %v", first.name, err)
		}
		assertOver(t, a)
		assert.Equal(t, []int64{key}, take(t, b, key))
	}
}

// overMethods is every method that can tell that its session is over.
var overMethods = []struct {
	name string
	call func(s session) error
}{
	{"try", func(s session) error { _, err := s.try([]int64{8}); return err }},
	{"unlock", func(s session) error { _, err := s.unlock([]int64{8}); return err }},
	{"tell", func(s session) error { return s.tell([]int64{8}) }},
	{"prove", func(s session) error { _, err := s.prove(); return err }},
	{"holders", func(s session) error { _, err := s.holders([]int64{8}); return err }},
	{"wait", func(s session) error { _, err := s.wait(context.Background()); return err }},
}

func assertOver(t *testing.T, s session) {
	t.Helper()
	for range 2 {
		for _, m := range overMethods {
			var over *sessionError
			assert.ErrorAs(t, m.call(s), &over, m.name)
		}
	}
}

func testSessionEdgeKeys(t *testing.T, p *sessionPlace) {
	t.Helper()
	a, b := p.open(t, "a"), p.open(t, "b")
	keys := []int64{math.MinInt64, math.MinInt64 + 1, -1 << 32, -1, 0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, math.MaxInt64}
	assert.Equal(t, keys, take(t, a, keys...))
	assert.Empty(t, proof(t, a))
	assert.Empty(t, take(t, b, keys...))
	p.take(t, a, math.MinInt64, -1, math.MaxInt64)
	assert.Equal(t, []int64{math.MinInt64, -1, math.MaxInt64}, proof(t, a))
	assert.Equal(t, []int64{math.MinInt64, -1, math.MaxInt64}, take(t, b, keys...))
	assert.Equal(t, []int64{math.MinInt64, -1, math.MaxInt64}, give(t, a, keys...))
	assert.Empty(t, proof(t, b))
}

func testSessionManyKeys(t *testing.T, p *sessionPlace) {
	t.Helper()
	const n = 3000
	a, b := p.open(t, "a"), p.open(t, "b")
	keys := make([]int64, n)
	for i := range keys {
		keys[i] = rand.Int64()<<13 - int64(i) // each another
	}
	slices.Sort(keys)
	require.Equal(t, keys, take(t, a, keys...))
	require.Empty(t, proof(t, a))
	require.Empty(t, take(t, b, keys...))
	holders, err := b.holders(keys)
	require.NoError(t, err)
	require.Len(t, holders, n)
	require.Empty(t, give(t, a, keys[:n/2]...))
	require.Equal(t, keys[:n/2], take(t, b, keys...))
	require.Empty(t, proof(t, a))
	require.Empty(t, proof(t, b))
}

func testSessionSent(t *testing.T, p *sessionPlace) {
	t.Helper()
	a := p.open(t, "a")
	take(t, a, 1)
	before := a.sent()
	time.Sleep(time.Millisecond) // the step of the clock, not a wait
	proof(t, a)
	assert.Positive(t, a.sent().since(before))
}
