// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errSQLiteBroken = errors.New("no connection")

var sqliteFences = map[string]func(context.Context, *sql.Tx) error{"FenceSQL": FenceSQL, "FenceSharedSQL": FenceSharedSQL}

// sqliteBump begins a term of "job" as the Leader of another process does that has got hold of the lock.
func sqliteBump(t *testing.T, db *sql.DB, patience time.Duration) (Term, error) {
	t.Helper()
	const name = "job"
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	key := Key(sqliteNamespace, name)
	begun, stuck, err := sqliteTerms{db}.begin(ctx, termSite{namespace: sqliteNamespace, node: "later"}, []termWant{{key: key, name: name, last: unread}})
	require.NoError(t, err)
	return begun[key].term, stuck
}

func sqliteBegin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func sqliteRows(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow("SELECT count(*) FROM rows").Scan(&n))
	return n
}

func TestSQLiteTermsFence(t *testing.T) {
	for name, fence := range sqliteFences {
		t.Run(name, func(t *testing.T) {
			path, db := sqliteNewFile(t)
			later := sqliteDB(t, path)
			lead := sqliteLeadStart(t, sqliteTermsLeader(t, db, Options{Check: 5 * time.Second}), "job") // it does not look by itself
			ctx, first := lead.next(t)

			tx := sqliteBegin(t, db)
			require.NoError(t, fence(ctx, tx))
			require.NoError(t, fence(ctx, tx), "twice does no harm")
			_, stuck := sqliteBump(t, later, 100*time.Millisecond)
			require.Error(t, stuck, "no later term begins before the transaction has ended")
			_, err := tx.Exec("INSERT INTO rows VALUES (1)")
			require.NoError(t, err)
			require.NoError(t, tx.Commit())

			old := sqliteBegin(t, db)
			var n int
			require.NoError(t, old.QueryRow("SELECT count(*) FROM rows").Scan(&n), "its snapshot has our term")
			second, stuck := sqliteBump(t, later, 5*time.Second)
			require.NoError(t, stuck)
			require.Greater(t, second, first)
			require.NoError(t, Confirm(ctx), "it does not know")
			require.Error(t, fence(ctx, old))
			_, err = old.Exec("INSERT INTO rows VALUES (2)")
			require.Error(t, err, "not even then")
			old.Rollback()

			tx = sqliteBegin(t, db)
			err = fence(ctx, tx)
			var fenced *FencedError
			require.ErrorAs(t, err, &fenced)
			require.ErrorIs(t, err, ErrFenced)
			assert.Equal(t, FencedError{Name: "job", Term: first, Current: second}, *fenced)
			require.NoError(t, tx.Rollback())
			assert.Equal(t, 1, sqliteRows(t, db))

			lead.end(t)
			tx = sqliteBegin(t, db)
			err = fence(ctx, tx)
			require.ErrorAs(t, err, &fenced)
			require.ErrorIs(t, err, ErrLost)
			assert.Zero(t, fenced.Current)
			require.ErrorIs(t, fence(t.Context(), tx), errOutside)
			assert.Equal(t, "later", sqliteTermRow(t, db, "job").node, "the end of the old term marks nothing of the later one")
			assert.True(t, sqliteTermRow(t, db, "job").released.IsZero())
		})
	}
}

func TestSQLiteTermsFenceNeedsTerms(t *testing.T) {
	_, db := sqliteNewFile(t)
	l, err := New(SQLite(db), Options{})
	require.NoError(t, err)
	require.NoError(t, l.Run(t.Context(), "job", func(ctx context.Context) error {
		_, ok := TermOf(ctx)
		assert.False(t, ok)
		require.ErrorIs(t, FenceSQL(ctx, sqliteBegin(t, db)), errNoTerms)
		return nil
	}))
	require.NoError(t, l.Resign(t.Context()))
}

