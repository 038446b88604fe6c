// SPDX-License-Identifier: MIT

package ledger_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/oxygenhub/leader/internal/ledger"
)

// TestCheck: the checker accepts what may happen and finds each kind of what may not, or its silence means
// nothing.
func TestCheck(t *testing.T) {
	begun := func(at uint64, node string, term int64) ledger.Event {
		return ledger.Event{Wrote: at, Committed: at + 1, Name: "a", Term: term, Node: node, Begun: true}
	}
	row := func(wrote, committed uint64, node string, term int64) ledger.Event {
		return ledger.Event{Wrote: wrote, Committed: committed, Name: "a", Term: term, Node: node}
	}
	shared := func(wrote, committed uint64, node string, term int64) ledger.Event {
		e := row(wrote, committed, node, term)
		e.Shared = true
		return e
	}
	named := func(name string, e ledger.Event) ledger.Event {
		e.Name = name
		return e
	}
	first, second := begun(1, "x", 7), begun(50, "y", 9)
	for _, c := range []struct {
		what   string
		events []ledger.Event
		want   []string
	}{
		{"nothing", nil, nil},
		{"one term", []ledger.Event{first, row(3, 4, "x", 7), row(5, 9, "x", 7)}, nil},
		{"a takeover", []ledger.Event{first, row(3, 4, "x", 7), second, row(52, 53, "y", 9), row(54, 55, "y", 9)}, nil},
		{"a mark between rows", []ledger.Event{first, row(3, 4, "x", 7), begun(5, "x", 7), row(8, 9, "x", 7)}, nil},
		{"a mark in a row", []ledger.Event{first, row(3, 9, "x", 7), begun(5, "x", 7)}, nil},
		{"a node leads again", []ledger.Event{first, row(3, 4, "x", 7), second, begun(60, "x", 10), row(62, 63, "x", 10)}, nil},
		{"a term without a row", []ledger.Event{first, second, row(52, 53, "y", 9)}, nil},
		{"shared rows of one term overlap", []ledger.Event{first, shared(3, 9, "x", 7), shared(4, 8, "x", 7), second}, nil},
		{"a shared row overlaps one that is not", []ledger.Event{first, shared(3, 9, "x", 7), row(4, 8, "x", 7), second}, nil},
		{"the order of the input means nothing", []ledger.Event{row(52, 53, "y", 9), second, row(3, 4, "x", 7), first}, nil},
		{
			"names are apart",
			[]ledger.Event{
				first, row(3, 4, "x", 7), named("b", begun(2, "y", 5)), named("b", row(3, 9, "y", 5)),
				second, named("b", row(60, 61, "y", 5)),
			},
			nil,
		},

		{"the table goes back", []ledger.Event{second, begun(60, "x", 7)}, []string{ledger.Table}},
		{"two nodes begin one term", []ledger.Event{first, begun(9, "y", 7)}, []string{ledger.Table}},
		{"no term", []ledger.Event{row(3, 4, "x", 7)}, []string{ledger.Unbegun}},
		{"a term that came later", []ledger.Event{first, row(45, 46, "y", 9), second}, []string{ledger.Unbegun}},
		{"a term that was not committed", []ledger.Event{first, row(50, 60, "y", 9), second}, []string{ledger.Unbegun}},
		{"two nodes write in one term", []ledger.Event{first, row(3, 4, "x", 7), row(5, 6, "y", 7)}, []string{ledger.Other}},
		{"an old row after the takeover", []ledger.Event{first, second, row(60, 61, "x", 7)}, []string{ledger.Stale}},
		{"an old row that was written before it", []ledger.Event{first, row(40, 61, "x", 7), second}, []string{ledger.Stale}},
		{
			"an old row after a new one",
			[]ledger.Event{first, second, row(52, 53, "y", 9), row(60, 61, "x", 7)},
			[]string{ledger.Stale, ledger.Order},
		},
		{
			"an old row and a new one overlap",
			[]ledger.Event{first, second, row(52, 70, "y", 9), row(40, 61, "x", 7)},
			[]string{ledger.Stale, ledger.Overlap},
		},
		{
			"so do shared ones of two terms",
			[]ledger.Event{first, second, shared(52, 55, "y", 9), shared(40, 61, "x", 7)},
			[]string{ledger.Stale, ledger.Order, ledger.Overlap},
		},
		{"rows of one term overlap", []ledger.Event{first, row(3, 9, "x", 7), row(4, 8, "x", 7)}, []string{ledger.Overlap}},
		{
			"a long one overlaps two",
			[]ledger.Event{first, row(4, 5, "x", 7), row(6, 7, "x", 7), row(3, 9, "x", 7)},
			[]string{ledger.Overlap, ledger.Overlap},
		},
	} {
		var got []string
		for _, v := range ledger.Check(c.events) {
			got = append(got, v.Rule)
		}
		assert.Equal(t, c.want, got, c.what)
	}
}
