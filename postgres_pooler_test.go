// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// poolerTrials is how often each busy pool is tried; POOLER_TRIALS overrides it, for a measurement.
func poolerTrials() int {
	if n, err := strconv.Atoi(os.Getenv("LEADER_TEST_POOLER_TRIALS")); err == nil {
		return n
	}
	return 3
}

// poolerLeft tells what is left behind in the server connections of a pool of size: each answers one of as many clients.
func poolerLeft(t *testing.T, url string, size int) (left []string) {
	t.Helper()
	const sql = `SELECT pg_backend_pid()::text, current_setting('search_path') || ' ' || current_setting('statement_timeout') || ' ' ||
		current_setting('synchronous_commit') || ' ' || array(SELECT pg_listening_channels())::text ||
		(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')::text || pg_sleep($1)::text`
	var mu sync.Mutex
	pids := make(map[string]bool)
	for round := 1; len(pids) < size && round <= 10; round++ { // server connections are opened one after the other
		var wg sync.WaitGroup
		for range size {
			wg.Go(func() {
				conn, err := pgx.Connect(context.Background(), url+"&default_query_exec_mode=simple_protocol")
				if !assert.NoError(t, err) {
					return
				}
				defer conn.Close(context.Background())
				var pid, state string
				assert.NoError(t, conn.QueryRow(context.Background(), sql, 0.2*float64(round)).Scan(&pid, &state))
				mu.Lock()
				defer mu.Unlock()
				pids[pid] = true
				if state != `"$user", public 0 on {}0` {
					left = append(left, pid+": "+state)
				}
			})
		}
		wg.Wait()
	}
	assert.GreaterOrEqual(t, len(pids), size, "all server connections were looked at")
	return left
}

// poolerRefused requires that l never leads and that its Run ends with ErrUnsupported. Errors before it are returned.
func poolerRefused(t *testing.T, url string) (took time.Duration, before error) {
	t.Helper()
	l := dbLeader(t, leader.Postgres(url), dbTimings())
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 3*dbPatience)
	defer cancel()
	events := l.Watch(ctx)
	err := l.Run(ctx, "a", func(context.Context) error {
		t.Error("the task ran")
		return nil
	})
	took = time.Since(start)
	require.ErrorIs(t, err, leader.ErrUnsupported)
	assert.ErrorContains(t, err, "use a pool in session mode, or connect to the server itself")
	assert.True(t, strings.HasPrefix(err.Error(), "leader: unsupported: there is a pooler in between"), "%v", err)
	t.Logf("after %v: %v", took, err)
	require.NoError(t, dbResign(l))
	for e := range events {
		assert.NotEqual(t, leader.Connected, e.Kind)
		if e.Kind == leader.Unreachable && !errors.Is(e.Err, leader.ErrUnsupported) {
			before = e.Err
		}
	}
	return took, before
}

// TestPostgresPoolerThatSharesSessionsIsRefused is C30: no task runs, and nothing is left to the pooler's other clients.
func TestPostgresPoolerThatSharesSessionsIsRefused(t *testing.T) {
	server := pgtest.Start(t)
	for _, mode := range []string{"transaction", "statement"} {
		for _, size := range []int{1, 5, 20} {
			t.Run(fmt.Sprint(mode, size), func(t *testing.T) {
				bouncer := server.Bounce(t, "pool_mode="+mode, fmt.Sprint("default_pool_size=", size))
				direct := server.Database(t)
				url := bouncer.URL(direct)
				poolerRefused(t, url)
				assert.Empty(t, poolerLeft(t, url, size), "idle")
				poolerRefused(t, url) // and once more with all server connections open
				assert.Empty(t, poolerLeft(t, url, size), "idle, full")
				stop := pgtest.Hammer(t, url, 2*size)
				defer stop()
				retried := 0
				var slowest time.Duration
				for range poolerTrials() {
					took, before := poolerRefused(t, url)
					slowest = max(slowest, took)
					if before != nil {
						retried++
						t.Logf("retried: %v", before)
					}
				}
				t.Logf("busy: refused %d of %[1]d, %d after a retry, at most %v", poolerTrials(), retried, slowest)
				stop()
				assert.Empty(t, poolerLeft(t, url, size), "busy")
				assert.Zero(t, dbLocks(t, pgtest.Connect(t, direct)))
			})
		}
	}
}

// TestPostgresPoolerInSessionMode leads, proves, hands over and resigns as without a pooler.
func TestPostgresPoolerInSessionMode(t *testing.T) {
	server := pgtest.Start(t)
	for name, settings := range map[string][]string{
		"default":  nil,
		"no reset": {"server_reset_query="},
	} {
		t.Run(name, func(t *testing.T) {
			bouncer := server.Bounce(t, append([]string{"pool_mode=session", "default_pool_size=5"}, settings...)...)
			direct := server.Database(t)
			if settings == nil { // without a reset PgBouncer leaves our application_name on its idle connections
				dbCheckLeaks(t, direct)
			}
			testPoolerInSessionMode(t, bouncer.URL(direct), direct)
			if name == "no reset" {
				assert.Empty(t, poolerLeft(t, bouncer.URL(direct), 5), "we have tidied up ourselves")
			}
		})
	}
}

