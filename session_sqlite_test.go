// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"
)

// sqliteDB opens a database file with a table in it.
func sqliteDB(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	if path != ":memory:" {
		_, err = db.Exec("PRAGMA journal_mode = WAL")
		require.NoError(t, err)
	}
	_, err = db.Exec("CREATE TABLE IF NOT EXISTS rows (x)")
	require.NoError(t, err)
	return db
}

func sqliteNewFile(t *testing.T) (string, *sql.DB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	return path, sqliteDB(t, path)
}

func sqliteTryOpen(ctx context.Context, backend Backend, node string) (*sqliteSession, error) {
	s, err := backend.open(ctx, Options{Node: node}, &clock{epoch: time.Now()})
	if err != nil {
		return nil, err
	}
	return s.(*sqliteSession), nil
}

func sqliteOpen(t *testing.T, db *sql.DB, node string) *sqliteSession {
	t.Helper()
	s, err := sqliteTryOpen(t.Context(), SQLite(db), node)
	require.NoError(t, err)
	t.Cleanup(s.kill)
	return s
}

// sqliteTake tries keys and requires that there is no error.
func sqliteTake(t *testing.T, s *sqliteSession, keys ...int64) []int64 {
	t.Helper()
	held, err := s.try(keys)
	require.NoError(t, err)
	return held
}

func sqliteGive(t *testing.T, s *sqliteSession, keys ...int64) {
	t.Helper()
	missing, err := s.unlock(keys)
	require.NoError(t, err)
	require.Empty(t, missing)
}

func sqliteHolder(t *testing.T, s *sqliteSession, key int64) Holder {
	t.Helper()
	holders, err := s.holders([]int64{key})
	require.NoError(t, err)
	return holders[key]
}

func sqliteRange(n int) []int64 {
	keys := make([]int64, n)
	for i := range keys {
		keys[i] = int64(i) + 1
	}
	return keys
}

// sqliteEnded requires that every method says that the session is over.
func sqliteEnded(t *testing.T, s *sqliteSession) {
	t.Helper()
	_, try := s.try([]int64{1})
	_, unlock := s.unlock([]int64{1})
	_, prove := s.prove()
	_, holders := s.holders([]int64{1})
	_, wait := s.wait(t.Context())
	for name, err := range map[string]error{"try": try, "unlock": unlock, "prove": prove, "holders": holders, "wait": wait, "tell": s.tell(nil)} {
		var over *sessionError
		assert.ErrorAs(t, err, &over, name)
	}
}

func TestSQLiteSessionsExcludeEachOther(t *testing.T) {
	path, db := sqliteNewFile(t)
	a, b := sqliteOpen(t, db, "a"), sqliteOpen(t, sqliteDB(t, path), "b")
	assert.Equal(t, sqliteNamespace, a.about().namespace)
	assert.Equal(t, a.about().place, b.about().place)
	assert.True(t, filepath.IsAbs(a.about().place))
	assert.Zero(t, a.about().pid)

	edge := []int64{1, -1, 0, math.MinInt64, math.MaxInt64}
	assert.Equal(t, edge, sqliteTake(t, a, edge...))
	assert.Equal(t, []int64{2}, sqliteTake(t, b, append([]int64{2}, edge...)...))
	assert.Equal(t, []int64{3}, sqliteTake(t, a, 1, 3, 3), "a session has a lock once")
	missing, err := b.unlock([]int64{1, 2})
	require.NoError(t, err)
	assert.Equal(t, []int64{1}, missing, "the lock of another cannot be given back")
	assert.Empty(t, sqliteTake(t, b, 1))

	sqliteGive(t, a, 1)
	assert.Equal(t, []int64{1}, sqliteTake(t, b, 1))
	lost, err := a.prove()
	require.NoError(t, err)
	assert.Empty(t, lost)
	a.kill()
	a.kill()
	a.close()
	sqliteEnded(t, a)
	assert.Equal(t, []int64{-1, math.MinInt64}, sqliteTake(t, b, -1, math.MinInt64))
	assert.FileExists(t, filepath.Join(path+".leader", "0000000000000001.lock"))
	assert.FileExists(t, filepath.Join(path+".leader", "8000000000000000.lock"))
}

func TestSQLiteCheckRefusesNil(t *testing.T) {
	require.ErrorContains(t, SQLite(nil).check(Options{}), "nil")
	backend := SQLite(sqliteDB(t, ":memory:"))
	require.NoError(t, backend.check(Options{}))
	assert.False(t, backend.expires())
	assert.Equal(t, 200*time.Millisecond, backend.retry())
}

func TestSQLiteSaysWhenFilesCannotBeLocked(t *testing.T) {
	require.NoError(t, sqliteLockError(nil))
	require.NotErrorIs(t, sqliteLockError(os.ErrPermission), ErrUnsupported)
	require.ErrorIs(t, sqliteLockError(&os.PathError{Op: "lock", Path: "x", Err: errors.ErrUnsupported}), ErrUnsupported)
}

