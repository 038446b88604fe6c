// SPDX-License-Identifier: MIT

//go:build unix

package leader_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

const (
	// procEnv holds the procJob of a worker: this test binary, run again with TestHelperProcess only.
	procEnv = "LEADER_TEST_PROCESS"
	// procSlack is what the scheduling of a dozen processes on two cores, under the race detector, adds to a bound.
	procSlack = time.Second
	// procPatience is for what takes as long as it takes: the start of a process, mostly.
	procPatience = 20 * time.Second
)

// procJob is what a worker does.
type procJob struct {
	Postgres string // a URL, or
	SQLite   string // a file
	Options  leader.Options
	Names    []string
	Return   time.Duration // tasks return nil after at most this, and are run again; 0: when told to stop
	Once     bool          // tasks are run once, and the process leaves main as soon as Run has returned
	Child    bool          // tasks start a process that outlives this one
	Drain    time.Duration // tasks go on for this long after they were told of a loss
	Probe    bool          // tasks ask at every moment whether they still lead
}

// procEvent is a line on the standard output of a worker. A tick carries a time at which the task surely led: it was
// read before Confirm said so.
type procEvent struct {
	Kind    string // ready, start, tick, end; late: Confirm was not nil; told: the context has ended; drained; child; probe
	Name    string
	Term    int   // of start to end: counts the tasks of the process
	Nano    int64 // of the clock that all processes of the machine share
	PID     int
	Leading bool // IsLeading at the time of late and told
	Done    bool // likewise, whether the context has ended

	// Of probe, which is said when all three have turned to no: the start of the last call that said yes.
	Confirmed, Led, Open int64

	worker int
}

func (e procEvent) at() time.Time { return time.Unix(0, e.Nano) }

// TestHelperProcess is the worker.
func TestHelperProcess(t *testing.T) {
	text := os.Getenv(procEnv)
	if text == "" {
		return
	}
	var job procJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		t.Fatal(err)
	}
	go func() { // until the parent is gone
		io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	if err := job.work(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// procOut writes lines whole.
type procOut struct {
	mu   sync.Mutex
	term int
}

func (o *procOut) say(e procEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Nano == 0 {
		e.Nano = time.Now().UnixNano()
	}
	line, _ := json.Marshal(e)
	os.Stdout.Write(append(line, '\n'))
}

func (o *procOut) next() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.term++
	return o.term
}

func (j procJob) work() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	backend := leader.Postgres(j.Postgres)
	if j.SQLite != "" {
		db, err := sql.Open("sqlite", j.SQLite)
		if err != nil {
			return err
		}
		defer db.Close()
		backend = leader.SQLite(db)
	}
	l, err := leader.New(backend, j.Options)
	if err != nil {
		return err
	}
	out := &procOut{}
	go func() { // with the process
		for !l.Status().Connected {
			time.Sleep(time.Millisecond)
		}
		out.say(procEvent{Kind: "ready", PID: os.Getpid()})
	}()
	var runs sync.WaitGroup
	errs := make(chan error, len(j.Names))
	for _, name := range j.Names {
		runs.Go(func() {
			for {
				err := l.Run(ctx, name, func(ctx context.Context) error { return j.task(ctx, l, name, out) })
				if err != nil && ctx.Err() == nil {
					errs <- err
				}
				if err != nil || j.Once {
					return
				}
				time.Sleep(rand.N(j.Return)) // or whoever has just led has the best chance to lead again
			}
		})
	}
	runs.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	if j.Once {
		return nil
	}
	return l.Resign(context.Background())
}

