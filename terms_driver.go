// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/oxygenhub/leader/driver"
)

// driverTerms keeps terms at the place of a driver. Nothing there can be waited for: a record is as it was read, or it is
// another one.
type driverTerms struct{ terms driver.Terms }

func (b *driverBackend) terms(Options, *clock) termStore {
	terms, _ := b.driver.(driver.Terms) // check has seen to it
	return driverTerms{terms}
}

func (t driverTerms) queues() bool { return false }
func (t driverTerms) close()       {}

// begin returns also beside an error what was begun before it.
func (t driverTerms) begin(ctx context.Context, site termSite, wants []termWant) (map[int64]termBegun, error, error) {
	keys := make([]int64, len(wants))
	for i, w := range wants {
		keys[i] = w.key
	}
	records, err := t.terms.ReadTerms(ctx, site.namespace, keys)
	if err != nil {
		return nil, nil, err
	}
	begun := make(map[int64]termBegun, len(wants))
	for _, w := range wants {
		b, err := t.beginOne(ctx, site, w, records[w.key])
		if err != nil {
			return begun, nil, err
		}
		begun[w.key] = b
	}
	return begun, nil, nil
}

func (t driverTerms) beginOne(ctx context.Context, site termSite, w termWant, old driver.Term) (termBegun, error) {
	b := termBegun{last: Term(old.Number), clean: old.Number == 0 || !old.Released.IsZero()}
	switch {
	case w.last != unread && w.last != b.last:
		return termBegun{}, nil
	case b.last == math.MaxInt64:
		return b, errLastTerm
	}
	now := time.Now()
	b.term = max(b.last+1, Term(now.UnixMilli()), w.floor)
	next := driver.Term{
		Namespace: site.namespace, Name: w.name, Number: int64(b.term),
		Node: site.node, Addr: site.addr, PID: site.pid, Taken: now, Ended: old.Ended,
	}
	if !b.clean {
		next.Ended = string(EndDied)
	}
	swapped, err := t.terms.SwapTerm(ctx, w.key, old.Number, next)
	if err != nil || !swapped {
		return termBegun{}, err
	}
	return b, nil
}

func (t driverTerms) wait(context.Context, termSite, termWant, func(uint32)) (*termBegun, error) {
	return nil, errors.ErrUnsupported // there is no queue
}

// end marks what has the terms of ends. A term that begins in between is another number, and stays as it is.
func (t driverTerms) end(ctx context.Context, site termSite, ends []termEnd) ([]termEnd, error) {
	keys := make([]int64, len(ends))
	for i, e := range ends {
		keys[i] = e.key
	}
	records, err := t.terms.ReadTerms(ctx, site.namespace, keys)
	if err != nil {
		return nil, err
	}
	for _, e := range ends {
		record := records[e.key]
		if Term(record.Number) != e.term {
			continue
		}
		record.Released, record.Ended = time.Now(), string(e.reason)
		if _, err := t.terms.SwapTerm(ctx, e.key, record.Number, record); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (t driverTerms) read(ctx context.Context, site termSite, keys []int64) (map[int64]termRow, error) {
	records, err := t.terms.ReadTerms(ctx, site.namespace, keys)
	if err != nil {
		return nil, err
	}
	rows := make(map[int64]termRow, len(records))
	for key, r := range records {
		rows[key] = termRow{
			name: r.Name, term: Term(r.Number), node: r.Node, addr: r.Addr, pid: r.PID,
			taken: r.Taken, released: r.Released, ended: EndReason(r.Ended),
		}
	}
	return rows, nil
}

func (t driverTerms) blockers(context.Context, termSite, []uint32) (map[uint32]Blocker, error) {
	return nil, nil //nolint:nilnil // there are none
}
