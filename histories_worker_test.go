// SPDX-License-Identifier: MIT

//go:build unix

package leader_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/oxygenhub/leader"
)

// histEnv makes a worker of this test binary, run again with TestHistoriesWorker only.
const histEnv = "LEADER_TEST_HISTORIES_WORKER"

// How a task of a history makes sure that it may write.
const (
	histFence  = "Fence"
	histShared = "FenceShared"
	histPlain  = "SELECT" // which is no fence
)

// histJob is what a worker does in one history.
type histJob struct {
	Lock, App string // URLs: of the Leader, and of the pool that the tasks write with
	Options   leader.Options
	Names     []string
	Writers   int    // of each task
	Mode      string // histFence, histShared, histPlain
	Isolation pgx.TxIsoLevel
	SQL       bool // by way of database/sql
	Idle      time.Duration
	Seed      uint64
}

// histReply is a line on the standard output of a worker.
type histReply struct {
	Kind string // stopped; refused; broken: this must not happen
	Text string // of refused, by what; of broken, what
}

// TestHistoriesWorker is the worker. It reads jobs from its standard input, a line each. An empty line ends the one
// before.
func TestHistoriesWorker(t *testing.T) {
	if os.Getenv(histEnv) == "" {
		return
	}
	out := &histOut{}
	stop := func() {}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		stop()
		stop = func() {}
		if len(lines.Bytes()) == 0 {
			out.say(histReply{Kind: "stopped"})
			continue
		}
		var job histJob
		if err := json.Unmarshal(lines.Bytes(), &job); err != nil {
			t.Fatal(err)
		}
		var err error
		if stop, err = job.start(out); err != nil {
			t.Fatal(err)
		}
	}
	os.Exit(0) // the parent is gone, or has no more work: a process that is told to leave was told to stop before
}

// histOut writes lines whole.
type histOut struct{ mu sync.Mutex }

func (o *histOut) say(r histReply) {
	o.mu.Lock()
	defer o.mu.Unlock()
	line, _ := json.Marshal(r)
	os.Stdout.Write(append(line, '\n'))
}

// histWork is a job that goes on.
type histWork struct {
	histJob

	pool    *pgxpool.Pool
	db      *sql.DB // the same
	out     *histOut
	writers atomic.Uint64 // begun
}

// start has the job go on until stop is called. Then the process resigns, as one does that is about to be replaced.
func (j histJob) start(out *histOut) (stop func(), err error) {
	config, err := pgxpool.ParseConfig(j.App)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(len(j.Names)*j.Writers + 1)
	config.ConnConfig.ConnectTimeout = time.Second
	config.ConnConfig.RuntimeParams["application_name"] = "ledger/" + j.Options.Node
	config.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = strconv.FormatInt(j.Idle.Milliseconds(), 10)
	ctx, cancel := context.WithCancel(context.Background())
	w := &histWork{histJob: j, out: out}
	if w.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		cancel()
		return nil, err
	}
	w.db = stdlib.OpenDBFromPool(w.pool)
	l, err := leader.New(leader.Postgres(j.Lock), j.Options)
	if err != nil {
		cancel()
		return nil, err
	}
	var runs sync.WaitGroup
	for _, name := range j.Names {
		runs.Go(func() { // until stop
			for ctx.Err() == nil {
				err := l.Run(ctx, name, func(ctx context.Context) error { return w.task(ctx, name) })
				if err != nil && ctx.Err() == nil {
					out.say(histReply{Kind: "broken", Text: fmt.Sprintf("Run of %s returned %v", name, err)})
					return
				}
			}
		})
	}
	return func() {
		cancel()
		runs.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Resign(ctx) // the network may be broken
		go w.pool.Close() // likewise: it waits for the connections
	}, nil
}

