// SPDX-License-Identifier: MIT

//go:build unix

package fleet

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"slices"

	_ "modernc.org/sqlite"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/soak/faults"
	"github.com/oxygenhub/leader/soak/history"
)

// sqlite is a file, on a small file system of its own where this process may mount one.
//
// The order of commits is that of a table that triggers append to. SQLite has one writer at a time, from its first write to
// its commit, so the numbers of that table are in the order of commits.
type sqlite struct {
	fleet *Fleet
	dir   string
	db    *sql.DB
	small bool // the file system can be filled
}

const sqliteSchema = `
	CREATE TABLE ledger (id INTEGER PRIMARY KEY, name TEXT NOT NULL, term INTEGER NOT NULL, node TEXT NOT NULL);
	CREATE TABLE committed (id INTEGER PRIMARY KEY, name TEXT, term INTEGER, node TEXT, begun INTEGER);
	CREATE TRIGGER row AFTER INSERT ON ledger BEGIN
		INSERT INTO committed (name, term, node, begun) VALUES (new.name, new.term, new.node, 0);
	END;
	CREATE TRIGGER first AFTER INSERT ON leader_terms BEGIN
		INSERT INTO committed (name, term, node, begun) VALUES (new.name, new.term, new.node, 1);
	END;
	CREATE TRIGGER next AFTER UPDATE ON leader_terms WHEN new.term <> old.term BEGIN
		INSERT INTO committed (name, term, node, begun) VALUES (new.name, new.term, new.node, 1);
	END;`

func (b *sqlite) prepare(ctx context.Context, f *Fleet) error {
	b.fleet, b.dir = f, filepath.Join(f.Dir, "database")
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		return err
	}
	if err := mountSmall(b.dir); err != nil {
		f.Log("NOT RUN HERE: a full disk needs a small file system: " + err.Error())
		f.Plan = slices.DeleteFunc(slices.Clone(f.Plan), func(x faults.Fault) bool { return x.Kind == faults.DiskFull })
	} else {
		b.small = true
		f.stage.Cleanup(func() { unmount(b.dir) })
	}
	var err error
	if b.db, err = sql.Open("sqlite", "file:"+b.file()+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)"); err != nil {
		return err
	}
	f.stage.Cleanup(func() { _ = b.db.Close() }) // before the file system goes
	if _, err := b.db.ExecContext(ctx, leader.TermsSQLite); err != nil {
		return err
	}
	if _, err := b.db.ExecContext(ctx, sqliteSchema); err != nil {
		return err
	}
	for id := range f.Places {
		f.places = append(f.places, &place{fleet: f, id: id + 1})
	}
	return nil
}

func (b *sqlite) file() string                   { return filepath.Join(b.dir, "db") }
func (b *sqlite) urls(*place) (lock, app string) { return b.file(), b.file() }
func (b *sqlite) driver() string                 { return "sqlite" }
func (b *sqlite) rest()                          {}

func (b *sqlite) version() string {
	version := "?"
	_ = b.db.QueryRow("SELECT sqlite_version()").Scan(&version) //nolint:noctx // a constant
	return "SQLite " + version
}

func (b *sqlite) led(ctx context.Context) (names int, err error) {
	err = b.db.QueryRowContext(ctx, "SELECT count(DISTINCT name) FROM ledger").Scan(&names)
	return names, err
}

// load is nothing: nobody has a session.
func (b *sqlite) load(context.Context) (history.Event, error) { return history.Event{}, nil }

func (b *sqlite) commits(ctx context.Context) (commits []history.Commit, err error) {
	rows, err := b.db.QueryContext(ctx, "SELECT id, name, term, node, begun FROM committed ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err tells
	for rows.Next() {
		var id uint64
		var c history.Commit
		if err := rows.Scan(&id, &c.Name, &c.Term, &c.Node, &c.Begun); err != nil {
			return nil, err
		}
		c.Wrote, c.Committed = 2*id, 2*id+1
		commits = append(commits, c)
	}
	return commits, rows.Err()
}

// fillDisk takes all the room that is left.
func (b *sqlite) fillDisk() (empty func() error, err error) {
	if !b.small {
		return nil, errors.ErrUnsupported
	}
	path := filepath.Join(b.dir, "filler")
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	for size := 1 << 20; size > 0; {
		if _, err := file.Write(make([]byte, size)); err != nil {
			size /= 2 // until there is no room for a byte
		}
	}
	return func() error { return os.Remove(path) }, file.Close()
}

// What a file does not have.

func (b *sqlite) terminate(context.Context, func() []string) (func() error, error) {
	return nil, errors.ErrUnsupported
}
func (b *sqlite) stop(string) error                               { return errors.ErrUnsupported }
func (b *sqlite) start() error                                    { return errors.ErrUnsupported }
func (b *sqlite) crashBackend(context.Context) error              { return errors.ErrUnsupported }
func (b *sqlite) fillLocks(context.Context) (func() error, error) { return nil, errors.ErrUnsupported }
func (b *sqlite) readOnly(context.Context, bool) error            { return errors.ErrUnsupported }
func (b *sqlite) bounce(bool) error                               { return errors.ErrUnsupported }
func (b *sqlite) promote(context.Context) error                   { return errors.ErrUnsupported }
func (b *sqlite) cut(int, string) error                           { return errors.ErrUnsupported }
func (b *sqlite) mend(int) error                                  { return errors.ErrUnsupported }
