// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// record is what the holder of a lock file writes into it, or on Windows beside it; see docs/sqlite.md.
type record struct {
	Node    string    `json:"node"`
	PID     uint32    `json:"pid"`
	Since   time.Time `json:"since"`
	Session string    `json:"session"`
}

// fromFiles looks at the lock files of a SQLite database. It locks none of them, which could make one look taken.
func (d *database) fromFiles(ctx context.Context, f statusFlags, o *overviewOf) error {
	file, err := filepath.EvalSymlinks(d.file)
	if err != nil {
		return err
	}
	o.Place, o.Namespace = file, cmp.Or(f.namespace, "main")
	if f.schema != "" {
		return usagef("status: --schema is for PostgreSQL")
	}
	o.names(f.names)
	if err := o.readFiles(file + ".leader"); err != nil {
		return err
	}
	return o.readTable(ctx, d, f.names)
}

func (o *overviewOf) readFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nobody has ever locked
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		hex, isLock := strings.CutSuffix(e.Name(), ".lock")
		key, err := strconv.ParseUint(hex, 16, 64)
		if !isLock || err != nil || len(hex) != 16 {
			continue
		}
		r, held := readRecord(dir, hex)
		if held {
			l := o.lead(int64(key))
			l.Held, l.Node, l.PID, l.Since = true, r.Node, r.PID, &r.Since
		}
	}
	return nil
}

// readRecord returns who holds a lock. A record is true for as long as the session that wrote it lives, which the lock of its own
// file tells.
func readRecord(dir, hex string) (r record, held bool) {
	text, err := readSome(filepath.Join(dir, hex+".holder"))
	if err != nil {
		text, err = readSome(filepath.Join(dir, hex+".lock"))
	}
	if err != nil || json.NewDecoder(strings.NewReader(text)).Decode(&r) != nil || r.Session == "" || filepath.Base(r.Session) != r.Session {
		return r, false
	}
	mark := flock.New(filepath.Join(dir, "sessions", r.Session), flock.SetFlag(os.O_RDONLY))
	free, err := mark.TryRLock()
	if free {
		_ = mark.Unlock() // its own process has ended, or it would not be free
	}
	return r, !free && err == nil
}

// readSome reads a file that may be written meanwhile.
func readSome(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, 1<<14))
	return string(text), err
}

// readTable reads leader_terms, if there is one.
func (o *overviewOf) readTable(ctx context.Context, d *database, names []string) error {
	var tables int
	if err := d.sqlite.QueryRowContext(ctx, `SELECT count(*) FROM main.sqlite_master WHERE type = 'table' AND name = 'leader_terms'`).Scan(&tables); err != nil {
		return fmt.Errorf("read the SQLite file %s: %w", d.file, err)
	}
	if tables == 0 {
		return nil
	}
	rows, err := d.sqlite.QueryContext(ctx, `SELECT key, name, term, node, addr, pid, taken_at, released_at IS NOT NULL, coalesce(ended, '')
		FROM main.leader_terms WHERE namespace = ?`, o.Namespace)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	wanted := make(map[string]bool)
	for _, name := range names {
		wanted[name] = true
	}
	for rows.Next() {
		var t term
		var taken int64
		if err := rows.Scan(&t.key, &t.name, &t.term, &t.node, &t.addr, &t.pid, &taken, &t.released, &t.ended); err != nil {
			return err
		}
		t.taken = time.UnixMilli(taken)
		if len(names) == 0 || wanted[t.name] {
			o.add(t)
		}
	}
	return rows.Err()
}
