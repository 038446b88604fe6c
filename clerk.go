// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	// clerkTimeout bounds what is done for terms in one go.
	clerkTimeout = 10 * time.Second
	// mostWaiting is how many takeovers wait in the database's queues at once, each on a connection of its own.
	mostWaiting = 4
	// lookGap is how often it is looked what they wait for.
	lookGap = 500 * time.Millisecond
	// stuckGap is the least time between two tries to begin a term where there is no queue, as they may fail at once.
	stuckGap = 50 * time.Millisecond
	// markGap is the time between two tries to mark the end of a term whose row is locked.
	markGap = 10 * time.Millisecond
)

var errRowLocked = errors.New("others have locked its row in leader_terms with a transaction")

// clerk is what is to be done, and is being done, at the table of terms, apart from the session: a row that is locked, or a commit
// that waits for a standby, must not hold up a proof. One goroutine at a time does what needs no waiting, a few others wait.
// It is guarded by Leader.mu; its goroutines end with the store's answers, and the loop waits for them.
type clerk struct {
	begins []*takeover
	// notBefore is when begins are tried again that were stuck.
	notBefore time.Time

	stuck  []*takeover // for a place to wait
	ends   []termEnd
	locked []termEnd // tried in vain
	markAt time.Time // locked is tried again
	reads  []*grant  // terms to compare

	busy    bool // its goroutine is at work
	began   time.Time
	cancel  context.CancelFunc
	open    bool // the store may have something to close
	usedAt  time.Time
	waiting map[*takeover]struct{}
	lookAt  time.Time
	failing clerkWork // of which trouble has been told
}

// clerkWork is what there may be trouble with.
type clerkWork uint8

const (
	markWork clerkWork = 1 << iota
	beginWork
	checkWork
)

// restsLocked tells that nothing is to be done and no goroutine is left.
func (c *clerk) restsLocked() bool {
	return !c.busy && !c.open && len(c.waiting) == 0 && len(c.ends)+len(c.locked) == 0
}

// clerkLocked starts what is due at the table of terms.
func (l *Leader) clerkLocked(now time.Time, due func(time.Time)) {
	if l.store == nil {
		return
	}
	c := &l.clerk
	l.delayedLocked(now, due)
	l.marksLocked(now, due)
	for t := range c.waiting {
		if t.void() {
			t.cancel()
		}
	}
	for len(c.stuck) > 0 && len(c.waiting) < mostWaiting {
		t := c.stuck[0]
		c.stuck = c.stuck[1:]
		if !t.void() {
			l.waitLocked(t)
		}
	}
	if len(c.locked) > 0 && !now.Before(c.markAt) {
		c.ends = append(c.ends, c.locked...)
		c.locked = nil
	}
	switch end := c.usedAt.Add(linger); {
	case c.busy && l.resigned && len(l.slots) == 0: // nobody waits for what it does
		if late := c.began.Add(hopeless); now.Before(late) {
			due(late)
		} else {
			c.cancel()
		}
	case c.busy:
	case len(c.ends)+len(c.reads) > 0, len(c.begins) > 0 && !now.Before(c.notBefore):
		l.workLocked()
	case len(c.locked) > 0:
		due(c.markAt)
	case len(c.begins) > 0:
		due(c.notBefore)
	case len(c.waiting) > 0:
		if !now.Before(c.lookAt) {
			l.lookLocked()
		}
		due(c.lookAt)
	case c.open && now.Before(end) && !l.resigned:
		due(end)
	case c.open:
		c.open = false
		l.clerkDoLocked(func(context.Context) func() {
			l.store.close()
			return func() {}
		})
	}
}

// clerkDoLocked has the goroutine of the clerk do work, and the loop what that returns.
func (l *Leader) clerkDoLocked(work func(context.Context) func()) {
	ctx, cancel := context.WithTimeout(context.Background(), clerkTimeout)
	l.clerk.busy, l.clerk.began, l.clerk.cancel = true, time.Now(), cancel
	go func() { // ends when the store answers, at the latest when ctx does
		defer cancel()
		done := work(ctx)
		l.post(func() {
			l.clerk.busy = false
			l.clerk.usedAt = time.Now()
			done()
		})
	}()
}

