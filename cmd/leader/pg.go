// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oxygenhub/leader/internal/dialerr"
)

// askPatience bounds a question to the database.
const askPatience = 10 * time.Second

// connect opens a connection for questions. It works through a pooler in transaction mode: nothing is prepared, and nothing
// is left behind.
func (d *database) connect(ctx context.Context) (*pgx.Conn, error) {
	config := d.config.Copy()
	maps.DeleteFunc(config.RuntimeParams, func(name, _ string) bool { return strings.HasPrefix(name, "pool_") })
	config.RuntimeParams["application_name"] = "leader-cli"
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	if config.ConnectTimeout <= 0 || config.ConnectTimeout > askPatience/2 {
		config.ConnectTimeout = askPatience / 2
	}
	if config.ValidateConnect == nil && severalHosts(config) { // as the library does
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, &exitError{statusUnavailable, dialerr.New(err)}
	}
	return conn, nil
}

func severalHosts(config *pgx.ConnConfig) bool {
	return slices.ContainsFunc(config.Fallbacks, func(f *pgconn.FallbackConfig) bool {
		return f.Host != config.Host || f.Port != config.Port
	})
}

// reading runs work in one transaction, and so on one process of the server, in which all names are the server's own. It has the
// namespace: the one that was given, or the current schema, "" if there is none.
func reading(ctx context.Context, conn *pgx.Conn, given string, work func(tx pgx.Tx, namespace string) error) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var schema string
		if err := tx.QueryRow(ctx, `SELECT coalesce(pg_catalog.current_schema()::pg_catalog.text, '')`).Scan(&schema); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SET LOCAL search_path = pg_catalog, pg_temp`); err != nil {
			return err
		}
		return work(tx, cmp.Or(given, schema))
	})
}

var errNoNamespace = &exitError{statusUsage, errors.New("this role has no current schema to take the namespace from: pass --namespace")}

// code is that of a server's error, "" if err is none.
func code(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

// Codes of errors that have a remedy.
const (
	codeNoTable    = "42P01"
	codeNoSchema   = "3F000"
	codeNoRight    = "42501"
	codeNoMemory   = "53200"
	codeTooMany    = "53300"
	codePassword   = "28P01"
	codeNotAllowed = "28000"
	codeNoDatabase = "3D000"
)

// Who holds a lock of this database. $1 are keys of which it is asked also if the holder is none of ours.
const (
	sqlLockKey = `((l.classid::int8 << 32) | l.objid::int8)`
	sqlLocks   = `SELECT ` + sqlLockKey + `, coalesce(l.pid, 0), coalesce(a.application_name, ''),
			CASE WHEN a.client_addr IS NULL THEN '' ELSE host(a.client_addr) END, a.backend_start
		FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
		WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ExclusiveLock' AND l.granted
			AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
			AND (a.application_name LIKE 'leader/%' OR ` + sqlLockKey + ` = ANY ($1::int8[]))`
	// A pooler in transaction mode keeps the name of a check that is long over.
	sqlIdle = `SELECT a.pid, a.application_name, CASE WHEN a.client_addr IS NULL THEN '' ELSE host(a.client_addr) END, a.backend_start
		FROM pg_stat_activity AS a WHERE a.datname = current_database() AND a.application_name LIKE 'leader/%' AND a.application_name <> 'leader/` + checkNode + `'
			AND NOT EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.objsubid = 1)
		ORDER BY a.application_name, a.pid`
)

// session is one of the server's that is a Leader's, or holds a lock that was asked for.
type session struct {
	key    int64
	pid    uint32
	node   string
	ours   bool       // it is a Leader's
	client string     // its address, where there is one and this role may see it
	since  *time.Time // nil if this role may not see it
}

// sessions reads who holds locks: of Leaders, and of keys.
func sessions(ctx context.Context, tx pgx.Tx, keys []int64) ([]session, error) {
	rows, err := tx.Query(ctx, sqlLocks, keys)
	if err != nil {
		return nil, err
	}
	var all []session
	var s session
	var application string
	_, err = pgx.ForEachRow(rows, []any{&s.key, &s.pid, &application, &s.client, &s.since}, func() error {
		one := s
		one.node, one.ours = strings.CutPrefix(application, "leader/")
		all = append(all, one)
		s.since = nil
		return nil
	})
	return all, err
}

// idle reads the sessions of Leaders that hold nothing.
func idle(ctx context.Context, tx pgx.Tx) ([]session, error) {
	rows, err := tx.Query(ctx, sqlIdle)
	if err != nil {
		return nil, err
	}
	var all []session
	var s session
	var application string
	_, err = pgx.ForEachRow(rows, []any{&s.pid, &application, &s.client, &s.since}, func() error {
		one := s
		one.node, one.ours = strings.CutPrefix(application, "leader/")
		all = append(all, one)
		s.since = nil
		return nil
	})
	return all, err
}

// describe is a session for people.
func (s session) describe() string {
	text := fmt.Sprintf("%s (server process %d", cmp.Or(s.node, "a stranger"), s.pid)
	if s.client != "" {
		text += ", from " + s.client
	}
	if s.since != nil {
		text += ", since " + s.since.Local().Format(time.DateTime)
	}
	return text + ")"
}
