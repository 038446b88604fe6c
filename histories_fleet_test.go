// SPDX-License-Identifier: MIT

//go:build unix

package leader_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/ledger"
	"github.com/oxygenhub/leader/internal/pgtest"
)

const (
	histWorkers = 3
	// histAvailable is after how long each name must be led again when all is well again: a transaction that waits may
	// last for 2 s, and a process that could not connect waits for some seconds at most before it tries again.
	histAvailable = 15 * time.Second
	// histStops is how long a process may take to stop its tasks, whose transactions end after 3 s, and to resign.
	histStops = 15 * time.Second
)

// histFleet is a database, three places from which it is reached, and a process in each. One history after the other
// happens in it; its methods are for one goroutine, but for those of a place, which are for one goroutine each.
type histFleet struct {
	t      *testing.T
	url    string
	pool   *pgxpool.Pool // of the fleet, which no fault touches
	log    *ledger.Log
	places [histWorkers]*histPlace
	count  *histCount
}

// histPlace is where a process runs; when it dies, there is another. What it says of the network applies to each of
// them.
type histPlace struct {
	fleet     *histFleet
	id        int
	lock, app *pgtest.Proxy

	history int
	job     histJob
	born    int // processes and Leaders that there were
	worker  *histWorker
	node    atomic.Pointer[string] // that of the job
}

// histWorker is a process.
type histWorker struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stderr  bytes.Buffer
	stopped chan struct{} // a job has been stopped
	gone    chan struct{} // closed when it has been waited for
}

func histNewFleet(t *testing.T, server *pgtest.Server, id int, count *histCount) *histFleet {
	t.Helper()
	f := &histFleet{t: t, url: server.Database(t), count: count}
	pgtest.Exec(t, f.url, ledger.SQL)
	pgtest.Exec(t, f.url, leader.TermsSQL)
	f.log = &ledger.Log{Conn: pgtest.Connect(t, f.url), Slot: fmt.Sprintf("fleet%d", id)}
	if err := f.log.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	var err error
	if f.pool, err = pgxpool.New(t.Context(), f.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.pool.Close)
	for id := range f.places {
		p := &histPlace{fleet: f, id: id, lock: pgtest.NewProxy(t, server.Addr()), app: pgtest.NewProxy(t, server.Addr())}
		f.places[id] = p
		if err := p.start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.kill() })
	}
	return f
}

// start has another process.
func (p *histPlace) start() error {
	w := &histWorker{
		cmd:     exec.Command(os.Args[0], "-test.run=^TestHistoriesWorker$"),
		stopped: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	w.cmd.Env = append(os.Environ(), histEnv+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	w.cmd.Stderr = &w.stderr
	var err error
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err = w.cmd.Start(); err != nil {
		return err
	}
	p.worker = w
	go func() { // until the process is gone, which kill and leave wait for
		defer close(w.gone)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var r histReply
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				p.heard(w, r)
			}
		}
		_ = w.cmd.Wait() // mostly it was killed
		if w.stderr.Len() > 0 {
			p.fleet.t.Errorf("a process complained: %s", w.stderr.Bytes())
		}
	}()
	return nil
}

func (p *histPlace) heard(w *histWorker, r histReply) {
	switch r.Kind {
	case "stopped":
		w.stopped <- struct{}{}
	case "refused":
		p.fleet.count.refused(r.Text)
	case "broken":
		p.fleet.t.Error(r.Text)
	}
}

// begin hands the process its job, in which it is a new node.
func (p *histPlace) begin() error {
	p.born++
	node := fmt.Sprintf("h%d.%d.%d", p.history, p.id, p.born)
	p.node.Store(&node)
	p.job.Options.Node = node
	p.job.Seed = uint64(p.history)<<32 + uint64(p.born)<<2 + uint64(p.id)
	line, err := json.Marshal(p.job)
	if err != nil {
		return err
	}
	_, err = p.worker.stdin.Write(append(line, '\n'))
	return err
}

// stop ends the job in the orderly way.
func (p *histPlace) stop() error {
	if _, err := p.worker.stdin.Write([]byte{'\n'}); err != nil {
		return err
	}
	select {
	case <-p.worker.stopped:
		return nil
	case <-p.worker.gone:
		return errors.New("a process is gone that nobody killed")
	case <-time.After(histStops):
		p.worker.cmd.Process.Signal(syscall.SIGQUIT) // for the stacks, on its standard error
		<-p.worker.gone
		return fmt.Errorf("a process does not stop:\n%s", p.worker.stderr.Bytes())
	}
}

// leave is stop, and the end of the process.
func (p *histPlace) leave() error {
	err := p.stop()
	p.worker.stdin.Close()
	<-p.worker.gone
	return err
}

func (p *histPlace) signal(sig syscall.Signal) { _ = p.worker.cmd.Process.Signal(sig) }

func (p *histPlace) kill() {
	p.signal(syscall.SIGKILL)
	<-p.worker.gone
	p.worker.stdin.Close()
}

// terminate has the server end the sessions of the process's Leader.
func (p *histPlace) terminate(ctx context.Context) error {
	const sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1"
	_, err := p.fleet.pool.Exec(ctx, sql, "leader/"+*p.node.Load())
	return err
}

// available returns when every name is led: a row of it was written after the call.
func (f *histFleet) available(ctx context.Context, job histJob) error {
	var id int64
	if err := f.pool.QueryRow(ctx, "SELECT nextval('ledger_id_seq')").Scan(&id); err != nil {
		return err
	}
	const sql = "SELECT count(DISTINCT name) FROM ledger WHERE namespace = $1 AND id > $2"
	return f.until(ctx, histAvailable, "every name is led", sql, int64(len(job.Names)), job.Options.Namespace, id)
}

// quiet returns when the processes have left nothing behind that could still write: all transactions have ended.
func (f *histFleet) quiet(ctx context.Context) error {
	const sql = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND (application_name LIKE 'ledger/%' OR application_name LIKE 'leader%' AND state <> 'idle')`
	return f.until(ctx, histStops, "no transaction goes on", sql, 0)
}

// until returns when the query returns want.
func (f *histFleet) until(ctx context.Context, d time.Duration, what, sql string, want int64, args ...any) error {
	deadline := time.Now().Add(d)
	for {
		var got int64
		if err := f.pool.QueryRow(ctx, sql, args...).Scan(&got); err != nil {
			return err
		}
		if got == want {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %s: %d instead of %d\n%s", d, what, got, want, f.sessions(ctx))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// sessions is for those who have to find out why.
func (f *histFleet) sessions(ctx context.Context) string {
	rows, err := f.pool.Query(ctx, `SELECT concat_ws(' ', pid, application_name, state, wait_event_type, wait_event,
		now() - xact_start, pg_blocking_pids(pid), query) FROM pg_stat_activity WHERE datname = current_database()`)
	if err != nil {
		return err.Error()
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err.Error()
	}
	var text bytes.Buffer
	for _, line := range lines {
		fmt.Fprintln(&text, line)
	}
	return text.String()
}
