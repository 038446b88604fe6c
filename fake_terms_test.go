// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"maps"
	"time"
)

var errFakeBusy = errors.New("fake: the database is locked")

// fakeTerms keeps the terms of a fakeStore. A row that is locked can be waited for, unless the store is durable, as on
// SQLite: then everything waits for it.
type fakeTerms struct {
	store   *fakeStore
	durable bool
}

func (b *fakeBackend) terms(Options, *clock) termStore { return fakeTerms{b.store, b.durable} }

func (f fakeTerms) queues() bool { return !f.durable }
func (f fakeTerms) close()       {}

// rowsLocked returns rows, all with nil.
func (st *fakeStore) rowsLocked(keys []int64) map[int64]termRow {
	if keys == nil {
		return maps.Clone(st.terms)
	}
	rows := make(map[int64]termRow, len(keys))
	for _, key := range keys {
		if row, ok := st.terms[key]; ok {
			rows[key] = row
		}
	}
	return rows
}

// statement takes its time, and then serves.
func (f fakeTerms) statement(ctx context.Context, serve func()) error {
	f.store.mu.Lock()
	pause, err := f.store.termTime, f.store.termErr
	f.store.begins++
	f.store.mu.Unlock()
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	serve()
	return nil
}

func (f fakeTerms) begin(ctx context.Context, site termSite, wants []termWant) (map[int64]termBegun, error, error) {
	got := make(map[int64]termBegun)
	var stuck error
	err := f.statement(ctx, func() {
		for _, w := range wants {
			if f.durable && len(f.store.rowLocks) > 0 {
				stuck = errFakeBusy
			} else if !f.store.rowLocks[w.key] {
				got[w.key] = f.beginLocked(site, w)
			}
		}
	})
	if stuck != nil {
		time.Sleep(queueTimeout)
	}
	return got, stuck, err
}

func (f fakeTerms) beginLocked(site termSite, w termWant) termBegun {
	row := f.store.terms[w.key]
	if w.last == unread {
		w.last = row.term
	}
	if row.term != w.last {
		return termBegun{}
	}
	b := termBegun{last: w.last, clean: row.term == 0 || !row.released.IsZero(), term: max(row.term+1, Term(time.Now().UnixMilli()), w.floor)}
	ended := row.ended
	if !b.clean {
		ended = EndDied
	}
	f.store.terms[w.key] = termRow{name: w.name, term: b.term, node: site.node, addr: site.addr, pid: site.pid, taken: time.Now(), ended: ended}
	return b
}

func (f fakeTerms) wait(ctx context.Context, site termSite, want termWant, waiting func(uint32)) (*termBegun, error) {
	waiting(1000)
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	for {
		var b *termBegun
		err := f.statement(ctx, func() {
			if !f.store.rowLocks[want.key] {
				begun := f.beginLocked(site, want)
				b = &begun
			}
		})
		if b != nil || err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			return b, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, nil
		}
	}
}

func (f fakeTerms) end(ctx context.Context, _ termSite, ends []termEnd) (locked []termEnd, err error) {
	err = f.statement(ctx, func() {
		for _, e := range ends {
			row := f.store.terms[e.key]
			switch {
			case row.term != e.term:
			case f.store.rowLocks[e.key]:
				locked = append(locked, e)
			default:
				row.released, row.ended = time.Now(), e.reason
				f.store.terms[e.key] = row
			}
		}
	})
	return locked, err
}

func (f fakeTerms) read(ctx context.Context, _ termSite, keys []int64) (rows map[int64]termRow, err error) {
	err = f.statement(ctx, func() { rows = f.store.rowsLocked(keys) })
	return rows, err
}

func (f fakeTerms) blockers(ctx context.Context, _ termSite, pids []uint32) (map[uint32]Blocker, error) {
	blockers := make(map[uint32]Blocker)
	err := f.statement(ctx, func() {
		for _, pid := range pids {
			blockers[pid] = Blocker{PID: 7, Application: "fake", Age: time.Minute}
		}
	})
	return blockers, err
}
