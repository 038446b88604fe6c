// SPDX-License-Identifier: MIT

package leader

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sqliteTermsLeader makes a Leader that keeps terms, and requires at the end that it can resign.
func sqliteTermsLeader(t *testing.T, db *sql.DB, opts Options) *Leader {
	t.Helper()
	opts.Terms = true
	opts.Retry, opts.Check = cmp.Or(opts.Retry, 10*time.Millisecond), cmp.Or(opts.Check, 20*time.Millisecond)
	l, err := New(SQLite(db), opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		assert.NoError(t, l.Resign(ctx))
	})
	return l
}

// sqliteLead is a Run whose task waits for its end.
type sqliteLead struct {
	tasks chan context.Context // of each task that is started
	stop  context.CancelFunc
	ended chan error
}

func sqliteLeadStart(t *testing.T, l *Leader, name string) *sqliteLead {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &sqliteLead{tasks: make(chan context.Context, 64), stop: cancel, ended: make(chan error, 1)}
	t.Cleanup(cancel)
	go func() {
		r.ended <- l.Run(ctx, name, func(ctx context.Context) error {
			r.tasks <- ctx
			<-ctx.Done()
			return nil
		})
	}()
	return r
}

// next waits for the next task and returns its context and term.
func (r *sqliteLead) next(t *testing.T) (context.Context, Term) {
	t.Helper()
	select {
	case ctx := <-r.tasks:
		term, ok := TermOf(ctx)
		require.True(t, ok)
		return ctx, term
	case <-time.After(15 * time.Second):
		require.Fail(t, "no task was started")
		return nil, 0
	}
}

func (r *sqliteLead) end(t *testing.T) {
	t.Helper()
	r.stop()
	select {
	case err := <-r.ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(10 * time.Second):
		require.Fail(t, "Run has not returned")
	}
}

// sqliteLost requires that the task of ctx is told of a loss, and returns why.
func sqliteLost(ctx context.Context, t *testing.T) error {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		require.Fail(t, "not lost")
	}
	require.ErrorIs(t, context.Cause(ctx), ErrLost)
	return context.Cause(ctx)
}

func sqliteExec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	_, err := db.Exec(query, args...)
	require.NoError(t, err, query)
}

func sqliteTermRow(t *testing.T, db *sql.DB, name string) termRow {
	t.Helper()
	rows, err := sqliteReadTerms(t.Context(), db, sqliteNamespace, []int64{Key(sqliteNamespace, name)})
	require.NoError(t, err)
	return rows[Key(sqliteNamespace, name)]
}

func TestSQLiteTermsTableIsMadeOnce(t *testing.T) {
	flat(t, "")
	path, db := sqliteNewFile(t)
	var all sync.WaitGroup
	terms := make(chan Term, 8)
	for range 8 {
		l := sqliteTermsLeader(t, sqliteDB(t, path), Options{})
		all.Go(func() {
			assert.NoError(t, l.Run(t.Context(), "job", func(ctx context.Context) error {
				term, _ := TermOf(ctx)
				terms <- term
				return nil
			}))
		})
	}
	all.Wait()
	close(terms)
	var last Term
	for term := range terms {
		assert.Greater(t, term, last)
		last = term
	}
	row := sqliteTermRow(t, db, "job")
	assert.Equal(t, last, row.term)
	assert.Equal(t, EndReturned, row.ended)
	assert.WithinRange(t, row.released, time.Now().Add(-time.Minute), time.Now())
}

func TestSQLiteTermsTableByHand(t *testing.T) {
	_, db := sqliteNewFile(t)
	sqliteExec(t, db, TermsSQLite)
	sqliteExec(t, db, TermsSQLite)
	lead := sqliteLeadStart(t, sqliteTermsLeader(t, db, Options{Node: "n", Addr: "a:1"}), "job")
	_, term := lead.next(t)
	row := sqliteTermRow(t, db, "job")
	assert.Equal(t, termRow{name: "job", term: term, node: "n", addr: "a:1", pid: uint32(os.Getpid()), taken: row.taken}, row)
	lead.end(t)
	row = sqliteTermRow(t, db, "job")
	assert.Equal(t, EndResigned, row.ended)
	assert.False(t, row.released.IsZero())
}

