// SPDX-License-Identifier: MIT

// Package ledger is what the tests of fencing know of the database: the order in which it has committed the rows that were
// written under a fence and the terms that began, and what that order must be. Nothing that a process says of itself
// takes part, and no clock.
package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Event is a row that a transaction wrote and committed, as the server's log of changes has it: a row
// of the ledger, which tasks append to, or one of leader_terms. Both positions are of the log, so one order holds for
// all of them.
//
// Why that order is sound. A transaction writes its row after it has passed the fence, so Wrote lies behind the fence.
// The server writes the record of a commit to the log before others can see that commit, and before it releases the
// locks of the transaction. So where B had to wait for a lock until A ended, or saw what A had committed, all that B
// wrote after that lies behind Committed of A. The rules below need no more. Each position occurs once: there are no
// ties to decide, as there are with commit timestamps, and no clock takes part. Transactions that take no lock against
// each other may become visible in another order than that of the log. Of rows that are shared in one term the rules
// ask nothing; any others of one name are what is to be found.
type Event struct {
	Wrote     uint64 // where the row is
	Committed uint64 // where the commit of its transaction is
	Name      string
	Term      int64
	Node      string // who wrote it, or whose term it is
	Begun     bool   // of leader_terms: a term begins, or the mark of one that has ended
	Shared    bool   // fenced with FenceShared: rows of one term may overlap
}

func (e Event) String() string {
	what := "row"
	if e.Begun {
		what = "term"
	}
	return fmt.Sprintf("%s of %s %s/%d [%X, %X]", what, e.Node, e.Name, e.Term, e.Wrote, e.Committed)
}

// The rules that a history may break.
const (
	Table   = "the term in the table fell, or became another node's"
	Unbegun = "a row of a term that had not begun"
	Other   = "a row of a term of another node"
	Stale   = "a row committed after a later term had begun"
	Order   = "a row committed after a row of a later term"
	Overlap = "the transactions of two rows overlap"
)

// Violation is a rule that is broken.
type Violation struct {
	Rule string
	A, B Event // in the order of their commits
}

func (v Violation) String() string { return fmt.Sprintf("%s: %v; %v", v.Rule, v.A, v.B) }

// Check returns what is wrong with a history, whose events may come in any order: by name, and then as they were
// committed. It knows nothing of the library but what Fence promises.
func Check(events []Event) (found []Violation) {
	events = slices.SortedFunc(slices.Values(events), func(a, b Event) int { return cmp.Compare(a.Committed, b.Committed) })
	names := make(map[string]*history)
	for _, e := range events {
		n := names[e.Name]
		if n == nil {
			n = &history{terms: make(map[int64]Event)}
			names[e.Name] = n
		}
		if e.Begun {
			n.begin(e)
		} else {
			n.row(e)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		found = append(found, names[name].found...)
	}
	return found
}

// history is what Check knows of one name up to some commit.
type history struct {
	terms   map[int64]Event // as they began
	current Event           // the last of them
	rows    []Event         // in the order of their commits
	newest  Event           // of the rows, the first one of the highest term
	found   []Violation
}

func (n *history) report(rule string, a, b Event) {
	n.found = append(n.found, Violation{rule, a, b})
}

func (n *history) begin(e Event) {
	switch {
	case e.Term > n.current.Term:
		n.current, n.terms[e.Term] = e, e
	case e.Term < n.current.Term || e.Node != n.current.Node:
		n.report(Table, n.current, e)
	}
}

func (n *history) row(e Event) {
	switch term, ok := n.terms[e.Term]; {
	case !ok || term.Committed > e.Wrote: // read before it was committed
		n.report(Unbegun, term, e)
	case term.Node != e.Node:
		n.report(Other, term, e)
	}
	if e.Term < n.current.Term {
		n.report(Stale, n.current, e)
	}
	if e.Term < n.newest.Term {
		n.report(Order, n.newest, e)
	}
	if e.Term > n.newest.Term {
		n.newest = e
	}
	for _, last := range slices.Backward(n.rows) {
		if last.Committed < e.Wrote {
			break
		}
		if last.Term != e.Term || !last.Shared && !e.Shared {
			n.report(Overlap, last, e)
		}
	}
	n.rows = append(n.rows, e)
}
