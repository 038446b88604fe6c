// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sqliteBusyGap is how often a database is asked again whose writer goes on.
const sqliteBusyGap = 20 * time.Millisecond

var errLastTerm = errors.New("leader_terms has the highest term that there is: no other can follow, so somebody else must have written it")

// sqliteTerms keeps terms in the database itself, through the pool of the application, whose connections it borrows for one
// short transaction.
type sqliteTerms struct{ db *sql.DB }

func (b *sqliteBackend) terms(Options, *clock) termStore { return sqliteTerms{b.db} }
func (b *sqliteBackend) sqlite() bool                    { return true }

func (t sqliteTerms) queues() bool { return false }
func (t sqliteTerms) close()       {}

// write runs work in a transaction that has the write lock from its start, several times if need be. stuck tells that the
// pool or the database was kept busy by others for as long as this waits.
func (t sqliteTerms) write(ctx context.Context, work func(*sql.Conn) error) (stuck bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	conn, err := t.db.Conn(ctx)
	if err != nil {
		return ctx.Err() != nil, fmt.Errorf("the pool has no connection to spare: %w", err)
	}
	defer func() { _ = conn.Close() }()
	for {
		err := sqliteWrite(ctx, conn, work)
		switch {
		case err == nil:
			return false, nil
		case ctx.Err() == nil && !strings.Contains(err.Error(), "locked"): // SQLITE_BUSY and SQLITE_LOCKED, in any driver
			return false, err
		}
		pause := time.NewTimer(sqliteBusyGap)
		select {
		case <-ctx.Done():
			pause.Stop()
			return true, fmt.Errorf("the database is locked by somebody else: %w", err)
		case <-pause.C:
		}
	}
}

// sqliteWrite does it once. Whatever the driver says, conn is in no transaction afterwards.
func sqliteWrite(ctx context.Context, conn *sql.Conn, work func(*sql.Conn) error) error {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		if ctx.Err() != nil { // it may have begun all the same
			sqliteRollback(ctx, conn)
		}
		return err
	}
	err := work(conn)
	if err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	if err != nil {
		sqliteRollback(ctx, conn)
	}
	return err
}