func TestSQLiteTermsRefuseAnotherLayout(t *testing.T) {
	_, db := sqliteNewFile(t)
	sqliteExec(t, db, "CREATE TABLE leader_terms (key INTEGER PRIMARY KEY, name TEXT)")
	l := sqliteTermsLeader(t, db, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	ran, err := l.Try(ctx, "job", func(context.Context) error { return nil })
	assert.False(t, ran)
	require.ErrorContains(t, err, "leader.TermsSQLite")
	require.ErrorContains(t, err, "namespace", "the column that is missing")
	require.NoError(t, l.Resign(t.Context()))

	plain := sqliteOpen(t, db, "plain")
	assert.Len(t, sqliteTake(t, plain, Key(sqliteNamespace, "job")), 1, "nothing was locked")
	plain.kill()
	sqliteExec(t, db, "DROP TABLE leader_terms")
	sqliteLeadStart(t, sqliteTermsLeader(t, db, Options{}), "job").next(t)
}

func TestSQLiteTermsRefuseSchema(t *testing.T) {
	_, err := New(SQLite(sqliteDB(t, ":memory:")), Options{Terms: true, Schema: "main"})
	require.ErrorContains(t, err, "Options.Schema")
}

func TestSQLiteTermsInMemory(t *testing.T) {
	flat(t, "")
	db := sqliteDB(t, ":memory:")
	db.SetMaxOpenConns(1) // each connection has a database of its own
	lead := sqliteLeadStart(t, sqliteTermsLeader(t, db, Options{}), "job")
	ctx, first := lead.next(t)
	tx, err := db.Begin()
	require.NoError(t, err)
	require.NoError(t, FenceSQL(ctx, tx))
	require.NoError(t, tx.Commit())
	other := sqliteLeadStart(t, sqliteTermsLeader(t, db, Options{}), "job")
	lead.end(t)
	_, second := other.next(t)
	assert.Greater(t, second, first)
	var n int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM rows").Scan(&n), "the database is still there")
}

// TestSQLiteTermsRise loses what the last term is known by, while nobody leads and while somebody does.
func TestSQLiteTermsRise(t *testing.T) {
	flat(t, "")
	path, db := sqliteNewFile(t)
	l, other := sqliteTermsLeader(t, db, Options{Node: "l"}), sqliteTermsLeader(t, sqliteDB(t, path), Options{Node: "other"})
	var last Term
	rises := func(term Term) {
		t.Helper()
		require.Greater(t, term, last)
		last = term
	}
	for _, l := range []*Leader{l, other, l} {
		lead := sqliteLeadStart(t, l, "job")
		_, term := lead.next(t)
		rises(term)
		lead.end(t)
	}
	sqliteExec(t, db, "DELETE FROM leader_terms")
	lead := sqliteLeadStart(t, other, "job")
	ctx, term := lead.next(t)
	rises(term)

	sqliteExec(t, db, "DELETE FROM leader_terms")
	require.ErrorIs(t, sqliteLost(ctx, t), errTermGone)
	ctx, term = lead.next(t)
	rises(term)

	sqliteExec(t, db, "DROP TABLE leader_terms")
	require.ErrorIs(t, sqliteLost(ctx, t), errTermGone)
	ctx, term = lead.next(t)
	rises(term)
	assert.Equal(t, term, sqliteTermRow(t, db, "job").term, "made again")

	ahead := last + Term(time.Hour.Milliseconds()) // of a clock that has been set back since
	sqliteExec(t, db, "UPDATE leader_terms SET term = ?, node = 'thief'", int64(ahead))
	require.ErrorContains(t, sqliteLost(ctx, t), "thief")
	last = ahead
	_, term = lead.next(t)
	rises(term)
	assert.Equal(t, ahead+1, term)
	sqliteExec(t, db, "DELETE FROM leader_terms")
	_, term = lead.next(t)
	assert.Equal(t, ahead+2, term, "this Leader knows what it has seen")
	lead.end(t)
}

// TestSQLiteTermsRowOfSomebodyElse is C04: who does not contend again leaves the row as it is.
func TestSQLiteTermsRowOfSomebodyElse(t *testing.T) {
	_, db := sqliteNewFile(t)
	l := sqliteTermsLeader(t, db, Options{})
	overwritten := make(chan struct{})
	ran, err := l.Try(t.Context(), "job", func(ctx context.Context) error {
		_, err := db.Exec("UPDATE leader_terms SET term = term + 1, node = 'thief', addr = 'x', pid = 1, ended = 'lost'")
		close(overwritten)
		<-ctx.Done()
		return err
	})
	<-overwritten
	require.True(t, ran)
	require.ErrorIs(t, err, ErrLost)
	require.ErrorIs(t, err, errTermGone)
	require.NoError(t, l.Resign(t.Context()))
	row := sqliteTermRow(t, db, "job")
	assert.Equal(t, "thief", row.node)
	assert.True(t, row.released.IsZero())
	assert.Equal(t, EndLost, row.ended)
}

func TestSQLiteTermsNewFile(t *testing.T) {
	path, db := sqliteNewFile(t)
	lead := sqliteLeadStart(t, sqliteTermsLeader(t, db, Options{}), "job")
	ctx, first := lead.next(t)
	for _, end := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + end); err != nil {
			t.Skip("an open file cannot be removed here")
		}
	}
	next := sqliteDB(t, path)
	sqliteLost(ctx, t)
	lead.end(t)
	_, second := sqliteLeadStart(t, sqliteTermsLeader(t, next, Options{}), "job").next(t)
	assert.Greater(t, second, first)
}

