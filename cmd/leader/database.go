// SPDX-License-Identifier: MIT

package main

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite"

	"github.com/oxygenhub/leader"
)

// database is where the locks are.
type database struct {
	backend leader.Backend
	config  *pgx.ConnConfig // nil for SQLite
	sqlite  *sql.DB         // nil for PostgreSQL
	file    string          // of SQLite
}

func (d *database) close() {
	if d.sqlite != nil {
		_ = d.sqlite.Close() // nothing is written
	}
}

const noDatabase = "no database: set DATABASE_URL, or PGHOST and so on, or pass --db (see: leader help run)"

// database finds out what value, of --db, means. A SQLite file that is not there is made only if create.
func (a *app) database(value string, create bool) (*database, error) {
	if value == "" {
		value = os.Getenv("DATABASE_URL")
	}
	switch file, isFile := sqliteFile(value); {
	case value == "":
		return a.fromEnvironment()
	case isFile:
		return openFile(file, create)
	}
	d := &database{backend: leader.Postgres(value)}
	if _, err := leader.New(d.backend, leader.Options{}); err != nil { // whose error has no password in it
		return nil, usagef("--db or DATABASE_URL: %s", strings.TrimPrefix(err.Error(), "leader: "))
	}
	config, err := pgx.ParseConfig(value)
	if err != nil {
		return nil, usagef("--db or DATABASE_URL: it cannot be parsed")
	}
	d.config = config
	a.hide.add(config.Password, config.User, config.Database, config.Host)
	return d, nil
}

// fromEnvironment is for the variables of psql.
func (a *app) fromEnvironment() (*database, error) {
	for _, name := range []string{"PGHOST", "PGHOSTADDR", "PGDATABASE", "PGSERVICE", "PGUSER", "PGPORT"} {
		if os.Getenv(name) == "" {
			continue
		}
		config, err := pgx.ParseConfig("")
		if err != nil {
			a.hide.add(os.Getenv("PGPASSWORD"))
			return nil, usagef("the PG* environment variables: %w", err)
		}
		a.hide.add(config.Password, config.User, config.Database, config.Host)
		return &database{backend: leader.PostgresConfig(config), config: config}, nil
	}
	return nil, usagef(noDatabase)
}

var (
	hasScheme  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]+:`) // of two letters or more: C: is a drive
	isKeyValue = regexp.MustCompile(`^\s*[a-z_]+\s*=`)
)

// looksLikeDatabase reports whether an argument was meant for --db.
func looksLikeDatabase(arg string) bool {
	return strings.HasPrefix(arg, "postgres://") || strings.HasPrefix(arg, "postgresql://") || keyPassword.MatchString(arg)
}

// sqliteFile tells the path of a file from what leads to PostgreSQL.
func sqliteFile(value string) (file string, ok bool) {
	scheme := strings.TrimSuffix(hasScheme.FindString(value), ":")
	switch strings.ToLower(scheme) {
	case "sqlite", "sqlite3", "file":
		file = strings.TrimPrefix(value[len(scheme)+1:], "//")
		file, _, _ = strings.Cut(file, "?")
		return file, true
	case "":
		return value, !isKeyValue.MatchString(value)
	}
	return "", false
}

func openFile(file string, create bool) (*database, error) {
	if file == "" || strings.Contains(file, ":memory:") {
		return nil, usagef("--db: a database in memory excludes nobody: give the path of a SQLite file")
	}
	abs, err := filepath.Abs(file)
	if err != nil {
		return nil, usagef("--db: %w", err)
	}
	if _, err := os.Stat(abs); !create && errors.Is(err, fs.ErrNotExist) {
		return nil, &exitError{statusUnavailable, fmt.Errorf("there is no SQLite file %s", abs)}
	}
	path := filepath.ToSlash(abs)
	if !strings.HasPrefix(path, "/") { // a drive
		path = "/" + path
	}
	db, err := sql.Open("sqlite", "file://"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, &exitError{statusUnavailable, err}
	}
	return &database{backend: leader.SQLite(db), sqlite: db, file: abs}, nil
}
