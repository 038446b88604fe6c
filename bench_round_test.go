// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkRound is one round of the loop for all names, with the fake session's part in it: "retry" asks for locks that another
// process holds, "check" proves those that this one leads by, and compares their terms.
func BenchmarkRound(b *testing.B) {
	for _, names := range []int{1, 100, 1000} {
		r := newBenchRound(b, Options{}, names)
		r.holdElsewhere()
		r.bench(fmt.Sprintf("round=retry/names=%d", names), r.retry)
		r = newBenchRound(b, Options{Terms: true}, names)
		r.lead()
		r.bench(fmt.Sprintf("round=check/names=%d", names), r.check)
	}
}

// benchRound is a Leader whose loop does not run: the benchmark takes its steps, and those of its session, one after the other.
type benchRound struct {
	b     *testing.B
	st    *fakeStore
	l     *Leader
	w     *worker
	names int
}

func newBenchRound(b *testing.B, opts Options, names int) *benchRound {
	b.Helper()
	backend := &fakeBackend{store: newFakeStore(), faults: make(map[string][]fakeFault), counts: make(map[string]int)}
	opts.Namespace = "test"
	l, err := New(backend, opts)
	require.NoError(b, err)
	r := &benchRound{b: b, st: backend.store, l: l, names: names}
	s, err := backend.open(b.Context(), l.opts, l.clock)
	require.NoError(b, err)
	b.Cleanup(s.kill)
	r.w = &worker{session: s, info: s.about(), lease: &lease{clock: l.clock, length: time.Hour}}
	r.w.lease.renew(r.w.info.proved)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current, l.running = r.w, make(chan struct{})
	l.nameLocked(r.w.info)
	for i := range names {
		_, err := l.enterLocked(fmt.Sprintf("name%d", i), false, nil)
		require.NoError(b, err)
	}
	return r
}

// holdElsewhere has another process hold all locks.
func (r *benchRound) holdElsewhere() {
	other := &fakeSession{}
	r.st.mu.Lock()
	defer r.st.mu.Unlock()
	for key := range r.l.keys {
		r.st.locks[key] = other
	}
}

// lead has all names led, under terms that the table has.
func (r *benchRound) lead() {
	r.b.Helper()
	store := r.l.store
	r.l.store = nil // the terms begin here and not at a table
	r.retry()
	r.l.store = store
	for key, s := range r.l.keys {
		s.first().grant.term = 1
		r.st.terms[key] = termRow{name: s.name, term: 1}
		_, led, err := r.l.start(context.Background(), func(error) {}, s.first())
		require.NoError(r.b, err)
		require.True(r.b, led)
	}
	require.Len(r.b, r.l.termsLocked(), r.names)
}

// order runs a command that start, under mu, gives to the session.
func (r *benchRound) order(start func()) {
	r.l.mu.Lock()
	start()
	r.l.mu.Unlock()
	command, _ := r.w.next()
	if command == nil {
		r.b.Fatal("nothing was due")
	}
	answer := command(r.w.session)
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	answer()
}

func (r *benchRound) retry() {
	r.order(func() {
		r.l.tryAt = time.Time{}
		r.l.triesLocked(time.Now(), func(time.Time) {})
	})
}

func (r *benchRound) check() {
	r.order(r.l.proveLocked)
	r.order(r.l.verifyLocked)
}

func (r *benchRound) bench(name string, round func()) {
	round() // what happens once has happened
	r.b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			round()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(r.names), "ns/name")
		require.Zero(b, r.l.losses)
		require.Len(b, r.l.contenders, r.names-len(r.l.termsLocked()))
	})
}