func TestSQLiteWaitHearsOnlyTheEnd(t *testing.T) {
	_, db := sqliteNewFile(t)
	s := sqliteOpen(t, db, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	keys, err := s.wait(ctx)
	require.NoError(t, err)
	require.Empty(t, keys)
	ended := make(chan error)
	go func() {
		_, err := s.wait(context.Background())
		ended <- err
	}()
	s.kill()
	var over *sessionError
	require.ErrorAs(t, <-ended, &over)
}

// TestSQLiteLockSurvivesEverythingInItsProcess is what SQLite's own locks do not: closing any handle drops them.
func TestSQLiteLockSurvivesEverythingInItsProcess(t *testing.T) {
	path, db := sqliteNewFile(t)
	a := sqliteOpen(t, db, "a")
	require.Equal(t, []int64{7}, sqliteTake(t, a, 7))
	other := sqliteStart(t, path)
	other.do(t, "open b")
	dir := filepath.Dir(path)
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"nothing", func() error { return nil }},
		{"read all files", func() error {
			return filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					_, err = os.ReadFile(file)
				}
				if strings.Contains(file, ".leader") {
					return nil // on Windows a locked file cannot be read
				}
				return err
			})
		}},
		{"open and close the database", func() error {
			again := sqliteDB(t, path)
			_, err := again.Exec("INSERT INTO rows VALUES (1)")
			return errors.Join(err, again.Close())
		}},
		{"VACUUM", func() error { _, err := db.Exec("VACUUM"); return err }},
		{"VACUUM INTO", func() error { _, err := db.Exec("VACUUM INTO ?", filepath.Join(dir, "backup.db")); return err }},
		{"checkpoint", func() error { _, err := db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); return err }},
		{"second session", func() error {
			s, err := sqliteTryOpen(t.Context(), SQLite(db), "again")
			if err == nil {
				_, err = s.try([]int64{7, 8})
				s.close()
			}
			return err
		}},
		{"child process", func() error { return exec.Command(os.Args[0], "-test.run=^$").Run() }},
		{"close the database", db.Close},
	} {
		require.NoError(t, step.run(), step.name)
		require.Equal(t, "[8] <nil>", other.do(t, "try 7 8"), step.name)
		other.do(t, "unlock 8")
		lost, err := a.prove()
		require.NoError(t, err, step.name)
		require.Empty(t, lost, step.name)
	}
	sqliteGive(t, a, 7)
	assert.Equal(t, "[7] <nil>", other.do(t, "try 7"))
}

func TestSQLiteRefusesHardLinks(t *testing.T) {
	path, db := sqliteNewFile(t)
	require.NoError(t, os.Link(path, path+".other"))
	_, err := sqliteTryOpen(t.Context(), SQLite(db), "a")
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "hard links")
	require.NoError(t, os.Remove(path+".other"))
	sqliteOpen(t, db, "a")
}

func TestSQLiteInMemory(t *testing.T) {
	db := sqliteDB(t, ":memory:")
	a, b, other := sqliteOpen(t, db, "a"), sqliteOpen(t, db, "b"), sqliteOpen(t, sqliteDB(t, ":memory:"), "c")
	assert.Contains(t, a.about().place, "memory")
	assert.ErrorIs(t, a.about().warning, errSQLiteMemory)
	assert.Equal(t, []int64{1, 2}, sqliteTake(t, a, 1, 2))
	assert.Equal(t, []int64{3}, sqliteTake(t, b, 1, 2, 3))
	assert.Equal(t, []int64{1}, sqliteTake(t, other, 1), "another database")
	assert.Equal(t, "a", sqliteHolder(t, b, 1).Node)
	assert.Equal(t, "b", sqliteHolder(t, b, 3).Node)
	assert.Equal(t, Holder{}, sqliteHolder(t, b, 4))
	lost, err := a.prove()
	require.NoError(t, err)
	assert.Empty(t, lost)
	sqliteGive(t, a, 1)
	assert.Equal(t, []int64{1}, sqliteTake(t, b, 1))
	a.kill()
	sqliteEnded(t, a)
	assert.Equal(t, []int64{2}, sqliteTake(t, b, 2))
	b.kill()
	other.kill()
	sqliteMemoryLocks.mu.Lock()
	defer sqliteMemoryLocks.mu.Unlock()
	for k := range sqliteMemoryLocks.held {
		assert.NotEqual(t, db, k.db, "free locks are forgotten")
	}
}

func TestSQLiteAsksTheBusyPoolOnce(t *testing.T) {
	_, db := sqliteNewFile(t)
	db.SetMaxOpenConns(1)
	backend := SQLite(db)
	tx, err := db.Begin()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = sqliteTryOpen(ctx, backend, "a")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, ErrUnsupported)
	require.NoError(t, tx.Rollback())

	s, err := sqliteTryOpen(t.Context(), backend, "a")
	require.NoError(t, err)
	s.close()
	tx, err = db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	s, err = sqliteTryOpen(t.Context(), backend, "a")
	require.NoError(t, err)
	assert.Equal(t, []int64{1}, sqliteTake(t, s, 1))
	s.close()
}