// task is a term of a name. It ends by itself after a while, so that clean handovers are among the takeovers.
func (w *histWork) task(ctx context.Context, name string) error {
	term, ok := leader.TermOf(ctx)
	if !ok {
		w.out.say(histReply{Kind: "broken", Text: "a task without a term"})
		return nil
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var writers sync.WaitGroup
	for range w.Writers {
		random := rand.New(rand.NewPCG(w.Seed, w.writers.Add(1)))
		writer := histWriter{histWork: w, name: name, term: int64(term), random: random, deaf: random.IntN(2) == 0}
		writers.Go(func() { // until the term or its patience is over, or cancel
			if writer.write(ctx, work) {
				cancel()
			}
		})
	}
	end := time.AfterFunc(100*time.Millisecond+rand.N(900*time.Millisecond), cancel)
	defer end.Stop()
	writers.Wait()
	return nil
}

// histWriter appends to the ledger as long as it may, or longer: one that is deaf goes on when it is told to stop,
// until the fence stops it.
type histWriter struct {
	*histWork

	name   string
	term   int64
	random *rand.Rand
	deaf   bool
}

// write returns whether the others should stop too. ctx is that of the task, and says so when the term is over; work
// ends when the task does.
func (w *histWriter) write(ctx, work context.Context) bool {
	patience := time.Duration(0)
	if w.deaf {
		patience = 500 * time.Millisecond
	}
	over := make(chan struct{})
	defer context.AfterFunc(ctx, func() { time.AfterFunc(patience, func() { close(over) }) })()
	for {
		if err := w.append(ctx); errors.Is(err, leader.ErrFenced) {
			w.out.say(histRefusal(err))
			return true
		}
		select {
		case <-work.Done():
			return false
		case <-over:
			return true
		case <-time.After(time.Duration(w.random.IntN(10)) * time.Millisecond):
		}
	}
}

// histRefusal says by what a writer was refused.
func histRefusal(err error) histReply {
	var fenced *leader.FencedError
	var pgErr *pgconn.PgError
	switch {
	case !errors.As(err, &fenced) || fenced.Term == 0:
		return histReply{Kind: "broken", Text: "ErrFenced without its term: " + err.Error()}
	case fenced.Current != 0:
		return histReply{Kind: "refused", Text: "the table"}
	case errors.As(err, &pgErr):
		return histReply{Kind: "refused", Text: "SQLSTATE " + pgErr.Code}
	case errors.Is(err, leader.ErrLost):
		return histReply{Kind: "refused", Text: "Confirm"}
	}
	return histReply{Kind: "refused", Text: "the table, whose term could not be read"}
}

// append writes a row. Its transactions are careless: half of those of a deaf writer do not end with the term, and some
// take their time between the fence and the row, or between the row and the commit.
func (w *histWriter) append(ctx context.Context) error {
	if w.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	tx, err := w.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.rollback()
	if err := tx.fence(ctx, w); err != nil {
		return err
	}
	w.dawdle(ctx)
	const insert = "INSERT INTO ledger (namespace, name, term, node, shared) VALUES ($1, $2, $3, $4, $5)"
	if err := tx.exec(ctx, insert, w.Options.Namespace, w.name, w.term, w.Options.Node, w.Mode != histFence); err != nil {
		return err
	}
	w.dawdle(ctx)
	return tx.commit(ctx)
}

// histTx is a transaction of one of the two packages.
type histTx struct {
	pgx pgx.Tx
	sql *sql.Tx
}

func (w *histWriter) begin(ctx context.Context) (tx histTx, err error) {
	if !w.SQL {
		tx.pgx, err = w.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: w.Isolation})
		return tx, err
	}
	level := map[pgx.TxIsoLevel]sql.IsolationLevel{pgx.RepeatableRead: sql.LevelRepeatableRead, pgx.Serializable: sql.LevelSerializable}
	tx.sql, err = w.db.BeginTx(ctx, &sql.TxOptions{Isolation: level[w.Isolation]})
	return tx, err
}

func (t histTx) exec(ctx context.Context, sql string, args ...any) (err error) {
	if t.sql != nil {
		_, err = t.sql.ExecContext(ctx, sql, args...)
	} else {
		_, err = t.pgx.Exec(ctx, sql, args...)
	}
	return err
}

func (t histTx) commit(ctx context.Context) error {
	if t.sql != nil {
		return t.sql.Commit()
	}
	return t.pgx.Commit(ctx)
}

func (t histTx) rollback() {
	if t.sql != nil {
		_ = t.sql.Rollback() // it may have been committed, or the connection be gone
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = t.pgx.Rollback(ctx) // likewise
}

func (t histTx) fence(ctx context.Context, w *histWriter) error {
	switch {
	case w.Mode == histFence && w.SQL:
		return leader.FenceSQL(ctx, t.sql)
	case w.Mode == histFence:
		return leader.Fence(ctx, t.pgx)
	case w.Mode == histShared && w.SQL:
		return leader.FenceSharedSQL(ctx, t.sql)
	case w.Mode == histShared:
		return leader.FenceShared(ctx, t.pgx)
	}
	var current int64
	const read = "SELECT term FROM leader_terms WHERE namespace = $1 AND name = $2"
	if err := t.pgx.QueryRow(ctx, read, w.Options.Namespace, w.name).Scan(&current); err != nil {
		return err
	}
	if current != w.term {
		return &leader.FencedError{Name: w.name, Term: leader.Term(w.term), Current: leader.Term(current)}
	}
	return nil
}

// dawdle leaves time for something to happen in the middle of a transaction.
func (w *histWriter) dawdle(ctx context.Context) {
	var d time.Duration
	switch dice := w.random.IntN(100); {
	case dice < 70:
		return
	case dice < 93:
		d = time.Duration(w.random.IntN(20)) * time.Millisecond
	default:
		d = time.Duration(w.random.IntN(500)) * time.Millisecond
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