func TestSQLiteTermsFenceWithoutTable(t *testing.T) {
	_, db := sqliteNewFile(t)
	ctx, _ := sqliteLeadStart(t, sqliteTermsLeader(t, db, Options{Check: 5 * time.Second}), "job").next(t)
	sqliteExec(t, db, "DROP TABLE leader_terms")
	tx := sqliteBegin(t, db)
	require.Error(t, FenceSQL(ctx, tx))
	require.NoError(t, tx.Rollback())
}

func sqliteState(l *Leader, name string) State {
	for _, task := range l.Status().Tasks {
		if task.Name == name {
			return task.State
		}
	}
	return ""
}

func sqliteMode(t *testing.T, path, journal string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	sqliteExec(t, db, "PRAGMA journal_mode = "+journal)
	return db
}

// TestSQLiteTermsBlocked has a writer, or without WAL a reader, hold the database for longer than a takeover waits in one go.
func TestSQLiteTermsBlocked(t *testing.T) {
	flat(t, "")
	for mode, hold := range map[string]string{"WAL": "INSERT INTO rows VALUES (1)", "DELETE": "SELECT * FROM rows"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "app.db")
			db, writers := sqliteMode(t, path, mode), sqliteMode(t, path, mode)
			sqliteExec(t, writers, "CREATE TABLE rows (x)")
			l := sqliteTermsLeader(t, db, Options{})
			first := sqliteLeadStart(t, l, "first")
			ctx, _ := first.next(t)
			events := l.Watch(t.Context())
			writer := sqliteBegin(t, writers)
			_, err := writer.Exec(hold)
			require.NoError(t, err)
			second := sqliteLeadStart(t, l, "second")
			for e := range events {
				require.Contains(t, []EventKind{Blocked, Refused}, e.Kind, "%+v", e)
				if e.Kind == Blocked {
					assert.Equal(t, "second", e.Name)
					assert.ErrorContains(t, e.Err, "locked")
					break
				}
			}
			assert.Equal(t, StateTakeover, sqliteState(l, "second"))
			assert.Error(t, l.Status().Tasks[1].Err)
			assert.True(t, l.IsLeading("first"))
			assert.NoError(t, Confirm(ctx))
			assert.Less(t, l.Status().ProofAge, time.Second, "proofs go on")
			assert.Empty(t, second.tasks)
			require.NoError(t, writer.Rollback())
			_, term := second.next(t)
			assert.Equal(t, term, sqliteTermRow(t, db, "second").term)
			assert.True(t, l.IsLeading("first"))
		})
	}
}

// TestSQLiteTermsBusyPool keeps the only connection of the application busy at each stage.
func TestSQLiteTermsBusyPool(t *testing.T) {
	flat(t, "")
	_, db := sqliteNewFile(t)
	db.SetMaxOpenConns(1)
	l := sqliteTermsLeader(t, db, Options{})
	tx := sqliteBegin(t, db)
	first := sqliteLeadStart(t, l, "first")
	poll(t, 5*time.Second, "connecting", func() bool { return sqliteState(l, "first") == StateConnecting })
	require.NoError(t, tx.Rollback())
	ctx, _ := first.next(t)

	tx = sqliteBegin(t, db)
	require.NoError(t, FenceSQL(ctx, tx))
	second := sqliteLeadStart(t, l, "second")
	poll(t, 5*time.Second, "takeover", func() bool { return sqliteState(l, "second") == StateTakeover })
	assert.True(t, l.IsLeading("first"))
	require.NoError(t, tx.Commit())
	second.next(t)

	tx = sqliteBegin(t, db)
	start := time.Now()
	second.end(t)
	assert.Less(t, time.Since(start), time.Second, "the mark is left out")
	third := sqliteLeadStart(t, l, "third")
	poll(t, 5*time.Second, "takeover", func() bool { return sqliteState(l, "third") == StateTakeover })
	third.end(t)
	assert.True(t, l.IsLeading("first"))
	resign, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, l.Resign(resign), "with the pool still busy")
	require.NoError(t, tx.Rollback())
}