// sqliteRollback ends the transaction of conn if there is one. It closes conn, which may be the whole of an in-memory database,
// only if it must: nobody shall get it in the middle of a transaction.
func sqliteRollback(ctx context.Context, conn *sql.Conn) {
	ctx = context.WithoutCancel(ctx)
	_, err := conn.ExecContext(ctx, "ROLLBACK")
	if err == nil {
		return
	}
	if _, err = conn.ExecContext(ctx, "BEGIN"); err == nil { // so there was none
		_, err = conn.ExecContext(ctx, "ROLLBACK")
	}
	if err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// begin reads the last terms, too: a lock of this process does not end behind its back.
func (t sqliteTerms) begin(ctx context.Context, site termSite, wants []termWant) (map[int64]termBegun, error, error) {
	var got map[int64]termBegun
	work := func(conn *sql.Conn) error {
		got = make(map[int64]termBegun, len(wants))
		for _, w := range wants {
			b, err := t.beginOne(ctx, conn, site, w)
			if err != nil {
				return err
			}
			got[w.key] = b
		}
		return nil
	}
	stuck, err := t.write(ctx, work)
	if err != nil && !stuck && t.ready(ctx) == nil { // the table was dropped, perhaps
		stuck, err = t.write(ctx, work)
	}
	switch {
	case stuck:
		return nil, err, nil
	case err != nil:
		return nil, nil, err
	}
	return got, nil, nil
}

func (t sqliteTerms) beginOne(ctx context.Context, conn *sql.Conn, site termSite, w termWant) (termBegun, error) {
	b := termBegun{clean: true}
	var released sql.NullInt64
	var ended sql.NullString
	err := conn.QueryRowContext(ctx, "SELECT term, released_at, ended FROM main.leader_terms WHERE key = ?", w.key).Scan(&b.last, &released, &ended)
	now := time.Now().UnixMilli()
	switch {
	case errors.Is(err, sql.ErrNoRows):
		b.term = max(Term(now), w.floor)
		_, err = conn.ExecContext(ctx, "INSERT INTO main.leader_terms (key, namespace, name, term, node, addr, pid, taken_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			w.key, site.namespace, w.name, int64(b.term), site.node, site.addr, int64(site.pid), now)
		return b, err
	case err != nil:
		return b, err
	}
	if b.clean = released.Valid; !b.clean {
		ended = sql.NullString{String: string(EndDied), Valid: true}
	}
	if b.last == math.MaxInt64 {
		return b, errLastTerm
	}
	b.term = max(b.last+1, Term(now), w.floor)
	_, err = conn.ExecContext(ctx, "UPDATE main.leader_terms SET term = ?, node = ?, addr = ?, pid = ?, taken_at = ?, released_at = NULL, ended = ? WHERE key = ?",
		int64(b.term), site.node, site.addr, int64(site.pid), now, ended, w.key)
	return b, err
}

func (t sqliteTerms) wait(context.Context, termSite, termWant, func(uint32)) (*termBegun, error) {
	return nil, errors.ErrUnsupported // begin waits
}

func (t sqliteTerms) end(ctx context.Context, _ termSite, ends []termEnd) ([]termEnd, error) {
	_, err := t.write(ctx, func(conn *sql.Conn) error {
		for _, e := range ends {
			_, err := conn.ExecContext(ctx, "UPDATE main.leader_terms SET released_at = ?, ended = ? WHERE key = ? AND term = ?",
				time.Now().UnixMilli(), string(e.reason), e.key, int64(e.term))
			if err != nil {
				return err
			}
		}
		return nil
	})
	return nil, err
}

func (t sqliteTerms) read(ctx context.Context, site termSite, keys []int64) (map[int64]termRow, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return sqliteReadTerms(ctx, t.db, site.namespace, keys)
}

// sqliteReadTerms reads rows, by key or, with nil, all of a namespace. A table that is not there has none.
func sqliteReadTerms(ctx context.Context, db *sql.DB, namespace string, keys []int64) (map[int64]termRow, error) {
	found, err := sqliteReadAll(ctx, db, namespace, keys)
	if err == nil {
		return found, nil
	}
	var tables int // what the error says depends on the driver
	asked := db.QueryRowContext(ctx, "SELECT count(*) FROM main.sqlite_master WHERE lower(name) = 'leader_terms'").Scan(&tables)
	if asked == nil && tables == 0 {
		return make(map[int64]termRow), nil
	}
	return nil, err
}

func sqliteReadAll(ctx context.Context, db *sql.DB, namespace string, keys []int64) (map[int64]termRow, error) {
	found := make(map[int64]termRow)
	if keys == nil {
		return found, sqliteReadSome(ctx, db, found, "namespace = ?", namespace)
	}
	for some := range slices.Chunk(keys, 500) {
		texts := make([]string, len(some))
		for i, key := range some {
			texts[i] = strconv.FormatInt(key, 10)
		}
		if err := sqliteReadSome(ctx, db, found, "key IN ("+strings.Join(texts, ", ")+")"); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func sqliteReadSome(ctx context.Context, db *sql.DB, found map[int64]termRow, where string, args ...any) error {
	rows, err := db.QueryContext(ctx, "SELECT key, name, term, node, addr, pid, taken_at, released_at, coalesce(ended, '') FROM main.leader_terms WHERE "+where, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var key, taken int64
		var released sql.NullInt64
		var row termRow
		if err := rows.Scan(&key, &row.name, &row.term, &row.node, &row.addr, &row.pid, &taken, &released, &row.ended); err != nil {
			return err
		}
		row.taken = time.UnixMilli(taken)
		if released.Valid {
			row.released = time.UnixMilli(released.Int64)
		}
		found[key] = row
	}
	return rows.Err()
}

func (t sqliteTerms) blockers(context.Context, termSite, []uint32) (map[uint32]Blocker, error) {
	return nil, nil //nolint:nilnil // SQLite does not say
}

// ready makes the table if there is none, and looks whether it is the right one.
func (t sqliteTerms) ready(ctx context.Context) error {
	if err := t.check(ctx); err == nil {
		return nil
	}
	_, err := t.write(ctx, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, TermsSQLite)
		return err
	})
	if err != nil {
		return fmt.Errorf("make the table leader_terms: %w", err)
	}
	return t.check(ctx)
}

func (t sqliteTerms) check(ctx context.Context) error {
	rows, err := t.db.QueryContext(ctx, "SELECT key, namespace, name, term, node, addr, pid, taken_at, released_at, ended FROM main.leader_terms LIMIT 0")
	if err != nil {
		return fmt.Errorf("the table leader_terms is not the one of leader.TermsSQLite, or an older one: %w", err)
	}
	defer func() { _ = rows.Close() }()
	_ = rows.Next()
	return rows.Err()
}