// TestSQLiteTermsDoNotWrap: after the highest number there is no next one.
func TestSQLiteTermsDoNotWrap(t *testing.T) {
	_, db := sqliteNewFile(t)
	l := sqliteTermsLeader(t, db, Options{})
	lead := sqliteLeadStart(t, l, "job")
	ctx, _ := lead.next(t)
	sqliteExec(t, db, "UPDATE leader_terms SET term = ?", int64(math.MaxInt64))
	sqliteLost(ctx, t)
	poll(t, 5*time.Second, "refusal", func() bool { return errors.Is(l.Status().Tasks[0].Err, errLastTerm) })
	assert.Empty(t, lead.tasks)
	assert.Equal(t, Term(math.MaxInt64), sqliteTermRow(t, db, "job").term)
	lead.end(t)
}

// TestSQLiteTermsGoneInRelease: what a Check finds out while the lock is being given back must not keep it from that.
func TestSQLiteTermsGoneInRelease(t *testing.T) {
	path, db := sqliteNewFile(t)
	l := sqliteTermsLeader(t, db, Options{Check: 5 * time.Second})
	sqliteLeadStart(t, l, "other").next(t) // or the session would be closed for want of work
	lead := sqliteLeadStart(t, l, "job")
	ctx, first := lead.next(t)
	writer := sqliteBegin(t, sqliteDB(t, path)) // holds up the mark
	_, err := writer.Exec("INSERT INTO rows VALUES (1)")
	require.NoError(t, err)
	lead.stop()
	poll(t, 5*time.Second, "release", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		s := l.slots["job"]
		if s == nil || !s.freeing {
			return false
		}
		l.posted = append(l.posted, func() { l.verifiedLocked([]*grant{grantOf(ctx)}, nil, nil) }) // its row is gone
		l.poke()
		return true
	})
	lead.end(t)
	require.NoError(t, writer.Rollback())
	_, second := sqliteLeadStart(t, sqliteTermsLeader(t, sqliteDB(t, path), Options{}), "job").next(t)
	assert.Greater(t, second, first)
}
