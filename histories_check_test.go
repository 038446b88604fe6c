// SPDX-License-Identifier: MIT

package leader_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// histEvent is a row that a transaction of a history wrote and committed, as the server's log of changes has it: a row
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
type histEvent struct {
	Wrote     uint64 // where the row is
	Committed uint64 // where the commit of its transaction is
	Name      string
	Term      int64
	Node      string // who wrote it, or whose term it is
	Begun     bool   // of leader_terms: a term begins, or the mark of one that has ended
	Shared    bool   // fenced with FenceShared: rows of one term may overlap
}

func (e histEvent) String() string {
	what := "row"
	if e.Begun {
		what = "term"
	}
	return fmt.Sprintf("%s of %s %s/%d [%X, %X]", what, e.Node, e.Name, e.Term, e.Wrote, e.Committed)
}

// The rules that a history may break.
const (
	histTable   = "the term in the table fell, or became another node's"
	histUnbegun = "a row of a term that had not begun"
	histOther   = "a row of a term of another node"
	histStale   = "a row committed after a later term had begun"
	histOrder   = "a row committed after a row of a later term"
	histOverlap = "the transactions of two rows overlap"
)

type histViolation struct {
	Rule string
	A, B histEvent // in the order of their commits
}

func (v histViolation) String() string { return fmt.Sprintf("%s: %v; %v", v.Rule, v.A, v.B) }