func testPoolerInSessionMode(t *testing.T, url, direct string) {
	t.Helper()
	conn := pgtest.Connect(t, direct)
	opts := dbTimings()
	a, b := dbLeader(t, leader.Postgres(url), opts), dbLeader(t, leader.Postgres(url), opts)
	first := dbStart(t, a, "a")
	t.Logf("leads after %v", dbLeads(t, a, "a"))
	second := dbStart(t, b, "a")
	dbConnected(t, b)
	assert.Equal(t, 1, dbLocks(t, conn))
	for range 3 {
		dbProved(t, a)
	}
	h, err := b.Holder(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, a.Status().SessionPID, h.PID)
	assert.False(t, b.IsLeading("a"))

	first.stop()
	took := dbLeads(t, b, "a")
	t.Logf("handover: %v", took)
	assert.Less(t, took, opts.Retry*13/10+dbSlack)
	dbKill(t, conn, b)
	dbWithin(t, dbPatience, "leads again after a kill", func() bool { return second.terms.Load() == 2 })
	require.NoError(t, dbResign(b))
	require.ErrorIs(t, <-ended(second), leader.ErrResigned)
	ran, err := a.Try(t.Context(), "a", func(context.Context) error { return nil })
	require.NoError(t, err)
	assert.True(t, ran)
	require.NoError(t, dbResign(a))
	dbWithin(t, dbPatience, "no locks are left", func() bool { return dbLocks(t, conn) == 0 })
}

// ended gives the error of a Run when it has ended.
func ended(r *dbRun) <-chan error {
	c := make(chan error, 1)
	<-r.done
	c <- r.err
	return c
}

// TestPostgresPoolerInSessionModeLeavesNothing: their statement caches and settings do not reach us, nor ours them.
func TestPostgresPoolerInSessionModeLeavesNothing(t *testing.T) {
	server := pgtest.Start(t)
	settings := []string{"pool_mode=session", "default_pool_size=2"}
	bouncer := server.Bounce(t, settings...)
	if bouncer.Version() >= 121 {
		bouncer.Reload(append(settings, "max_prepared_statements=100")...)
	}
	direct := server.Database(t)
	url := bouncer.URL(direct)
	config, err := pgx.ParseConfig(url) // with the driver's statement cache
	require.NoError(t, err)
	for range 3 {
		l := dbLeader(t, leader.PostgresConfig(config), dbTimings())
		dbStart(t, l, "a")
		dbLeads(t, l, "a")
		require.NoError(t, dbResign(l))
		assert.Empty(t, poolerLeft(t, url, 2))
	}
}

// TestPostgresPoolerWithoutRoom: a pool that is full tells nothing about its mode, and so is no pass.
func TestPostgresPoolerWithoutRoom(t *testing.T) {
	server := pgtest.Start(t)
	bouncer := server.Bounce(t, "pool_mode=session", "default_pool_size=1")
	direct := server.Database(t)
	dbCheckLeaks(t, direct)
	l := dbLeader(t, leader.Postgres(bouncer.URL(direct)), dbTimings())
	run := dbStart(t, l, "a")
	dbWithin(t, dbPatience, "the cause is named", func() bool {
		err := l.Status().Err
		return err != nil && strings.Contains(err.Error(), "its pool must have room for one more")
	})
	assert.False(t, l.IsLeading("a"))
	assert.NotErrorIs(t, l.Status().Err, leader.ErrUnsupported)
	bouncer.Reload("pool_mode=session", "default_pool_size=2")
	t.Logf("leads %v after the pool has room", dbLeads(t, l, "a"))
	run.stop()
}

// TestPostgresPoolerThatAppears: the endpoint leads to the server, and after a loss to a pooler.
func TestPostgresPoolerThatAppears(t *testing.T) {
	server := pgtest.Start(t)
	bouncer := server.Bounce(t, "pool_mode=transaction")
	direct := server.Database(t)
	config, err := pgx.ParseConfig(direct)
	require.NoError(t, err)
	var target atomic.Value
	target.Store(server.Addr())
	config.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, target.Load().(string))
	}
	l := dbLeader(t, leader.PostgresConfig(config), dbTimings())
	run := dbStart(t, l, "a")
	dbLeads(t, l, "a")
	dbProved(t, l)
	target.Store(bouncer.Addr())
	dbKill(t, pgtest.Connect(t, direct), l)
	select {
	case <-run.done:
	case <-time.After(dbPatience):
		require.FailNow(t, "Run has not returned")
	}
	require.ErrorIs(t, run.err, leader.ErrUnsupported)
	assert.EqualValues(t, 1, run.terms.Load())
}

