// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/oxygenhub/leader"
)

// What the journal says of itself. It was written by the database, in the transactions of the writes.
const (
	// By how many is a newer term preceded, in the order of the commits?
	backwards = `SELECT count(*) FROM (SELECT term, max(term) OVER (ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING
  AND 1 PRECEDING) AS before FROM journal) AS entries WHERE term < before`
	// How many were written by a process, or under a term, that did not lead when they were?
	foreign = `SELECT count(*) FROM journal WHERE led_under IS NULL OR led_under <> term OR led_by <> node`
	// How many keys do not have their last value?
	stale = `SELECT count(*) FROM kv WHERE value <> (SELECT value FROM journal WHERE journal.key = kv.key ORDER BY place DESC LIMIT 1)`
)

// proof is what was found.
type proof struct {
	rows, terms               int
	backwards, foreign, stale int
	strange                   int // rows of a term that no process said it leads under, or another one
	missing                   int // writes that were acknowledged and are not there
}

// prove compares the database with what the clients were told, and with who said that it leads.
func prove(ctx context.Context, db *sql.DB, acks []ack, led map[leader.Term]string) (p proof, err error) {
	written := map[ack]struct{}{}
	terms := map[leader.Term]struct{}{}
	rows, err := db.QueryContext(ctx, "SELECT key, value, node, term FROM journal")
	if err != nil {
		return p, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var a ack
		if err := rows.Scan(&a.key, &a.value, &a.node, &a.term); err != nil {
			return p, err
		}
		p.rows++
		written[a], terms[a.term] = struct{}{}, struct{}{}
		if led[a.term] != a.node {
			p.strange++
		}
	}
	p.terms = len(terms)
	for _, a := range acks {
		if _, ok := written[a]; !ok {
			p.missing++
		}
	}
	return p, errors.Join(rows.Err(),
		db.QueryRowContext(ctx, backwards).Scan(&p.backwards),
		db.QueryRowContext(ctx, foreign).Scan(&p.foreign),
		db.QueryRowContext(ctx, stale).Scan(&p.stale))
}

// faults returns what must not be.
func (p proof) faults() error {
	var faults []error
	for _, f := range []struct {
		n    int
		what string
	}{
		{p.missing, "acknowledged writes are not in the journal"},
		{p.backwards, "writes of an old term follow one of a newer term"},
		{p.foreign, "writes are of a process that did not lead"},
		{p.strange, "writes are of a term that their process never led under"},
		{p.stale, "keys do not have their last value"},
	} {
		if f.n > 0 {
			faults = append(faults, fmt.Errorf("the proof fails: %d %s", f.n, f.what))
		}
	}
	if p.terms < 2 {
		faults = append(faults, fmt.Errorf("the proof fails: %d terms show nothing", p.terms))
	}
	return errors.Join(faults...)
}

// prove says what the proof says.
func (f *fleet) prove(ctx context.Context, acks []ack) error {
	p, err := prove(ctx, f.db.DB, acks, f.led)
	if err != nil {
		return err
	}
	fmt.Printf("\n%d writes were acknowledged; the journal has %d, of %d terms\n\n%s;\n\n%s;\n", len(acks), p.rows, p.terms, backwards, foreign)
	if err := p.faults(); err != nil {
		return err
	}
	fmt.Printf("\nproved: all %d acknowledged writes are there, none of an old term follows one of a newer term,\n"+
		"and none is of a process that did not lead\n", len(acks))
	return nil
}