func (j procJob) task(ctx context.Context, l *leader.Leader, name string, out *procOut) error {
	e := procEvent{Name: name, Term: out.next(), PID: os.Getpid()}
	say := func(kind string, nano int64) {
		e := e
		e.Kind, e.Nano = kind, nano
		e.Leading, e.Done = l.IsLeading(name), ctx.Err() != nil
		out.say(e)
	}
	say("start", 0)
	if j.Child {
		child := exec.Command("sleep", "60")
		if err := child.Start(); err != nil {
			return err
		}
		out.say(procEvent{Kind: "child", PID: child.Process.Pid})
	}
	if j.Probe {
		go probe(ctx, l, e, out) // until the task is told to stop
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	var end <-chan time.Time
	if j.Return > 0 {
		end = time.After(rand.N(j.Return))
	}
	for {
		now := time.Now().UnixNano()
		if leader.Confirm(ctx) != nil {
			say("late", 0)
			<-ctx.Done()
			say("told", 0)
			if j.Drain > 0 {
				time.Sleep(j.Drain)
				say("drained", 0)
			}
			return ctx.Err()
		}
		say("tick", now)
		select {
		case <-ticker.C:
		case <-end:
			say("end", 0)
			return nil
		case <-ctx.Done():
			if leader.Confirm(ctx) == nil {
				say("end", 0)
				return ctx.Err()
			}
		}
	}
}

// probe notes until when a task that does nothing else but ask is told that it leads. It reads the clock before each call: what
// a call says is true when it begins, and a freeze may come before it returns.
func probe(ctx context.Context, l *leader.Leader, e procEvent, out *procOut) {
	e.Kind = "probe"
	for more := true; more; {
		more = false
		for last, yes := range map[*int64]func() bool{
			&e.Confirmed: func() bool { return leader.Confirm(ctx) == nil },
			&e.Led:       func() bool { return l.IsLeading(e.Name) },
			&e.Open:      func() bool { return ctx.Err() == nil },
		} {
			now := time.Now().UnixNano()
			if yes() {
				*last, more = now, true
			}
		}
	}
	out.say(e)
}

// procFleet is a set of workers and all that they have said.
type procFleet struct {
	t       *testing.T
	workers []*procWorker

	mu     sync.Mutex
	events []procEvent
}

type procWorker struct {
	id     int
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer
	gone   chan struct{} // closed when it has been waited for
	err    error
}

// start runs a worker, if there is a prefix by way of that command.
func (f *procFleet) start(job procJob, prefix ...string) *procWorker {
	f.t.Helper()
	text, err := json.Marshal(job)
	require.NoError(f.t, err)
	args := append(prefix, os.Args[0], "-test.run=^TestHelperProcess$")
	w := &procWorker{id: len(f.workers), cmd: exec.Command(args[0], args[1:]...), gone: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), procEnv+"="+string(text), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")) // a second for each
	w.cmd.Stderr = &w.stderr
	w.stdin, err = w.cmd.StdinPipe()
	require.NoError(f.t, err)
	stdout, err := w.cmd.StdoutPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, w.cmd.Start())
	f.workers = append(f.workers, w)
	go func() { // until the process is gone, which the cleanup waits for
		defer close(w.gone)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			e := procEvent{worker: w.id}
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				f.mu.Lock()
				f.events = append(f.events, e)
				f.mu.Unlock()
			}
		}
		w.err = w.cmd.Wait()
	}()
	f.t.Cleanup(func() {
		w.signal(syscall.SIGKILL)
		<-w.gone
		w.stdin.Close()
		if f.t.Failed() && w.stderr.Len() > 0 {
			f.t.Logf("worker %d: %s", w.id, w.stderr.String())
		}
	})
	return w
}

func (w *procWorker) signal(sig syscall.Signal) { _ = w.cmd.Process.Signal(sig) } // it may be gone

// kill returns when the kernel is told.
func (w *procWorker) kill() time.Time {
	now := time.Now()
	w.signal(syscall.SIGKILL)
	return now
}

// stop freezes the process, and returns when it stands still.
func (w *procWorker) stop(t *testing.T) {
	t.Helper()
	pid := w.cmd.Process.Pid
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped())
}

// clean requires that the process ends by itself and without complaint.
func (w *procWorker) clean(t *testing.T) {
	t.Helper()
	select {
	case <-w.gone:
		require.NoError(t, w.err, w.stderr.String())
	case <-time.After(procPatience):
		t.Fatal("the process does not end")
	}
}

func (f *procFleet) all() []procEvent {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

// await returns the first event of a kind that w, or any worker, said no earlier than since.
func (f *procFleet) await(w *procWorker, kind string, since time.Time) procEvent {
	f.t.Helper()
	var found procEvent
	dbWithin(f.t, procPatience, kind, func() bool {
		for _, e := range f.all() {
			if e.Kind == kind && (w == nil || e.worker == w.id) && !e.at().Before(since) {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// starts is how many tasks w has begun.
func (f *procFleet) starts(w *procWorker) (n int) {
	for _, e := range f.all() {
		if e.Kind == "start" && e.worker == w.id {
			n++
		}
	}
	return n
}

// exclusive requires that no two tasks of one name overlapped: from start to end, or to the last sign of life. It
// returns how many tasks there were.
func (f *procFleet) exclusive() int {
	f.t.Helper()
	type id struct{ worker, term int }
	type span struct {
		id
		name       string
		start, end int64
	}
	spans := make(map[id]*span)
	for _, e := range f.all() {
		key := id{e.worker, e.Term}
		switch e.Kind {
		case "start":
			spans[key] = &span{id: key, name: e.Name, start: e.Nano, end: e.Nano}
		case "tick", "end", "drained":
			spans[key].end = e.Nano
		}
	}
	last := make(map[string]*span)
	for _, s := range slices.SortedFunc(maps.Values(spans), func(a, b *span) int { return int(a.start - b.start) }) {
		if l := last[s.name]; l != nil && s.start < l.end {
			f.t.Errorf("%s: worker %d task %d began %v before the end of worker %d task %d",
				s.name, s.worker, s.term, time.Duration(l.end-s.start), l.worker, l.term)
		}
		if l := last[s.name]; l == nil || s.end > l.end {
			last[s.name] = s
		}
	}
	return len(spans)
}

// procBackends runs test for both backends, with a job that lacks only names.
func procBackends(t *testing.T, test func(t *testing.T, job procJob)) {
	t.Helper()
	t.Run("Postgres", func(t *testing.T) {
		url := pgtest.URL(t)
		dbCheckLeaks(t, url)
		test(t, procJob{Postgres: url, Options: leader.Options{Retry: 400 * time.Millisecond}})
	})
	t.Run("SQLite", func(t *testing.T) {
		test(t, procJob{SQLite: filepath.Join(t.TempDir(), "app.db"), Options: leader.Options{Retry: 200 * time.Millisecond}})
	})
}
