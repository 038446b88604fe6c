// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
)

// sqlitePath asks db for the path of its main database, in which SQLite has resolved a relative name.
func sqlitePath(ctx context.Context, db *sql.DB) (string, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return "", fmt.Errorf("connect to the SQLite database: %w", err)
	}
	defer func() { _ = conn.Close() }()
	file, err := sqliteMain(ctx, conn)
	if err == nil {
		return file, nil
	}
	// The text of the error differs by driver. A connection that answers, and knows no pragma, is not SQLite for sure;
	// a connection that does not answer may do so later.
	var one int
	if conn.QueryRowContext(ctx, "SELECT 1").Scan(&one) == nil {
		return "", fmt.Errorf("%w: not a SQLite database: PRAGMA database_list: %w: SQLite takes a *sql.DB of a SQLite driver", ErrUnsupported, err)
	}
	return "", fmt.Errorf("PRAGMA database_list: %w", err)
}

func sqliteMain(ctx context.Context, conn *sql.Conn) (string, error) {
	rows, err := conn.QueryContext(ctx, "PRAGMA database_list")
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var seq any
		var name string
		var file sql.NullString
		if err := rows.Scan(&seq, &name, &file); err != nil {
			return "", err
		}
		if name == "main" {
			return file.String, nil
		}
	}
	if err := rows.Err(); err != nil {
		return "", err
	}
	return "", errors.New("it lists no main database")
}

// unsupportedSQLite refuses a database file whose locks may exclude nobody.
func unsupportedSQLite(file string, info fs.FileInfo) error {
	linked, err := sqliteLinked(file, info)
	if err != nil {
		return err
	}
	if linked {
		return fmt.Errorf("%w: the database file %s has several hard links, and each name has locks of its own (SQLite itself can corrupt such a file): keep one name", ErrUnsupported, file)
	}
	if sqliteMounted(file) {
		return fmt.Errorf("%w: the database file %s is mounted by itself, so its lock files and SQLite's -wal file are not shared: mount its directory instead", ErrUnsupported, file)
	}
	return unsupportedSQLitePlace("database file", file)
}

// unsupportedSQLitePlace refuses a network file system.
func unsupportedSQLitePlace(what, path string) error {
	kind, err := sqliteRemote(path)
	if err != nil {
		return fmt.Errorf("file system of the %s: %w", what, err)
	}
	if kind != "" {
		return fmt.Errorf("%w: the %s %s is on %s, where a lock may exclude nobody: keep the database on a local file system (for a container: a volume), or use PostgreSQL", ErrUnsupported, what, path, kind)
	}
	return nil
}