func TestSQLiteOpensWhatHasNoContentYet(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "new.db"))
	require.NoError(t, err)
	defer db.Close()
	s := sqliteOpen(t, db, "a")
	assert.Equal(t, []int64{1}, sqliteTake(t, s, 1))
	_, err = db.Exec("CREATE TABLE rows (x)")
	require.NoError(t, err)
	lost, err := s.prove()
	require.NoError(t, err)
	assert.Empty(t, lost)
}

// sqliteOtherDriver is a database that is not SQLite: it refuses every statement but those in knows.
type sqliteOtherDriver struct{ knows string }

func (d sqliteOtherDriver) Open(string) (driver.Conn, error)             { return d, nil }
func (d sqliteOtherDriver) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d sqliteOtherDriver) Driver() driver.Driver                        { return d }
func (d sqliteOtherDriver) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }

func (d sqliteOtherDriver) Begin() (driver.Tx, error)     { return nil, errors.ErrUnsupported }
func (d sqliteOtherDriver) Close() error                  { return nil }
func (d sqliteOtherDriver) Columns() []string             { return []string{"one"} }
func (d sqliteOtherDriver) Next(row []driver.Value) error { row[0] = int64(1); return nil }

func (d sqliteOtherDriver) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	if query != d.knows {
		return nil, errors.New("syntax error")
	}
	return d, nil
}

func TestSQLiteRefusesOtherDatabases(t *testing.T) {
	db := sql.OpenDB(sqliteOtherDriver{knows: "SELECT 1"})
	defer db.Close()
	_, err := sqliteTryOpen(t.Context(), SQLite(db), "a")
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "not a SQLite database")
	require.ErrorContains(t, err, "syntax error")

	mute := sql.OpenDB(sqliteOtherDriver{})
	defer mute.Close()
	_, err = sqliteTryOpen(t.Context(), SQLite(mute), "a")
	require.ErrorContains(t, err, "syntax error")
	require.NotErrorIs(t, err, ErrUnsupported, "it may just be away")
}

func TestSQLiteThousandsOfKeys(t *testing.T) {
	path, db := sqliteNewFile(t)
	a, b := sqliteOpen(t, db, "a"), sqliteOpen(t, sqliteDB(t, path), "b")
	keys := sqliteRange(900) // an unprivileged macOS or CI process may have no more files than 1,024
	measure := func(name string, f func()) {
		start := time.Now()
		f()
		t.Logf("%d keys: %s: %v", len(keys), name, time.Since(start))
	}
	measure("try, first", func() { require.Len(t, sqliteTake(t, a, keys...), len(keys)) })
	measure("try of a standby", func() { require.Empty(t, sqliteTake(t, b, keys...)) })
	measure("prove", func() {
		lost, err := a.prove()
		require.NoError(t, err)
		require.Empty(t, lost)
	})
	measure("holders", func() {
		holders, err := b.holders(keys)
		require.NoError(t, err)
		require.Len(t, holders, len(keys))
	})
	measure("unlock", func() { sqliteGive(t, a, keys...) })
	measure("try, again", func() { require.Len(t, sqliteTake(t, b, keys...), len(keys)) })
	measure("kill", b.kill)
	require.Len(t, sqliteTake(t, a, keys...), len(keys))
}

func TestSQLiteKillAtAnyTime(t *testing.T) {
	_, db := sqliteNewFile(t)
	keys := sqliteRange(40)
	for i := range 30 {
		s := sqliteOpen(t, db, "a")
		var busy sync.WaitGroup
		begun := make(chan struct{})
		busy.Go(func() { // the worker: one method at a time
			for n := 0; ; n++ {
				_, err := s.try(keys)
				if n == i%3 {
					close(begun)
				}
				if _, over := errors.AsType[*sessionError](err); over {
					return
				}
				assert.NoError(t, err)
				s.prove()
				s.holders(keys)
				s.unlock(keys[:20])
			}
		})
		<-begun
		s.kill()
		busy.Wait()
		sqliteEnded(t, s)
		next := sqliteOpen(t, db, "b")
		require.Len(t, sqliteTake(t, next, keys...), len(keys), "every lock is free")
		next.kill()
	}
}

func TestSQLiteLeadersHandOver(t *testing.T) {
	path, db := sqliteNewFile(t)
	var mu sync.Mutex
	var running, ran int
	task := func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		running++
		assert.Equal(t, 1, running)
		ran++
		running--
		return nil
	}
	var all sync.WaitGroup
	for i, db := range []*sql.DB{db, sqliteDB(t, path), sqliteDB(t, path)} {
		l, err := New(SQLite(db), Options{Node: strconv.Itoa(i), Retry: 10 * time.Millisecond})
		require.NoError(t, err)
		all.Go(func() {
			assert.NoError(t, l.Run(t.Context(), "job", task))
			assert.NoError(t, l.Resign(t.Context()))
		})
	}
	all.Wait()
	assert.Equal(t, 3, ran)
}
