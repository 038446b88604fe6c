// SPDX-License-Identifier: MIT

package leader_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"runtime/pprof"
	"slices"
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

const (
	// dbSlack is what two busy cores and the race detector may add to a bound that the library promises.
	dbSlack = time.Second
	// dbPatience is for what must happen at some time: back-off, restarts and slow machines included.
	dbPatience = 20 * time.Second
)

// dbWithin requires that cond becomes true.
func dbWithin(t *testing.T, d time.Duration, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(d); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(t, "not within "+d.String()+": "+what)
		}
	}
}

// dbHolds requires that cond stays true for d.
func dbHolds(t *testing.T, d time.Duration, cond func() bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-ticker.C {
		require.True(t, cond())
	}
}

// dbCheckLeaks has the end of the test look for goroutines and sessions that it left behind. Call it after servers have
// been started: goroutines inherit the label by which they are found.
func dbCheckLeaks(t *testing.T, url string) {
	t.Helper()
	label := fmt.Sprintf("%q:%q", "leader_test", t.Name())
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("leader_test", t.Name())))
	conn := pgtest.Connect(t, url)
	left := func() (left []string) {
		var text bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&text, 1) // into memory
		for stack := range strings.SplitSeq(text.String(), "\n\n") {
			if strings.Contains(stack, label) && !strings.Contains(stack, "testing.tRunner") && !strings.Contains(stack, "pgtest.") {
				left = append(left, stack)
			}
		}
		return left
	}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		for deadline := time.Now().Add(5 * time.Second); len(left()) > 0 && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		assert.Empty(t, left(), "goroutines")
		const sessions = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'leader/%'`
		var n int
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if conn.IsClosed() { // by the test
				break
			}
			if err := conn.QueryRow(context.Background(), sessions).Scan(&n); err != nil || n == 0 || time.Now().After(deadline) {
				break
			}
		}
		assert.Zero(t, n, "sessions")
	})
}

func dbQuery[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var value T
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&value), sql)
	return value
}

func dbMajor(t *testing.T, url string) int {
	t.Helper()
	return dbQuery[int](t, pgtest.Connect(t, url), "SELECT current_setting('server_version_num')::int") / 10000
}

// dbAs returns url for another role.
func dbAs(t *testing.T, text, role, password string) string {
	t.Helper()
	u, err := url.Parse(text)
	require.NoError(t, err)
	u.User = url.UserPassword(role, password)
	return u.String()
}

var dbRoles atomic.Int64

// dbRole makes a role that lasts as long as the test, and returns its name. conf are settings of the role.
func dbRole(t *testing.T, url, attributes string, conf ...string) string {
	t.Helper()
	role := fmt.Sprintf("leader_test_%d_%d", time.Now().UnixNano(), dbRoles.Add(1))
	pgtest.Exec(t, url, "CREATE ROLE "+role+" LOGIN "+attributes)
	for _, setting := range conf {
		pgtest.Exec(t, url, "ALTER ROLE "+role+" SET "+setting)
	}
	t.Cleanup(func() { pgtest.Exec(t, url, "DROP OWNED BY "+role+" CASCADE; DROP ROLE "+role) })
	return role
}

// dbTimings are short, but not so short that a slow machine loses its lease.
func dbTimings() leader.Options {
	return leader.Options{Retry: 300 * time.Millisecond, Check: 200 * time.Millisecond, Lease: 5 * time.Second, SessionTimeout: 8 * time.Second}
}

// dbLeader is a Leader that resigns at the end of the test.
func dbLeader(t *testing.T, backend leader.Backend, opts leader.Options) *leader.Leader {
	t.Helper()
	l, err := leader.New(backend, opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dbPatience)
		defer cancel()
		assert.NoError(t, l.Resign(ctx))
	})
	return l
}

// dbRun is a call of Run whose task waits for its context.
type dbRun struct {
	cancel   context.CancelFunc
	terms    atomic.Int64 // tasks begun
	returned atomic.Int64 // ns: when the task returned
	done     chan struct{}
	doneAt   time.Time // after done, like err
	err      error
}

func dbStart(t *testing.T, l *leader.Leader, name string) *dbRun {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &dbRun{cancel: cancel, done: make(chan struct{})}
	go func() {
		r.err = l.Run(ctx, name, func(ctx context.Context) error {
			r.terms.Add(1)
			<-ctx.Done()
			r.returned.Store(time.Now().UnixNano())
			return nil
		})
		r.doneAt = time.Now()
		close(r.done)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	dbWithin(t, dbPatience, "Run has begun", func() bool { return slices.Contains(l.Tasks(), name) })
	return r
}

// stop cancels Run, and waits for its end.
func (r *dbRun) stop() { r.cancel(); <-r.done }

// dbLeads requires that l comes to lead names, and returns how long it took.
func dbLeads(t *testing.T, l *leader.Leader, names ...string) time.Duration {
	t.Helper()
	start := time.Now()
	dbWithin(t, dbPatience, fmt.Sprintf("lead %v: %+v", names, l.Status()), func() bool {
		return !slices.ContainsFunc(names, func(name string) bool { return !l.IsLeading(name) })
	})
	return time.Since(start)
}

// dbConnected requires that l, which waits for a name, has asked for it.
func dbConnected(t *testing.T, l *leader.Leader) {
	t.Helper()
	dbWithin(t, dbPatience, "connected", func() bool { return l.Status().Connected })
	dbProved(t, l)
}

// dbProved waits for the next proof of the session of l.
func dbProved(t *testing.T, l *leader.Leader) {
	t.Helper()
	age := l.Status().ProofAge
	dbWithin(t, dbPatience, "a proof", func() bool {
		next := l.Status().ProofAge
		if next < 0 || next >= age {
			age = next
			return false
		}
		return true
	})
}

func dbTask(t *testing.T, l *leader.Leader, name string) leader.TaskStatus {
	t.Helper()
	for _, task := range l.Status().Tasks {
		if task.Name == name {
			return task
		}
	}
	require.FailNow(t, "no task "+name)
	return leader.TaskStatus{}
}

// dbLocks counts the advisory locks of sessions of this library in the database of conn.
func dbLocks(t *testing.T, conn *pgx.Conn) int {
	t.Helper()
	return dbQuery[int](t, conn, `SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND a.application_name LIKE 'leader/%' AND a.datname = current_database()`)
}

func dbKill(t *testing.T, conn *pgx.Conn, l *leader.Leader) {
	t.Helper()
	pid := l.Status().SessionPID
	require.NotZero(t, pid)
	dbQuery[bool](t, conn, "SELECT pg_terminate_backend($1)", int32(pid))
}

// dbLog is a slog handler that keeps all lines.
type dbLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *dbLog) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *dbLog) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func (b *dbLog) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// counts returns how often each message was logged, and forgets.
func (b *dbLog) counts() map[string]int {
	counts := make(map[string]int)
	for line := range strings.Lines(b.String()) {
		_, rest, _ := strings.Cut(line, `msg="`)
		msg, _, _ := strings.Cut(rest, `"`)
		counts[msg]++
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Reset()
	return counts
}

