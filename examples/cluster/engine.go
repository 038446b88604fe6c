// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/oxygenhub/leader"
)

// engine is what the leader has in memory: the table.
type engine struct {
	db     *sql.DB
	node   string
	turn   chan struct{} // buffer 1: has the one that writes
	values sync.Map      // key -> value; what is missing is asked of the table
}

// load reads the table under the term of ctx: all that earlier terms have committed is in it.
func load(ctx context.Context, db *sql.DB, node string) (*engine, error) {
	e := &engine{db: db, node: node, turn: make(chan struct{}, 1)}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // it has only read
	if err := leader.FenceSQL(ctx, tx); err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, "SELECT key, value FROM kv")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var key, value string
		if err := rows.Scan(&key, &value); err != nil {
			return nil, err
		}
		e.values.Store(key, value)
	}
	return e, rows.Err()
}

const upsert = `INSERT INTO kv (key, value, term, node) VALUES ($1, $2, $3, $4)
 ON CONFLICT (key) DO UPDATE SET value = excluded.value, term = excluded.term, node = excluded.node`

// put writes to the table, fenced, and then to memory. Writes take turns, as the memory has to change in their order.
func (e *engine) put(ctx context.Context, key, value string) (leader.Term, error) {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	tx, err := e.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // nothing after Commit
	if err := leader.FenceSQL(ctx, tx); err != nil {
		return 0, err
	}
	term, _ := leader.TermOf(ctx)
	if _, err := tx.ExecContext(ctx, upsert, key, value, int64(term), e.node); err != nil {
		return 0, err
	}
	e.values.Delete(key) // a commit that fails may have committed: then only the table knows
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	e.values.Store(key, value)
	return term, nil
}

func (e *engine) get(ctx context.Context, key string) (value string, ok bool, err error) {
	if value, ok := e.values.Load(key); ok {
		return value.(string), true, nil
	}
	return read(ctx, e.db, key)
}

// close waits for the write that is going on, and lets no other one begin. Those that wait for their turn end with the
// leadership, when the task has returned.
func (e *engine) close() { e.turn <- struct{}{} }

// read asks the table.
func read(ctx context.Context, db *sql.DB, key string) (value string, ok bool, err error) {
	err = db.QueryRowContext(ctx, "SELECT value FROM kv WHERE key = $1", key).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return value, err == nil, err
}
