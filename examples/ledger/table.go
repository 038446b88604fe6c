// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/oxygenhub/leader"
	_ "modernc.org/sqlite"
)

// On PostgreSQL place is in the order of the commits: it is drawn after Fence, which has the row of the name locked
// until the transaction has committed, so no other fenced one draws between the two. (That needs a sequence with CACHE
// 1, the default.) As it trusts Fence, each row also says which transactions were over when it was written: seen.
const createPostgres = `CREATE TABLE %s (
	place  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	term   bigint NOT NULL,
	worker text NOT NULL,
	xid    xid8 NOT NULL DEFAULT pg_current_xact_id(),
	seen   pg_snapshot NOT NULL DEFAULT pg_current_snapshot()
)`

// SQLite has one writer at a time: the rows are in the order of the commits in any case.
const createSQLite = `CREATE TABLE %s (
	place  INTEGER PRIMARY KEY AUTOINCREMENT,
	term   INTEGER NOT NULL,
	worker TEXT NOT NULL
)`

// table is the ledger.
type table struct {
	db       *sql.DB
	postgres bool
	version  int    // of the server, as 15_00_04
	name     string // the schema, or the SQLite file
	rows     string // the table itself, for SQL
	config   *pgx.ConnConfig
	gate     *gate // of a worker
}

func (t *table) place() string {
	if t.postgres {
		return "PostgreSQL"
	}
	return "a SQLite file"
}

// openTable opens the database, for writes directly and for locks by way of proxy.
func openTable(name, proxy string, g *gate) (t *table, locks leader.Backend, err error) {
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		t = &table{name: name, rows: "entries", gate: g}
		t.db, err = sql.Open("sqlite", name+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
		if err != nil {
			return nil, nil, err
		}
		return t, leader.SQLite(t.db), nil
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, nil, err
	}
	t = &table{postgres: true, name: name, rows: name + ".entries", config: config.Copy(), gate: g}
	if g != nil {
		config.Tracer = g
	}
	t.db = stdlib.OpenDB(*config)
	throughProxy := t.config.Copy()
	throughProxy.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", proxy)
	}
	return t, leader.PostgresConfig(throughProxy), nil
}

// dial connects to PostgreSQL for a proxy.
func (t *table) dial(ctx context.Context) (net.Conn, error) {
	if !t.postgres {
		return nil, errors.ErrUnsupported
	}
	network, address := pgconn.NetworkAddress(t.config.Host, t.config.Port)
	return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, address)
}

// createTable makes the table in a place of its own.
func createTable(ctx context.Context) (*table, error) {
	name := "leader_ledger_" + strings.ToLower(rand.Text()[:8])
	if os.Getenv("DATABASE_URL") != "" {
		t, _, err := openTable(name, "", nil)
		if err != nil {
			return nil, err
		}
		err = t.db.QueryRowContext(ctx, "SELECT current_setting('server_version_num')::int").Scan(&t.version)
		if err == nil {
			_, err = t.db.ExecContext(ctx, "CREATE SCHEMA "+name+";"+fmt.Sprintf(createPostgres, t.rows))
		}
		return t, err
	}
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		return nil, err
	}
	t, _, err := openTable(filepath.Join(dir, "ledger.db"), "", nil)
	if err == nil {
		_, err = t.db.ExecContext(ctx, fmt.Sprintf(createSQLite, t.rows))
	}
	return t, err
}

// drop removes all traces.
func (t *table) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if t.postgres {
		_, err := t.db.ExecContext(ctx, "DROP SCHEMA "+t.name+" CASCADE")
		return errors.Join(err, t.db.Close())
	}
	return errors.Join(t.db.Close(), os.RemoveAll(filepath.Dir(t.name)))
}

// deleteLock deletes the lock file of the task, which frees the lock though its holder lives.
func (t *table) deleteLock() error {
	return os.Remove(filepath.Join(t.name+".leader", fmt.Sprintf("%016x.lock", uint64(leader.Key("main", task)))))
}
