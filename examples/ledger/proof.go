// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/oxygenhub/leader"
)

// append writes one row under term, and tells whether it was held up. This is all that a service has to do.
func (t *table) append(ctx context.Context, worker string, term leader.Term, unfenced bool) (held bool, err error) {
	t.gate.passed = false
	defer func() { held = t.gate.passed }()
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // nothing after Commit
	if !t.postgres {
		t.gate.hold()
	}
	if !unfenced {
		if err := leader.FenceSQL(ctx, tx); err != nil {
			return false, err
		}
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO "+t.rows+" (term, worker) VALUES ($1, $2)", int64(term), worker); err != nil {
		return false, err
	}
	return false, tx.Commit()
}

// steps reads the rows in their order: by how many does a newer term precede?
const steps = `SELECT count(*), count(DISTINCT term), count(*) FILTER (WHERE term < before)
  FROM (SELECT term, max(term) OVER (ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
          FROM %s) AS entries`

// pairs trusts no order: was the row of an older term not yet committed when one of a newer term was written?
const pairs = `SELECT count(*) FROM %[1]s AS old JOIN %[1]s AS new ON old.term < new.term
 WHERE NOT pg_visible_in_snapshot(old.xid, new.seen)`

// prove reads from the table alone that no row of an old term follows one of a newer term.
func (t *table) prove(ctx context.Context) error {
	var rows, terms, late, pending int
	sql := fmt.Sprintf(steps, t.rows)
	fmt.Printf("\nthe rows in the order of their commits: how many, of how many terms, and how many follow a newer term?\n\n%s;\n", sql)
	if err := t.db.QueryRowContext(ctx, sql).Scan(&rows, &terms, &late); err != nil {
		return err
	}
	fmt.Printf("\n  rows: %d, terms: %d, rows after a newer term: %d\n", rows, terms, late)
	if t.postgres {
		sql := fmt.Sprintf(pairs, t.rows)
		fmt.Printf("\nthat order is drawn under Fence; without trusting it: how many pairs of an old row and a new one, of which the\n"+
			"old one was not committed when the new one was written?\n\n%s;\n", sql)
		if err := t.db.QueryRowContext(ctx, sql).Scan(&pending); err != nil {
			return err
		}
		fmt.Printf("\n  pairs: %d\n", pending)
	}
	var faults []string
	if late > 0 {
		faults = append(faults, fmt.Sprintf("%d rows of an old term follow a newer one", late))
	}
	if pending > 0 {
		faults = append(faults, fmt.Sprintf("%d pairs were committed in the wrong order", pending))
	}
	if terms < 2 {
		faults = append(faults, fmt.Sprintf("%d terms show nothing", terms))
	}
	if len(faults) > 0 {
		return fmt.Errorf("the proof fails: %s", strings.Join(faults, ", "))
	}
	fmt.Printf("\nproved: %d rows of %d terms, and no row of an old term follows a newer one\n", rows, terms)
	return nil
}
