// SPDX-License-Identifier: MIT

package leader

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sqliteTermsEnv has the sqliteTermsJob of a helper process: the test binary, run again with
// TestSQLiteTermsHelperProcess only.
const sqliteTermsEnv = "LEADER_TEST_SQLITE_TERMS"

type sqliteTermsJob struct {
	File  string
	Names []string
	Node  string
	Addr  string
}

// TestSQLiteTermsHelperProcess leads until its standard input ends, and then resigns. Its tasks insert rows under a fence, and
// now and then return.
func TestSQLiteTermsHelperProcess(t *testing.T) {
	text := os.Getenv(sqliteTermsEnv)
	if text == "" {
		return // run by itself there is nothing to do
	}
	var job sqliteTermsJob
	require.NoError(t, json.Unmarshal([]byte(text), &job))
	db := sqliteTermsOpen(t, job.File)
	l, err := New(SQLite(db), Options{Terms: true, Node: job.Node, Addr: job.Addr, Retry: 10 * time.Millisecond, Check: 50 * time.Millisecond})
	require.NoError(t, err)
	var runs sync.WaitGroup
	for _, name := range job.Names {
		runs.Go(func() {
			for {
				err := l.Run(context.Background(), name, func(ctx context.Context) error { return job.task(ctx, db, name) })
				if errors.Is(err, ErrResigned) {
					return
				}
				assert.NoError(t, err)
				time.Sleep(rand.N(20 * time.Millisecond)) // or it would have the best chance to lead again
			}
		})
	}
	io.Copy(io.Discard, os.Stdin)
	assert.NoError(t, l.Resign(context.Background()))
	runs.Wait()
}

func sqliteTermsOpen(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)&_pragma=synchronous(off)")
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func (j sqliteTermsJob) task(ctx context.Context, db *sql.DB, name string) error {
	term, _ := TermOf(ctx)
	fmt.Println("\nleads", name, term)
	for ctx.Err() == nil {
		if len(j.Names) > 1 && rand.N(10) == 0 {
			return nil
		}
		err := j.insert(ctx, db, name, term)
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrFenced) {
			return err
		}
		time.Sleep(rand.N(4 * time.Millisecond))
	}
	return nil
}

// insert leaves its transaction open for a while: when its process is killed, or another one waits.
func (j sqliteTermsJob) insert(ctx context.Context, db *sql.DB, name string, term Term) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := FenceSQL(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.Exec("INSERT INTO fenced (name, term, node) VALUES (?, ?, ?)", name, int64(term), j.Node); err != nil {
		return err
	}
	time.Sleep(rand.N(2 * time.Millisecond))
	return tx.Commit()
}