// workLocked marks ends and begins terms, all that there is in one go.
func (l *Leader) workLocked() {
	c, site := &l.clerk, l.site
	ends, reads := c.ends, c.reads
	var begins []*takeover
	var wants []termWant
	for _, t := range c.begins {
		if !t.void() {
			t.want.floor = l.floor
			begins, wants = append(begins, t), append(wants, t.want)
		}
	}
	c.begins, c.ends, c.reads, c.open = nil, nil, nil, true
	l.clerkDoLocked(func(ctx context.Context) func() {
		if len(ends) > 0 {
			locked, err := l.store.end(ctx, site, ends)
			l.post(func() { l.markedAllLocked(ends, locked, err) })
		}
		if len(reads) > 0 {
			l.readTerms(ctx, site, reads)
		}
		if len(wants) == 0 {
			return func() {}
		}
		begun, stuck, err := l.store.begin(ctx, site, wants)
		return func() { l.begunLocked(begins, begun, stuck, err) }
	})
}

func (l *Leader) readTerms(ctx context.Context, site termSite, leading []*grant) {
	rows, err := l.store.read(ctx, site, keysOf(leading))
	l.post(func() { l.verifiedLocked(leading, rows, err) })
}

// clerkFailsLocked tells of trouble with work at the table, the first time since that went well.
func (l *Leader) clerkFailsLocked(work clerkWork, e Event) {
	if l.clerk.failing&work == 0 {
		l.clerk.failing |= work
		l.emitLocked(e)
	}
}

// markedAllLocked goes on with the releases whose terms are marked, or will not be. A row may be locked by a transaction that its
// task has just given up, and that the server does not know of yet.
func (l *Leader) markedAllLocked(ends, locked []termEnd, err error) {
	now := time.Now()
	late := slices.DeleteFunc(slices.Clone(locked), func(e termEnd) bool { return now.Before(e.by) })
	switch {
	case err != nil:
		l.clerkFailsLocked(markWork, Event{Kind: Unmarked, Err: err, more: &more{names: namesOf(ends)}})
	case len(late) > 0:
		l.clerkFailsLocked(markWork, Event{Kind: Unmarked, Err: errRowLocked, more: &more{names: namesOf(late)}})
	case len(locked) == 0:
		l.clerk.failing &^= markWork
	}
	for _, e := range ends {
		if slices.Contains(locked, e) && now.Before(e.by) {
			l.clerk.locked, l.clerk.markAt = append(l.clerk.locked, e), now.Add(markGap)
		} else if s := l.keys[e.key]; s != nil && s.freeing && s.first().grant.term == e.term {
			l.markedLocked(s)
		}
	}
}

// waitLocked has t wait in the database's queue for its row.
func (l *Leader) waitLocked(t *takeover) {
	c, site, want := &l.clerk, l.site, t.want
	want.floor = l.floor
	ctx, cancel := context.WithTimeout(context.Background(), clerkTimeout)
	t.cancel = cancel
	if c.waiting == nil {
		c.waiting = make(map[*takeover]struct{})
	}
	if len(c.waiting) == 0 {
		c.lookAt = time.Now().Add(lookGap / 5)
	}
	c.waiting[t] = struct{}{}
	go func() { // ends when the store answers, at the latest when ctx does
		defer cancel()
		begun, err := l.store.wait(ctx, site, want, func(pid uint32) {
			l.post(func() { t.pid = pid })
		})
		l.post(func() {
			delete(l.clerk.waiting, t)
			t.pid = 0
			answer := make(map[int64]termBegun)
			if begun != nil {
				answer[want.key] = *begun
			}
			l.begunLocked([]*takeover{t}, answer, nil, err)
		})
	}()
}

// lookLocked asks what takeovers wait for.
func (l *Leader) lookLocked() {
	c, site := &l.clerk, l.site
	c.lookAt = time.Now().Add(lookGap)
	var waiting []*takeover
	var pids []uint32
	for t := range c.waiting {
		if t.pid != 0 {
			waiting, pids = append(waiting, t), append(pids, t.pid)
		}
	}
	if len(pids) == 0 {
		return
	}
	c.open = true
	l.clerkDoLocked(func(ctx context.Context) func() {
		blockers, err := l.store.blockers(ctx, site, pids)
		return func() {
			for i, t := range waiting {
				if b, ok := blockers[pids[i]]; ok && err == nil {
					l.blockedLocked(t, b, nil)
				}
			}
		}
	})
}
