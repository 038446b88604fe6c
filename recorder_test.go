// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// interval is one run of a task.
type interval struct {
	name, node string
	ctx        context.Context //nolint:containedctx // of the task, for the test to look at
	start      time.Time
	told       time.Time // to stop
	end        time.Time
	cause      error
	proved     time.Time // when the last good proof before told was sent; by the monotonic clock
}

// recorder notes when tasks ran, in a place of its own, so that what is asserted are intervals.
type recorder struct {
	mu   sync.Mutex
	runs []*interval
}

// task returns one that runs until it is told to stop, and then for as long as drain says.
func (r *recorder) task(node, name string, drain func(interval) time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		i := &interval{name: name, node: node, ctx: ctx, start: time.Now()}
		r.mu.Lock()
		r.runs = append(r.runs, i)
		r.mu.Unlock()
		<-ctx.Done()
		told := time.Now()
		g := grantOf(ctx)
		r.mu.Lock()
		i.told, i.cause = told, context.Cause(ctx)
		i.proved = g.lease.clock.epoch.Add(g.lease.sent.Load().mono)
		copied := *i
		r.mu.Unlock()
		if drain != nil {
			time.Sleep(drain(copied))
		}
		r.mu.Lock()
		i.end = time.Now()
		r.mu.Unlock()
		return nil
	}
}

// get returns copies of all runs that match.
func (r *recorder) get(match func(interval) bool) (runs []interval) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.runs {
		if match == nil || match(*i) {
			runs = append(runs, *i)
		}
	}
	return runs
}

// running returns the nodes on which name runs and has not been told to stop.
func (r *recorder) running(name string) (nodes []string) {
	for _, i := range r.get(func(i interval) bool { return i.name == name && i.told.IsZero() }) {
		nodes = append(nodes, i.node)
	}
	return nodes
}

func (r *recorder) of(name, node string) []interval {
	return r.get(func(i interval) bool { return i.name == name && i.node == node })
}

// overlap returns the longest time for which two runs of one name ran at once.
func (r *recorder) overlap() (longest time.Duration) {
	now := time.Now()
	byName := make(map[string][]interval)
	for _, i := range r.get(nil) {
		if i.end.IsZero() {
			i.end = now
		}
		byName[i.name] = append(byName[i.name], i)
	}
	for _, runs := range byName {
		slices.SortFunc(runs, func(a, b interval) int { return a.start.Compare(b.start) })
		var latest time.Time
		for _, i := range runs {
			if both := minTime(latest, i.end).Sub(i.start); !latest.IsZero() {
				longest = max(longest, both)
			}
			if i.end.After(latest) {
				latest = i.end
			}
		}
	}
	return longest
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func TestRecorderSeesOverlaps(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(100, 0).Add(time.Duration(ms) * time.Millisecond) }
	run := func(name string, start, end int) *interval {
		return &interval{name: name, start: at(start), end: at(end)}
	}
	r := &recorder{runs: []*interval{run("x", 0, 10), run("y", 5, 20), run("x", 10, 30), run("x", 40, 50)}}
	assert.Zero(t, r.overlap())
	r.runs = append(r.runs, run("y", 0, 8))
	assert.Equal(t, 3*time.Millisecond, r.overlap())
	r.runs = append(r.runs, run("x", 12, 17))
	assert.Equal(t, 5*time.Millisecond, r.overlap())
}

// flat has the test fail if it leaves goroutines of ours or of the driver, open files, or sessions at the server behind,
// when all other cleanups that are registered after it have run.
func flat(t *testing.T, dsn string) {
	t.Helper()
	base, files := len(ourGoroutines()), openFiles()
	t.Cleanup(func() {
		if t.Failed() || t.Skipped() {
			return
		}
		leak := func() string {
			if now := ourGoroutines(); len(now) > base {
				return "goroutines:\n" + strings.Join(now, "\n\n")
			}
			if now := openFiles(); now > files {
				return "open files"
			}
			if n := backends(t, dsn); n > 0 {
				return "sessions at the server"
			}
			return ""
		}
		var left string
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if left = leak(); left == "" {
				return
			}
		}
		assert.Empty(t, left, "left behind; there were %d goroutines and %d files", base, files)
	})
}

// ourGoroutines returns the stacks of those that run code of this module or of the driver, but for the caller's.
func ourGoroutines() (ours []string) {
	buf := make([]byte, 1<<22)
	stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	for _, stack := range stacks[1:] {
		if strings.Contains(stack, "oxygenhub/leader") && !strings.Contains(stack, "testing.(*T).Run") || strings.Contains(stack, "pgconn") {
			ours = append(ours, stack)
		}
	}
	return ours
}

// openFiles counts the open files of this process; 0 where that cannot be told.
func openFiles() int {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(files)
}

// backends counts the sessions of Leaders at the server, in the database of dsn.
func backends(t *testing.T, dsn string) (n int) {
	t.Helper()
	if dsn == "" {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if !assert.NoError(t, err) {
		return 0
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'leader/%'`).Scan(&n)
	assert.NoError(t, err)
	return n
}

// locks counts the advisory locks in the database of dsn.
func locks(t *testing.T, dsn string) (n int) {
	t.Helper()
	err := pgtest.Connect(t, dsn).QueryRow(t.Context(), `SELECT count(*) FROM pg_locks
		WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n)
	assert.NoError(t, err)
	return n
}
