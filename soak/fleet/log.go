// SPDX-License-Identifier: MIT

//go:build unix

package fleet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/oxygenhub/leader/soak/history"
)

// ledgerSchema is what a database needs, beside leader_terms. The slot comes last: it tells of what is committed after it.
const ledgerSchema = `
	CREATE TABLE ledger (id bigserial PRIMARY KEY, namespace text NOT NULL, name text NOT NULL, term bigint NOT NULL,
		node text NOT NULL, shared bool NOT NULL);
	CREATE TABLE marks (id bigint PRIMARY KEY);
	CREATE PUBLICATION histories FOR ALL TABLES`

// logOf reads the server's log of changes by logical decoding, through the plugin that every server has. Nothing that a
// process says takes part: not whether it had an answer to its COMMIT, and not when.
type logOf struct {
	slot string // of the server, for one database
}

func (l logOf) open(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", l.slot)
	return err
}

// read returns what was committed since open, and drops the slot. All transactions of interest must have ended.
func (l logOf) read(ctx context.Context, conn *pgx.Conn) ([]history.Commit, error) {
	if _, err := conn.Exec(ctx, "SET synchronous_commit = on"); err != nil {
		return nil, err
	}
	// A commit that is flushed, and all before it with it.
	if _, err := conn.Exec(ctx, "INSERT INTO marks VALUES (1)"); err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, `SELECT (lsn - '0/0'::pg_lsn)::bigint, data
		FROM pg_logical_slot_get_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', 'histories')`, l.slot)
	if err != nil {
		return nil, err
	}
	decoder := decoder{tables: make(map[uint32]decoded)}
	var at int64
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&at, &data}, func() error { return decoder.message(uint64(at), data) })
	if err == nil && decoder.mark != 1 {
		err = errors.New("the log ends before its mark")
	}
	if err == nil {
		_, err = conn.Exec(ctx, "SELECT pg_drop_replication_slot($1)", l.slot)
	}
	return decoder.commits, err
}

type decoded struct {
	name    string
	columns []string
}

// decoder takes the messages of pgoutput, protocol 1: the chapter "Logical Replication Message Formats" of the manual.
type decoder struct {
	tables    map[uint32]decoded
	commits   []history.Commit
	committed uint64 // of the transaction that is being read
	mark      int64
}

var errCutOff = errors.New("a message that is cut off")

func (d *decoder) message(at uint64, data []byte) (err error) {
	defer func() {
		if recover() != nil { // a slice that is too short
			err = errCutOff
		}
	}()
	r := reader{data[1:]}
	switch data[0] {
	case 'B':
		d.committed = r.uint64()
	case 'R':
		id := r.uint32()
		r.text() // the schema
		table := decoded{name: r.text()}
		r.bytes(1)
		for range r.uint16() {
			r.bytes(1)
			table.columns = append(table.columns, r.text())
			r.bytes(8)
		}
		d.tables[id] = table
	case 'I', 'U':
		table := d.tables[r.uint32()]
		if kind := r.bytes(1)[0]; kind != 'N' { // the old row or its key comes first
			r.row(table.columns)
			r.bytes(1)
		}
		return d.change(at, table.name, data[0] == 'U', r.row(table.columns))
	case 'D', 'T':
		return fmt.Errorf("rows were deleted: %q", data)
	}
	return nil
}

// change takes a row as it was written.
func (d *decoder) change(at uint64, table string, updated bool, row map[string]string) error {
	c := history.Commit{
		Wrote: at, Committed: d.committed, Name: row["name"], Node: row["node"],
		Begun: table == "leader_terms", Shared: row["shared"] == "t",
	}
	var err error
	switch {
	case table == "marks":
		d.mark, err = strconv.ParseInt(row["id"], 10, 64)
		return err
	case table == "ledger" && !updated, c.Begun:
		c.Term, err = strconv.ParseInt(row["term"], 10, 64)
		d.commits = append(d.commits, c)
		return err
	}
	return fmt.Errorf("nobody writes so to %s: %v", table, row)
}

// reader takes a message apart. It panics at its end.
type reader struct{ data []byte }

func (r *reader) bytes(n int) []byte {
	taken := r.data[:n]
	r.data = r.data[n:]
	return taken
}

func (r *reader) uint16() uint16 { return binary.BigEndian.Uint16(r.bytes(2)) }
func (r *reader) uint32() uint32 { return binary.BigEndian.Uint32(r.bytes(4)) }
func (r *reader) uint64() uint64 { return binary.BigEndian.Uint64(r.bytes(8)) }

// text ends with a zero byte.
func (r *reader) text() string {
	for n, b := range r.data {
		if b == 0 {
			return string(r.bytes(n + 1)[:n])
		}
	}
	panic(errCutOff)
}

// row leaves out what is null.
func (r *reader) row(columns []string) map[string]string {
	row := make(map[string]string)
	for n := range r.uint16() {
		if r.bytes(1)[0] == 't' {
			row[columns[n]] = string(r.bytes(int(r.uint32())))
		}
	}
	return row
}
