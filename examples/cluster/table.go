// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/oxygenhub/leader"
	_ "modernc.org/sqlite"
)

// The table of the service is kv. The journal is for the proof: the database itself notes each write there, and who leads
// at that moment, in the transaction of the write. Its places are in the order of the commits, as examples/ledger explains.
const createPostgres = `
CREATE TABLE kv (key text PRIMARY KEY, value text NOT NULL, term bigint NOT NULL, node text NOT NULL);
CREATE TABLE journal (place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL, value text NOT NULL,
	term bigint NOT NULL, node text NOT NULL, led_under bigint, led_by text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO journal (key, value, term, node, led_under, led_by) VALUES (NEW.key, NEW.value, NEW.term, NEW.node,
		(SELECT term FROM leader_terms WHERE name = 'kv' AND released_at IS NULL),
		(SELECT node FROM leader_terms WHERE name = 'kv' AND released_at IS NULL));
	RETURN NULL;
END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE ON kv FOR EACH ROW EXECUTE FUNCTION note()`

const createSQLite = `
CREATE TABLE kv (key TEXT PRIMARY KEY, value TEXT NOT NULL, term INTEGER NOT NULL, node TEXT NOT NULL);
CREATE TABLE journal (place INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, value TEXT NOT NULL,
	term INTEGER NOT NULL, node TEXT NOT NULL, led_under INTEGER, led_by TEXT);
CREATE TRIGGER note_insert AFTER INSERT ON kv BEGIN ` + noteSQLite + ` END;
CREATE TRIGGER note_update AFTER UPDATE ON kv BEGIN ` + noteSQLite + ` END`

const noteSQLite = `
	INSERT INTO journal (key, value, term, node, led_under, led_by) VALUES (NEW.key, NEW.value, NEW.term, NEW.node,
		(SELECT term FROM leader_terms WHERE name = 'kv' AND released_at IS NULL),
		(SELECT node FROM leader_terms WHERE name = 'kv' AND released_at IS NULL));`

// database is where the service keeps its table.
type database struct {
	*sql.DB
	postgres bool
	name     string // the schema, or the SQLite file
	locks    leader.Backend
}

func (d *database) place() string {
	if d.postgres {
		return "PostgreSQL"
	}
	return "a SQLite file"
}

func openDatabase(name string) (*database, error) {
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		db, err := sql.Open("sqlite", name+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
		if err != nil {
			return nil, err
		}
		return &database{DB: db, name: name, locks: leader.SQLite(db)}, nil
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["search_path"] = name
	d := &database{postgres: true, name: name, locks: leader.PostgresConfig(config)}
	// A process that is frozen in the middle of a write must not hold up the takeover.
	config.RuntimeParams["idle_in_transaction_session_timeout"] = "1s"
	d.DB = stdlib.OpenDB(*config)
	return d, nil
}

// createDatabase makes the tables in a place of their own.
func createDatabase(ctx context.Context) (*database, error) {
	name, tables := "leader_cluster_"+strings.ToLower(rand.Text()[:8]), leader.TermsSQLite+";"+createSQLite
	if os.Getenv("DATABASE_URL") != "" {
		tables = "CREATE SCHEMA " + name + ";" + leader.TermsSQL + ";" + createPostgres
	} else {
		dir, err := os.MkdirTemp("", name)
		if err != nil {
			return nil, err
		}
		name = filepath.Join(dir, "cluster.db")
	}
	d, err := openDatabase(name)
	if err != nil {
		return nil, err
	}
	if _, err := d.ExecContext(ctx, tables); err != nil {
		return nil, errors.Join(err, d.drop()) //nolint:contextcheck // also after Ctrl-C
	}
	return d, nil
}

// drop removes all traces.
func (d *database) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if d.postgres {
		_, err := d.ExecContext(ctx, "DROP SCHEMA IF EXISTS "+d.name+" CASCADE")
		return errors.Join(err, d.Close())
	}
	return errors.Join(d.Close(), os.RemoveAll(filepath.Dir(d.name)))
}
