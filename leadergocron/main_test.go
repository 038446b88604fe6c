// SPDX-License-Identifier: MIT

package leadergocron_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/leadergocron"
	"github.com/oxygenhub/leader/leadertest"
)

const (
	name = "invoices"
	// soon is what "at once" may take on a busy machine.
	soon = 15 * time.Second
	// tick is how often the jobs of the tests are due.
	tick = 10 * time.Millisecond
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// place is where the locks of a fleet are: each call returns the backend of another process.
type place func(tb testing.TB) leader.Backend

func inMemory(tb testing.TB) place {
	tb.Helper()
	tb.Cleanup(func() { noneLeft(tb) })
	store := leadertest.NewStore()
	return func(testing.TB) leader.Backend { return store.Backend() }
}

func onSQLite(tb testing.TB) place {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "app.db")
	tb.Cleanup(func() { noneLeft(tb) })
	return func(tb testing.TB) leader.Backend {
		tb.Helper()
		db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
		require.NoError(tb, err)
		tb.Cleanup(func() { assert.NoError(tb, db.Close()) })
		return leader.SQLite(db)
	}
}

func onPostgres(tb testing.TB) place {
	tb.Helper()
	url := pgtest.URL(tb)
	tb.Cleanup(func() { noneLeft(tb) })
	return func(testing.TB) leader.Backend { return leader.Postgres(url) }
}

// newLeader returns one that resigns at the end of the test.
func newLeader(tb testing.TB, at place) *leader.Leader {
	tb.Helper()
	l, err := leader.New(at(tb), leader.Options{Terms: true, Retry: 10 * time.Millisecond, Check: 20 * time.Millisecond})
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		assert.NoError(tb, l.Resign(ctx))
	})
	return l
}

// noneLeft asserts that no goroutine of the package, or of a scheduler, is left, when all of the test has been cleaned up.
func noneLeft(tb testing.TB) {
	tb.Helper()
	buf := make([]byte, 1<<20)
	for end := time.Now().Add(soon); ; time.Sleep(5 * time.Millisecond) {
		stacks := string(buf[:runtime.Stack(buf, true)])
		if !strings.Contains(stacks, "leadergocron.(*") && !strings.Contains(stacks, "gocron/v2.") {
			return
		}
		if time.Now().After(end) {
			assert.Fail(tb, "a goroutine has outlived its owner", stacks)
			return
		}
	}
}

// runner is an Elector or a Locker.
type runner interface {
	Run(ctx context.Context) error
}

// start calls Run of r until stop, or the end of the test; ended gets what it returns.
func start(tb testing.TB, r runner) (stop func(), ended chan error) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended = make(chan error, 1)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		ended <- r.Run(ctx)
	}()
	tb.Cleanup(func() {
		cancel()
		<-gone
	})
	return cancel, ended
}

func newElector(tb testing.TB, l *leader.Leader) *leadergocron.Elector {
	tb.Helper()
	e, err := leadergocron.NewElector(l, name)
	require.NoError(tb, err)
	return e
}

// newLocker returns one that runs.
func newLocker(tb testing.TB, l *leader.Leader, opts leadergocron.LockerOptions) *leadergocron.Locker {
	tb.Helper()
	k, err := leadergocron.NewLocker(l, opts)
	require.NoError(tb, err)
	start(tb, k)
	runs(tb, k)
	return k
}

// runs waits until Run of k does.
func runs(tb testing.TB, k *leadergocron.Locker) {
	tb.Helper()
	require.Eventually(tb, func() bool {
		lock, err := k.Lock(context.Background(), "a probe of "+tb.Name())
		if err == nil {
			require.NoError(tb, lock.Unlock(context.Background()))
		}
		return !errors.Is(err, leadergocron.ErrNotRunning)
	}, soon, time.Millisecond)
}

// newScheduler returns one that has started, and is shut down at the end of the test.
func newScheduler(tb testing.TB, opts ...gocron.SchedulerOption) gocron.Scheduler {
	tb.Helper()
	s, err := gocron.NewScheduler(opts...)
	require.NoError(tb, err)
	s.Start()
	tb.Cleanup(func() { assert.NoError(tb, s.Shutdown()) })
	return s
}

// every has s run task each tick, one run at a time; listeners hear of it.
func every(tb testing.TB, s gocron.Scheduler, task func(context.Context) error, listeners ...gocron.EventListener) {
	tb.Helper()
	_, err := s.NewJob(gocron.DurationJob(tick), gocron.NewTask(task), gocron.WithName(name),
		gocron.WithSingletonMode(gocron.LimitModeReschedule), gocron.WithEventListeners(listeners...))
	require.NoError(tb, err)
}

// latest is a channel that has the last error of a listener.
type latest chan error

func (c latest) put(_ uuid.UUID, _ string, err error) {
	select {
	case <-c:
	default:
	}
	c <- err
}

// stint is a job that runs until its context ends, and then until it is released.
type stint struct {
	started chan leader.Term
	told    chan error    // the cause of the end of the job's context
	leave   chan struct{} // closed when a job that was told may return
}

func newStint() stint {
	return stint{make(chan leader.Term, 1000), make(chan error, 1000), make(chan struct{})}
}

func (s stint) job(ctx context.Context) error {
	term, _ := leader.TermOf(ctx)
	s.started <- term
	<-ctx.Done()
	s.told <- context.Cause(ctx)
	<-s.leave
	return nil
}

func (s stint) release() {
	select {
	case <-s.leave:
	default:
		close(s.leave)
	}
}

// get waits for something that the test waits for.
func get[T any](tb testing.TB, from <-chan T) (got T) {
	tb.Helper()
	select {
	case got = <-from:
	case <-time.After(soon):
		require.FailNow(tb, "nothing came")
	}
	return got
}