// histCheck returns what is wrong with a history. It knows nothing of the library but what Fence promises.
func histCheck(events []histEvent) (found []histViolation) {
	events = slices.SortedFunc(slices.Values(events), func(a, b histEvent) int { return cmp.Compare(a.Committed, b.Committed) })
	names := make(map[string]*histName)
	for _, e := range events {
		n := names[e.Name]
		if n == nil {
			n = &histName{terms: make(map[int64]histEvent)}
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

// histName is what the checker knows of one name up to some commit.
type histName struct {
	terms   map[int64]histEvent // as they began
	current histEvent           // the last of them
	rows    []histEvent         // in the order of their commits
	newest  histEvent           // of the rows, the first one of the highest term
	found   []histViolation
}

func (n *histName) report(rule string, a, b histEvent) {
	n.found = append(n.found, histViolation{rule, a, b})
}

func (n *histName) begin(e histEvent) {
	switch {
	case e.Term > n.current.Term:
		n.current, n.terms[e.Term] = e, e
	case e.Term < n.current.Term || e.Node != n.current.Node:
		n.report(histTable, n.current, e)
	}
}

func (n *histName) row(e histEvent) {
	switch term, ok := n.terms[e.Term]; {
	case !ok || term.Committed > e.Wrote: // read before it was committed
		n.report(histUnbegun, term, e)
	case term.Node != e.Node:
		n.report(histOther, term, e)
	}
	if e.Term < n.current.Term {
		n.report(histStale, n.current, e)
	}
	if e.Term < n.newest.Term {
		n.report(histOrder, n.newest, e)
	}
	if e.Term > n.newest.Term {
		n.newest = e
	}
	for _, last := range slices.Backward(n.rows) {
		if last.Committed < e.Wrote {
			break
		}
		if last.Term != e.Term || !last.Shared && !e.Shared {
			n.report(histOverlap, last, e)
		}
	}
	n.rows = append(n.rows, e)
}

// TestHistoriesChecker: the checker accepts what may happen and finds each kind of what may not, or its silence means
// nothing.
func TestHistoriesChecker(t *testing.T) {
	begun := func(at uint64, node string, term int64) histEvent {
		return histEvent{Wrote: at, Committed: at + 1, Name: "a", Term: term, Node: node, Begun: true}
	}
	row := func(wrote, committed uint64, node string, term int64) histEvent {
		return histEvent{Wrote: wrote, Committed: committed, Name: "a", Term: term, Node: node}
	}
	shared := func(wrote, committed uint64, node string, term int64) histEvent {
		e := row(wrote, committed, node, term)
		e.Shared = true
		return e
	}
	named := func(name string, e histEvent) histEvent {
		e.Name = name
		return e
	}
	first, second := begun(1, "x", 7), begun(50, "y", 9)
	for _, c := range []struct {
		what   string
		events []histEvent
		want   []string
	}{
		{"nothing", nil, nil},
		{"one term", []histEvent{first, row(3, 4, "x", 7), row(5, 9, "x", 7)}, nil},
		{"a takeover", []histEvent{first, row(3, 4, "x", 7), second, row(52, 53, "y", 9), row(54, 55, "y", 9)}, nil},
		{"a mark between rows", []histEvent{first, row(3, 4, "x", 7), begun(5, "x", 7), row(8, 9, "x", 7)}, nil},
		{"a mark in a row", []histEvent{first, row(3, 9, "x", 7), begun(5, "x", 7)}, nil},
		{"a node leads again", []histEvent{first, row(3, 4, "x", 7), second, begun(60, "x", 10), row(62, 63, "x", 10)}, nil},
		{"a term without a row", []histEvent{first, second, row(52, 53, "y", 9)}, nil},
		{"shared rows of one term overlap", []histEvent{first, shared(3, 9, "x", 7), shared(4, 8, "x", 7), second}, nil},
		{"a shared row overlaps one that is not", []histEvent{first, shared(3, 9, "x", 7), row(4, 8, "x", 7), second}, nil},
		{"the order of the input means nothing", []histEvent{row(52, 53, "y", 9), second, row(3, 4, "x", 7), first}, nil},
		{
			"names are apart",
			[]histEvent{
				first, row(3, 4, "x", 7), named("b", begun(2, "y", 5)), named("b", row(3, 9, "y", 5)),
				second, named("b", row(60, 61, "y", 5)),
			},
			nil,
		},

		{"the table goes back", []histEvent{second, begun(60, "x", 7)}, []string{histTable}},
		{"two nodes begin one term", []histEvent{first, begun(9, "y", 7)}, []string{histTable}},
		{"no term", []histEvent{row(3, 4, "x", 7)}, []string{histUnbegun}},
		{"a term that came later", []histEvent{first, row(45, 46, "y", 9), second}, []string{histUnbegun}},
		{"a term that was not committed", []histEvent{first, row(50, 60, "y", 9), second}, []string{histUnbegun}},
		{"two nodes write in one term", []histEvent{first, row(3, 4, "x", 7), row(5, 6, "y", 7)}, []string{histOther}},
		{"an old row after the takeover", []histEvent{first, second, row(60, 61, "x", 7)}, []string{histStale}},
		{"an old row that was written before it", []histEvent{first, row(40, 61, "x", 7), second}, []string{histStale}},
		{
			"an old row after a new one",
			[]histEvent{first, second, row(52, 53, "y", 9), row(60, 61, "x", 7)},
			[]string{histStale, histOrder},
		},
		{
			"an old row and a new one overlap",
			[]histEvent{first, second, row(52, 70, "y", 9), row(40, 61, "x", 7)},
			[]string{histStale, histOverlap},
		},
		{
			"so do shared ones of two terms",
			[]histEvent{first, second, shared(52, 55, "y", 9), shared(40, 61, "x", 7)},
			[]string{histStale, histOrder, histOverlap},
		},
		{"rows of one term overlap", []histEvent{first, row(3, 9, "x", 7), row(4, 8, "x", 7)}, []string{histOverlap}},
		{
			"a long one overlaps two",
			[]histEvent{first, row(4, 5, "x", 7), row(6, 7, "x", 7), row(3, 9, "x", 7)},
			[]string{histOverlap, histOverlap},
		},
	} {
		var got []string
		for _, v := range histCheck(c.events) {
			got = append(got, v.Rule)
		}
		assert.Equal(t, c.want, got, c.what)
	}
}