// dbLogged is a Leader with a log, which leads a.
func dbLogged(t *testing.T, url string) (*leader.Leader, *dbRun, *dbLog) {
	t.Helper()
	log := &dbLog{}
	opts := dbTimings()
	opts.Logger = log.logger()
	l := dbLeader(t, leader.Postgres(url), opts)
	run := dbStart(t, l, "a")
	dbLeads(t, l, "a")
	return l, run, log
}

func TestPostgresRestartsAreLossesThatPass(t *testing.T) {
	server := pgtest.Start(t)
	dbCheckLeaks(t, server.URL())
	l, run, log := dbLogged(t, server.URL())
	require.Equal(t, map[string]int{"database session opened": 1, "leadership gained": 1}, log.settled(t, l))
	for i, down := range []struct {
		mode string
		time time.Duration
	}{{"fast", 0}, {"immediate", 0}, {"fast", 3 * time.Second}} {
		dbProved(t, l)
		server.Stop(down.mode)
		dbWithin(t, dbSlack, "the loss is noticed", func() bool { return !l.IsLeading("a") })
		dbHolds(t, down.time, func() bool { return !l.IsLeading("a") && !l.Status().Connected })
		server.Start()
		up := time.Now()
		dbWithin(t, dbPatience, "leads again", func() bool { return run.terms.Load() == int64(i)+2 })
		t.Logf("%s, down %v: leads %v after the server was up", down.mode, down.time, time.Since(up))
		counts := log.settled(t, l)
		dbTroubles(t, counts)
		assert.Equal(t, map[string]int{"database session lost": 1, "leadership lost": 1, "database session opened": 1, "leadership gained": 1}, counts)
	}
	conn := pgtest.Connect(t, server.URL())
	var took []time.Duration
	for i := range int64(10) {
		dbProved(t, l) // or the pauses grow, as they should for a session that comes to nothing
		killed := time.Now()
		dbKill(t, conn, l)
		dbWithin(t, dbPatience, "leads again", func() bool { return run.terms.Load() == i+5 })
		took = append(took, time.Since(killed))
	}
	slices.Sort(took)
	t.Logf("ten kills in a row: leads again after median %v, max %v", took[5], took[9])
	assert.EqualValues(t, 13, l.Status().Losses)
	assert.Equal(t, 10, log.settled(t, l)["leadership lost"])
	run.stop()
}

// settled is counts when the last line has been written: the log has a goroutine of its own.
func (b *dbLog) settled(t *testing.T, l *leader.Leader) map[string]int {
	t.Helper()
	dbProved(t, l)
	return b.counts()
}

// dbTroubles takes the lines about a server that restarts out of counts: one for each way in which it refuses, as nobody
// listening, shutting down, and starting up, and not one for each attempt.
func dbTroubles(t *testing.T, counts map[string]int) {
	t.Helper()
	assert.LessOrEqual(t, counts["database session not opened, retrying"], 4)
	delete(counts, "database session not opened, retrying")
}
