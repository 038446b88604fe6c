// SPDX-License-Identifier: MIT

package leader

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	errFakeKilled   = errors.New("fake: the connection was killed by its owner")
	errFakeEnded    = errors.New("fake: terminated by the server")
	errFakeReadOnly = errors.New("fake: the server is read-only")
	errFakeFull     = errors.New("fake: out of shared memory")
	errFakeDial     = errors.New("fake: connection refused")
	errFakeSoft     = errors.New("fake: statement failed")
)

// The kinds of statements, for controls and counters.
const (
	kindTry     = "try"
	kindUnlock  = "unlock"
	kindTell    = "tell"
	kindProve   = "prove"
	kindHolders = "holders"
	kindTerms   = "terms"
)

// fakeStore is a place of locks in memory: the server's side of the fake sessions of several Leaders. It is made inside
// a synctest bubble, holds mu for moments only, and otherwise waits on channels and timers of the bubble.
type fakeStore struct {
	mu       sync.Mutex
	locks    map[int64]*fakeSession // who holds what
	sessions []*fakeSession         // all that were ever opened
	capacity int                    // of the lock table; 0: without bound
	readOnly bool
	tries    []time.Time // when each was sent
	proofs   []time.Time
	breaches []string // of the contract of sessions, by the loop
	terms    map[int64]termRow
	rowLocks map[int64]bool // rows that somebody has locked
	termErr  error          // of every statement for terms but those of sessions
	termTime time.Duration  // that those take
	begins   int            // statements for terms that were sent
}

func newFakeStore() *fakeStore {
	return &fakeStore{locks: make(map[int64]*fakeSession), terms: make(map[int64]termRow), rowLocks: make(map[int64]bool)}
}

// leader returns a Leader that contends in st. It resigns at the end of the test, by which time nothing may be left.
func (st *fakeStore) leader(t *testing.T, opts Options) (*Leader, *fakeBackend) {
	t.Helper()
	b := &fakeBackend{store: st, faults: make(map[string][]fakeFault), counts: make(map[string]int)}
	if opts.Namespace == "" {
		opts.Namespace = "test"
	}
	l, err := New(b, opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, l.Resign(ctx))
		st.mu.Lock()
		defer st.mu.Unlock()
		assert.Empty(t, st.breaches)
		for _, s := range b.sessions {
			assert.True(t, s.closed, "a session was never closed")
		}
	})
	return l, b
}

// holder returns the session that holds name.
func (st *fakeStore) holder(name string) *fakeSession {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.locks[Key("test", name)]
}

func (st *fakeStore) held() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return len(st.locks)
}

// set changes the store, or one of its sessions or backends, and wakes all that wait for a change.
func (st *fakeStore) set(change func()) {
	st.mu.Lock()
	defer st.mu.Unlock()
	change()
	for _, s := range st.sessions {
		s.changeLocked()
	}
}

// fakeFault is what happens to one statement.
type fakeFault struct {
	delay time.Duration // of the answer
	err   error         // soft, or a *sessionError
	first int           // with err, how many keys of a try are served before
	hang  bool          // served, but the answer never comes: the link is mute from here on
}

// fakeBackend opens sessions for one Leader. Its controls are guarded by store.mu.
type fakeBackend struct {
	store    *fakeStore
	durable  bool          // locks do not expire, as on SQLite
	failures int           // of the next dials
	dialErr  error         // of those; errFakeDial if nil
	dialHang bool          // dials wait for their context
	dialDeaf chan struct{} // if set, dials wait for it, whatever becomes of their context
	dialTime time.Duration
	patience time.Duration // with a dial, if not 5 s; set before the first one
	setUp    time.Duration // what the answer to the last statement of opening a session takes
	lag      time.Duration // of the answers to all statements of new sessions
	dark     bool          // new sessions have no link
	warning  error         // of new sessions
	faults   map[string][]fakeFault

	dials    int
	counts   map[string]int // statements that were sent, by kind
	sessions []*fakeSession
}

func (b *fakeBackend) check(Options) error        { return nil }
func (b *fakeBackend) expires() bool              { return !b.durable }
func (b *fakeBackend) sqlite() bool               { return b.durable }
func (b *fakeBackend) retry() time.Duration       { return time.Second }
func (b *fakeBackend) dialTimeout() time.Duration { return cmp.Or(b.patience, 5*time.Second) }

// fault has the next statement of kind meet f.
func (b *fakeBackend) fault(kind string, f ...fakeFault) {
	b.store.set(func() { b.faults[kind] = append(b.faults[kind], f...) })
}

// count returns how many statements of kind were sent.
func (b *fakeBackend) count(kind string) int {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	return b.counts[kind]
}

// dialed returns how many dials were begun.
func (b *fakeBackend) dialed() int {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	return b.dials
}

// session returns the one that was opened last.
func (b *fakeBackend) session() *fakeSession {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if len(b.sessions) == 0 {
		return nil
	}
	return b.sessions[len(b.sessions)-1]
}

// opened returns how many sessions were opened, and how many of them are not closed.
func (b *fakeBackend) opened() (all, now int) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	for _, s := range b.sessions {
		if !s.closed {
			now++
		}
	}
	return len(b.sessions), now
}

func (b *fakeBackend) open(ctx context.Context, opts Options, clock *clock) (session, error) {
	st := b.store
	st.mu.Lock()
	b.dials++
	hang, deaf, pause, setUp := b.dialHang, b.dialDeaf, b.dialTime, b.setUp
	st.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if deaf != nil {
		<-deaf
	}
	var proved reading
	var provedAt time.Time
	for _, pause := range []time.Duration{pause, setUp} {
		proved, provedAt = clock.read(), time.Now()
		if pause == 0 {
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if b.failures > 0 {
		b.failures--
		if b.dialErr != nil {
			return nil, b.dialErr
		}
		return nil, errFakeDial
	}
	if st.readOnly {
		return nil, errFakeReadOnly
	}
	s := &fakeSession{
		store: st, backend: b, clock: clock, node: opts.Node, began: time.Now(), lag: b.lag, dark: b.dark, mute: b.dark,
		alive: true, believed: make(map[int64]struct{}), killed: make(chan struct{}), changed: make(chan struct{}),
		last: proved, lastAt: provedAt,
	}
	if !b.durable {
		s.silence = opts.SessionTimeout
		s.expiry = time.AfterFunc(s.silence-setUp, func() { st.set(func() { s.endLocked("expired") }) })
	}
	st.sessions = append(st.sessions, s)
	s.pid = uint32(len(st.sessions))
	b.sessions = append(b.sessions, s)
	return s, nil
}