// sqliteTermsProcess is a helper process.
type sqliteTermsProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func (j sqliteTermsJob) start(t *testing.T) *sqliteTermsProcess {
	t.Helper()
	text, err := json.Marshal(j)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestSQLiteTermsHelperProcess$")
	cmd.Env = append(os.Environ(), sqliteTermsEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &sqliteTermsProcess{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(p.kill)
	return p
}

// leads waits until a task of p runs, and returns its term.
func (p *sqliteTermsProcess) leads(t *testing.T) (term Term) {
	t.Helper()
	stuck := time.AfterFunc(20*time.Second, func() { p.cmd.Process.Kill() })
	defer stuck.Stop()
	for p.out.Scan() {
		var name string
		if n, _ := fmt.Sscanf(p.out.Text(), "leads %s %d", &name, &term); n == 2 {
			return term
		}
	}
	require.Fail(t, "the process has ended and never led")
	return 0
}

// drain lets p say what it wants.
func (p *sqliteTermsProcess) drain() *sqliteTermsProcess {
	go func() { // until p ends
		for p.out.Scan() {
			if strings.Contains(p.out.Text(), "FAIL") {
				fmt.Fprintln(os.Stderr, p.out.Text())
			}
		}
	}()
	return p
}

func (p *sqliteTermsProcess) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

func sqliteTermsFile(t *testing.T) (string, *sql.DB) {
	t.Helper()
	path, db := sqliteNewFile(t)
	sqliteExec(t, db, "CREATE TABLE fenced (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, term INTEGER, node TEXT)")
	return path, sqliteTermsOpen(t, path)
}

// sqliteObserve returns a function that waits for a view of the only name that is as wanted.
func sqliteObserve(t *testing.T, l *Leader, name string) func(what string, is func(Holder) bool) Holder {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	views, ended := make(chan Holder, 1024), make(chan error, 1)
	go func() {
		ended <- l.Observe(ctx, func(v View) {
			if v.Err == nil && len(v.Holders) == 1 {
				views <- v.Holders[0]
			}
		}, name)
	}()
	t.Cleanup(func() {
		cancel()
		assert.ErrorIs(t, <-ended, context.Canceled)
	})
	return func(what string, is func(Holder) bool) Holder {
		t.Helper()
		var last Holder
		for end := time.After(20 * time.Second); ; {
			select {
			case last = <-views:
				if is(last) {
					return last
				}
			case <-end:
				require.Fail(t, "not seen", "%s: last: %+v", what, last)
			}
		}
	}
}

// TestSQLiteTermsKilledAndReleased follows one name over a clean release, which is followed at once, and over kill -9, whose
// successor waits for TakeoverDelay.
func TestSQLiteTermsKilledAndReleased(t *testing.T) {
	const patience = 8 * time.Second
	path, db := sqliteTermsFile(t)
	seen := sqliteObserve(t, sqliteTermsLeader(t, sqliteTermsOpen(t, path), Options{Node: "observer"}), "job")
	seen("nobody", func(h Holder) bool { return h == Holder{Name: "job"} })

	other := sqliteTermsJob{File: path, Names: []string{"job"}, Node: "other", Addr: "other:1"}.start(t)
	first := other.leads(t)
	h := seen("other", func(h Holder) bool { return h.Current })
	assert.Equal(t, Holder{
		Name: "job", Held: true, Node: "other", PID: uint32(other.cmd.Process.Pid), Since: h.Since,
		Current: true, Addr: "other:1", Term: first,
	}, h)
	assert.WithinRange(t, h.Since, time.Now().Add(-time.Minute), time.Now().Add(time.Second))

	patient := sqliteTermsLeader(t, db, Options{Node: "patient", Addr: "here:2", TakeoverDelay: patience})
	lead := sqliteLeadStart(t, patient, "job")
	closed := time.Now()
	require.NoError(t, other.in.Close())
	_, second := lead.next(t)
	took := time.Since(closed)
	assert.Greater(t, second, first)
	h = seen("patient", func(h Holder) bool { return h.Current && h.Node == "patient" })
	assert.Equal(t, second, h.Term)
	assert.Equal(t, "here:2", h.Addr)
	if h.Ended.Reason == EndDied { // a mark has 200 ms, which a disk may not keep to: then the next one is careful
		assert.GreaterOrEqual(t, took, patience)
	} else {
		assert.Equal(t, End{Reason: EndResigned}, h.Ended)
		assert.Less(t, took, patience, "a clean release is followed at once")
	}
	lead.end(t)
	h = seen("released", func(h Holder) bool { return !h.Held })
	assert.Equal(t, second, h.Ended.Term)
	assert.Equal(t, EndResigned, h.Ended.Reason)
	assert.False(t, h.Ended.At.IsZero())

	other = sqliteTermsJob{File: path, Names: []string{"job"}, Node: "third", Addr: "third:3"}.start(t)
	third := other.leads(t)
	assert.Greater(t, third, second)
	const delay = 500 * time.Millisecond
	lead = sqliteLeadStart(t, sqliteTermsLeader(t, sqliteTermsOpen(t, path), Options{Node: "heir", TakeoverDelay: delay}), "job")
	seen("third", func(h Holder) bool { return h.Current && h.Node == "third" })
	killed := time.Now()
	other.kill()
	_, fourth := lead.next(t)
	assert.GreaterOrEqual(t, time.Since(killed), delay)
	assert.Greater(t, fourth, third)
	h = seen("heir", func(h Holder) bool { return h.Current && h.Node == "heir" })
	assert.Equal(t, fourth, h.Term)
	assert.Equal(t, End{Reason: EndDied}, h.Ended)
	all, err := patient.Holders(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []Holder{h}, all)
}

// TestSQLiteTermsDiedUnfollowed: nobody has marked the end, and nobody has the lock.
func TestSQLiteTermsDiedUnfollowed(t *testing.T) {
	path, db := sqliteTermsFile(t)
	p := sqliteTermsJob{File: path, Names: []string{"job"}, Node: "p"}.start(t)
	term := p.leads(t)
	p.kill()
	h, err := sqliteTermsLeader(t, db, Options{}).Holder(t.Context(), "job")
	require.NoError(t, err)
	assert.Equal(t, Holder{Name: "job", Ended: End{Term: term, Reason: EndDied}}, h)
}

// TestSQLiteTermsProcessesContend has six processes contend for three names, and kills one of them or removes the locks
// of all, again and again. The rows of a name, in the order in which they were committed, must never go back to an earlier term.
func TestSQLiteTermsProcessesContend(t *testing.T) {
	path, db := sqliteTermsFile(t)
	names := []string{"a", "b", "c"}
	var fleet []*sqliteTermsProcess
	start := func(i int) *sqliteTermsProcess {
		return sqliteTermsJob{File: path, Names: names, Node: fmt.Sprint(i)}.start(t).drain()
	}
	for i := range 6 {
		fleet = append(fleet, start(i))
	}
	count := func() (n int) {
		require.NoError(t, db.QueryRow("SELECT count(*) FROM fenced").Scan(&n))
		return n
	}
	for i := range 6 {
		before := count()
		poll(t, 20*time.Second, "rows", func() bool { return count() >= before+50 })
		if i%2 == 1 { // two of them lead then, until the old one looks
			_ = os.Rename(path+".leader", fmt.Sprint(path, ".gone", i)) // not on Windows, where open files stay
			continue
		}
		victim := rand.N(len(fleet))
		fleet[victim].kill()
		fleet[victim] = start(6 + i)
	}
	for _, p := range fleet {
		p.in.Close()
	}
	for _, p := range fleet {
		assert.NoError(t, p.cmd.Wait())
	}

	rows, err := db.Query("SELECT name, term, node FROM fenced ORDER BY id")
	require.NoError(t, err)
	defer rows.Close()
	last, nodes, terms := make(map[string]int64), make(map[string]string), make(map[string]int)
	for rows.Next() {
		var name, node string
		var term int64
		require.NoError(t, rows.Scan(&name, &term, &node))
		require.GreaterOrEqual(t, term, last[name], name)
		if term > last[name] {
			terms[name]++
			nodes[name] = node
		}
		require.Equal(t, nodes[name], node, "a term has one process")
		last[name] = term
	}
	require.NoError(t, rows.Err())
	for _, name := range names {
		assert.Greater(t, terms[name], 1, name)
		assert.GreaterOrEqual(t, int64(sqliteTermRow(t, db, name).term), last[name])
	}
	t.Logf("terms with rows: %v, rows: %d", terms, count())
}