// sqliteLateDriver runs statements with late in front to the end and then says that their context has ended, as drivers do
// when both happen at once. Without a connector it has no connections.
type sqliteLateDriver struct {
	path   string
	late   string
	driver driver.Driver
	armed  *atomic.Bool
	broken *atomic.Bool
	opens  *atomic.Int64
}

type sqliteLateConn struct {
	driver.Conn
	of sqliteLateDriver
}

func (d sqliteLateDriver) Driver() driver.Driver { return d.driver }

func (d sqliteLateDriver) Connect(context.Context) (driver.Conn, error) {
	d.opens.Add(1)
	if d.broken.Load() {
		return nil, errSQLiteBroken
	}
	conn, err := d.driver.Open(d.path)
	return sqliteLateConn{conn, d}, err
}

func (c sqliteLateConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c sqliteLateConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c sqliteLateConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	done, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	if strings.HasPrefix(query, c.of.late) && c.of.armed.CompareAndSwap(true, false) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return done, err
}

func sqliteLate(t *testing.T, path, late string) (*sql.DB, sqliteLateDriver) {
	t.Helper()
	d := sqliteLateDriver{
		path: path, late: late, driver: sqliteDB(t, ":memory:").Driver(),
		armed: new(atomic.Bool), broken: new(atomic.Bool), opens: new(atomic.Int64),
	}
	db := sql.OpenDB(d)
	t.Cleanup(func() { db.Close() })
	return db, d
}

// TestSQLiteTermsLateAnswers: a connection must not go back to the pool in the middle of a transaction, nor be closed
// if it is the database.
func TestSQLiteTermsLateAnswers(t *testing.T) {
	for _, late := range []string{"BEGIN IMMEDIATE", "COMMIT"} {
		path := filepath.Join(t.TempDir(), "app.db")
		db, d := sqliteLate(t, path, late)
		sqliteExec(t, db, TermsSQLite)
		d.armed.Store(true)
		_, stuck := sqliteBump(t, db, 50*time.Millisecond)
		require.ErrorIs(t, stuck, context.DeadlineExceeded, late)
		sqliteExec(t, sqliteDB(t, path), "INSERT INTO rows VALUES (1)")
		_, stuck = sqliteBump(t, db, 5*time.Second)
		require.NoError(t, stuck, late)

		db, d = sqliteLate(t, ":memory:", late)
		db.SetMaxOpenConns(1)
		sqliteExec(t, db, TermsSQLite)
		d.armed.Store(true)
		_, stuck = sqliteBump(t, db, 50*time.Millisecond)
		require.ErrorIs(t, stuck, context.DeadlineExceeded, late)
		assert.Equal(t, int64(1), d.opens.Load(), late)
		sqliteTermRow(t, db, "job")
	}
}

// TestSQLiteTermsWithoutConnections: a pool that fails at once is no reason to ask it all the time.
func TestSQLiteTermsWithoutConnections(t *testing.T) {
	path, _ := sqliteNewFile(t)
	db, d := sqliteLate(t, path, "-")
	db.SetMaxIdleConns(-1)
	l := sqliteTermsLeader(t, db, Options{Check: time.Second})
	sqliteLeadStart(t, l, "first").next(t)
	d.broken.Store(true)
	opens := d.opens.Load()
	second := sqliteLeadStart(t, l, "second")
	poll(t, 5*time.Second, "error", func() bool {
		return len(l.Status().Tasks) == 2 && l.Status().Tasks[1].Err != nil && sqliteState(l, "second") == StateContending
	})
	assert.ErrorIs(t, l.Status().Tasks[1].Err, errSQLiteBroken)
	assert.Less(t, d.opens.Load()-opens, int64(20))
	assert.True(t, l.IsLeading("first"))
	d.broken.Store(false)
	second.next(t)
}
