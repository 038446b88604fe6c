// SPDX-License-Identifier: MIT

package ledger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// SQL makes the table that tasks append to, and what Log needs, beside leader_terms. The slot comes last: it tells of
// what is committed after it.
const SQL = `
	CREATE TABLE ledger (id bigserial PRIMARY KEY, namespace text NOT NULL, name text NOT NULL, term bigint NOT NULL,
		node text NOT NULL, shared bool NOT NULL);
	CREATE TABLE marks (id bigint PRIMARY KEY);
	CREATE PUBLICATION histories FOR ALL TABLES`

// Log reads the server's log of changes by logical decoding, through the plugin that every server has. Nothing that
// a process says takes part: not whether it had an answer to its COMMIT, and not when. It is for one goroutine.
type Log struct {
	Conn *pgx.Conn // of a superuser
	Slot string    // of the server, for one database
	mark int64     // the last one written
}

// Open makes the slot. It blocks until the transactions that go on have ended, or ctx has.
func (l *Log) Open(ctx context.Context) error {
	_, err := l.Conn.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", l.Slot)
	return err
}

// Read returns the events since the last Read, or since Open, by namespace. All transactions of interest must have
// ended. Where ctx ends first, or a message cannot be read, it returns what it has read and the error.
func (l *Log) Read(ctx context.Context) (map[string][]Event, error) {
	l.mark++ // a commit that is flushed, and all before it with it
	if _, err := l.Conn.Exec(ctx, "SET synchronous_commit = on"); err != nil {
		return nil, err
	}
	if _, err := l.Conn.Exec(ctx, "INSERT INTO marks VALUES ($1)", l.mark); err != nil {
		return nil, err
	}
	rows, err := l.Conn.Query(ctx, `SELECT (lsn - '0/0'::pg_lsn)::bigint, data
		FROM pg_logical_slot_get_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', 'histories')`, l.Slot)
	if err != nil {
		return nil, err
	}
	d := decoder{tables: make(map[uint32]table), events: make(map[string][]Event)}
	var at int64
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&at, &data}, func() error { return d.message(uint64(at), data) })
	if err == nil && d.mark != l.mark {
		err = fmt.Errorf("the log ends with mark %d instead of %d", d.mark, l.mark)
	}
	return d.events, err
}

type table struct {
	name    string
	columns []string
}

// decoder takes the messages of pgoutput, protocol 1: the chapter "Logical Replication Message Formats" of the
// manual.
type decoder struct {
	tables    map[uint32]table
	events    map[string][]Event
	committed uint64 // of the transaction that is being read
	mark      int64
}

var errMessage = errors.New("a message that is cut off")

func (d *decoder) message(at uint64, data []byte) (err error) {
	defer func() {
		if recover() != nil { // a slice that is too short
			err = errMessage
		}
	}()
	r := reader{data[1:]}
	switch data[0] {
	case 'B':
		d.committed = r.uint64()
	case 'R':
		id := r.uint32()
		r.text() // the schema
		t := table{name: r.text()}
		r.bytes(1)
		for range r.uint16() {
			r.bytes(1)
			t.columns = append(t.columns, r.text())
			r.bytes(8)
		}
		d.tables[id] = t
	case 'I', 'U':
		t := d.tables[r.uint32()]
		kind := r.bytes(1)[0]
		if kind != 'N' { // the old row or its key comes first
			r.row(t.columns)
			r.bytes(1)
		}
		return d.change(at, t.name, data[0] == 'U', r.row(t.columns))
	case 'D', 'T':
		return fmt.Errorf("rows were deleted: %q", data)
	}
	return nil
}

// change takes a row as it was written.
func (d *decoder) change(at uint64, table string, updated bool, row map[string]string) error {
	e := Event{
		Wrote: at, Committed: d.committed, Name: row["name"], Node: row["node"],
		Begun: table == "leader_terms", Shared: row["shared"] == "t",
	}
	var err error
	switch {
	case table == "marks":
		d.mark, err = strconv.ParseInt(row["id"], 10, 64)
		return err
	case table == "ledger" && !updated, e.Begun:
		e.Term, err = strconv.ParseInt(row["term"], 10, 64)
		d.events[row["namespace"]] = append(d.events[row["namespace"]], e)
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
	panic(errMessage)
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
