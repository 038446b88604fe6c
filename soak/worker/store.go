// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/soak/internal/crew"
)

// store is where the locks and the ledger are. The ledger is reached by a way of its own.
type store interface {
	backend() leader.Backend
	append(ctx context.Context, r row) error
}

// row is what a transaction writes.
type row struct {
	*shift

	random *rand.Rand
}

// idle is how long the server lets a transaction of the ledger rest: whoever is frozen in one holds takeovers up until then.
const idle = time.Second

func open(ctx context.Context, job crew.Job) (store, error) {
	if job.SQL != "" {
		db, err := sql.Open(job.SQL, "file:"+job.App+"?_pragma=busy_timeout(2000)&_pragma=journal_mode(wal)")
		if err != nil {
			return nil, err
		}
		return sqliteStore{db}, nil
	}
	config, err := pgxpool.ParseConfig(job.App)
	if err != nil {
		return nil, err
	}
	limit := idle
	if job.Broken == crew.Select {
		limit = time.Minute
	}
	config.MaxConns = int32(3*len(job.Names) + 2)
	config.ConnConfig.ConnectTimeout = time.Second
	config.ConnConfig.RuntimeParams["application_name"] = "ledger/" + job.Node
	config.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = strconv.FormatInt(limit.Milliseconds(), 10)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	return pgStore{job, pool}, err
}

type pgStore struct {
	job  crew.Job
	pool *pgxpool.Pool
}

func (s pgStore) backend() leader.Backend { return leader.Postgres(s.job.Lock) }

func (s pgStore) append(ctx context.Context, r row) error {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 100*time.Millisecond)
		defer cancel()
		_ = tx.Rollback(ctx) // it was committed, or the connection is gone
	}()
	if err := s.fence(ctx, tx, r); err != nil {
		return err
	}
	if s.job.Broken == crew.Select { // it has made sure that it leads, and now takes its time
		ctx = context.WithoutCancel(ctx)
		pause(ctx, time.Duration(100+r.random.IntN(200))*time.Millisecond)
	}
	r.dawdle(ctx)
	const insert = "INSERT INTO ledger (namespace, name, term, node, shared) VALUES ($1, $2, $3, $4, $5)"
	if _, err := tx.Exec(ctx, insert, s.job.Namespace, r.name, r.term, s.job.Node, r.shared || s.job.Broken == crew.Select); err != nil {
		return err
	}
	r.dawdle(ctx)
	return tx.Commit(ctx)
}

func (s pgStore) fence(ctx context.Context, tx pgx.Tx, r row) error {
	switch {
	case s.job.Broken == crew.Select:
		var current int64
		const read = "SELECT term FROM leader_terms WHERE namespace = $1 AND name = $2"
		if err := tx.QueryRow(ctx, read, s.job.Namespace, r.name).Scan(&current); err != nil {
			return err
		}
		if current != r.term {
			return &leader.FencedError{Name: r.name, Term: leader.Term(r.term), Current: leader.Term(current)}
		}
		return nil
	case r.shared:
		return leader.FenceShared(ctx, tx)
	}
	return leader.Fence(ctx, tx)
}

type sqliteStore struct{ db *sql.DB }

func (s sqliteStore) backend() leader.Backend { return leader.SQLite(s.db) }

func (s sqliteStore) append(ctx context.Context, r row) (err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	if err := leader.FenceSQL(ctx, tx); err != nil {
		return err
	}
	r.dawdle(ctx)
	const insert = "INSERT INTO ledger (name, term, node) VALUES (?, ?, ?)"
	if _, err := tx.ExecContext(ctx, insert, r.name, r.term, r.job.Node); err != nil {
		return err
	}
	return tx.Commit()
}

// dawdle leaves time for something to happen in the middle of a transaction.
func (r row) dawdle(ctx context.Context) {
	var d time.Duration
	switch dice := r.random.IntN(100); {
	case dice < 80:
		return
	case dice < 97:
		d = time.Duration(r.random.IntN(20)) * time.Millisecond
	default:
		d = time.Duration(r.random.IntN(200)) * time.Millisecond
	}
	pause(ctx, d)
}