// TestPostgresPoolerThatChangesItsMode while sessions live: what was exclusive stays so, and the change is noticed when another
// server process answers, at the next Check at the latest.
//
// Locks of two Leaders are on the server connections that they had; in transaction mode statements of one could reach that of
// the other, where a try would be granted once more.
func TestPostgresPoolerThatChangesItsMode(t *testing.T) {
	server := pgtest.Start(t)
	settings := []string{"default_pool_size=4", "server_round_robin=1"} // statements wander, as under load
	bouncer := server.Bounce(t, append(settings, "pool_mode=session")...)
	direct := server.Database(t)
	url := bouncer.URL(direct)
	var running, most atomic.Int64
	task := func(ctx context.Context) error {
		for n := running.Add(1); n > most.Load(); {
			most.Store(n)
		}
		<-ctx.Done()
		running.Add(-1)
		return context.Cause(ctx)
	}
	var leaders []*leader.Leader
	errs := make(chan error, 2)
	// The leader's first statement gives its server connection to the pool; then come many tries of the other, before any proof.
	for _, check := range []time.Duration{time.Second, 4 * time.Second} {
		opts := dbTimings()
		opts.Retry, opts.Check = 50*time.Millisecond, check
		l := dbLeader(t, leader.Postgres(url), opts)
		go func() { errs <- l.Run(context.Background(), "a", task) }() // until it is refused
		leaders = append(leaders, l)
		dbConnected(t, l)
	}
	dbWithin(t, dbPatience, "one leads", func() bool { return running.Load() == 1 })
	bouncer.Reload(append(settings, "pool_mode=transaction")...)
	changed := time.Now()
	for range leaders {
		select {
		case err := <-errs:
			require.ErrorIs(t, err, leader.ErrUnsupported)
			t.Logf("noticed after %v: %v", time.Since(changed), err)
		case <-time.After(dbPatience):
			require.FailNow(t, "not noticed", "%+v", leaders[0].Status())
		}
	}
	assert.EqualValues(t, 1, most.Load(), "tasks at once")
}

// TestPostgresPoolerThatChangesItsModeBeforeAnError: what the process of the server holds on which a statement has failed may be
// what somebody else leads by.
func TestPostgresPoolerThatChangesItsModeBeforeAnError(t *testing.T) {
	server := pgtest.Start(t)
	bouncer := server.Bounce(t, "pool_mode=session", "default_pool_size=4") // what was used last is used next
	url := bouncer.URL(server.Database(t))
	var running, most atomic.Int64
	errs := make(chan error, 2)
	run := func(l *leader.Leader) {
		errs <- l.Run(context.Background(), "x", func(ctx context.Context) error { // until it is refused
			for n := running.Add(1); n > most.Load(); {
				most.Store(n)
			}
			<-ctx.Done()
			running.Add(-1)
			return context.Cause(ctx)
		})
	}
	opts := dbTimings()
	opts.Check = 4 * time.Second
	a, b := dbLeader(t, leader.Postgres(url), opts), dbLeader(t, leader.Postgres(url), opts)
	go run(a)
	dbLeads(t, a, "x")
	dbStart(t, b, "y")
	dbLeads(t, b, "y")
	dbProved(t, a)
	dbProved(t, b) // now, until the next one, is the time
	// A try is prepared in the process of a, and has its name there.
	_, err := a.Try(t.Context(), "z", func(context.Context) error { return nil })
	require.NoError(t, err)
	bouncer.Reload("pool_mode=transaction", "default_pool_size=4")
	for _, l := range []*leader.Leader{b, a} { // each gives its process to the pool
		_, err := l.Holder(t.Context(), "x")
		require.NoError(t, err)
	}
	go run(b)
	for range 2 {
		select {
		case err := <-errs:
			require.ErrorIs(t, err, leader.ErrUnsupported)
		case <-time.After(dbPatience):
			require.FailNow(t, "not noticed", "%+v", a.Status())
		}
	}
	assert.EqualValues(t, 1, most.Load(), "tasks at once")
}

// TestPostgresPoolerRestarts, and comes back in another mode.
func TestPostgresPoolerRestarts(t *testing.T) {
	server := pgtest.Start(t)
	bouncer := server.Bounce(t, "pool_mode=session")
	direct := server.Database(t)
	dbCheckLeaks(t, direct)
	l := dbLeader(t, leader.Postgres(bouncer.URL(direct)), dbTimings())
	run := dbStart(t, l, "a")
	dbLeads(t, l, "a")
	bouncer.Stop()
	dbWithin(t, dbSlack, "the loss is noticed", func() bool { return !l.IsLeading("a") })
	bouncer.Start("pool_mode=session")
	dbWithin(t, dbPatience, "leads again", func() bool { return run.terms.Load() == 2 })
	bouncer.Stop()
	bouncer.Start("pool_mode=statement")
	select {
	case <-run.done:
	case <-time.After(dbPatience):
		require.FailNow(t, "Run has not returned")
	}
	require.ErrorIs(t, run.err, leader.ErrUnsupported)
	assert.ErrorContains(t, run.err, "it takes no transactions")
	assert.EqualValues(t, 2, run.terms.Load())
	assert.False(t, slices.Contains(l.Leading(), "a"))
}
