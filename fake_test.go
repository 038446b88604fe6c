// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
}

func newFakeStore() *fakeStore { return &fakeStore{locks: make(map[int64]*fakeSession)} }

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
	lag      time.Duration // of the answers to all statements of new sessions
	dark     bool          // new sessions have no link
	faults   map[string][]fakeFault

	dials    int
	counts   map[string]int // statements that were sent, by kind
	sessions []*fakeSession
}

func (b *fakeBackend) check(Options) error        { return nil }
func (b *fakeBackend) expires() bool              { return !b.durable }
func (b *fakeBackend) retry() time.Duration       { return time.Second }
func (b *fakeBackend) dialTimeout() time.Duration { return 5 * time.Second }

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
	hang, deaf, pause := b.dialHang, b.dialDeaf, b.dialTime
	st.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if deaf != nil {
		<-deaf
	}
	if pause > 0 {
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
		last: clock.read(), lastAt: time.Now(),
	}
	if !b.durable {
		s.silence = opts.SessionTimeout
		s.expiry = time.AfterFunc(s.silence, func() { st.set(func() { s.endLocked("expired") }) })
	}
	st.sessions = append(st.sessions, s)
	s.pid = uint32(len(st.sessions))
	b.sessions = append(b.sessions, s)
	return s, nil
}

// fakeSession is one session, both sides of it. All but the constants is guarded by store.mu.
type fakeSession struct {
	store   *fakeStore
	backend *fakeBackend
	clock   *clock
	node    string
	pid     uint32
	began   time.Time
	silence time.Duration

	// The server's side.
	alive  bool
	expiry *time.Timer
	how    string // it ended: by "server", "expired", "closed", "killed"
	when   time.Time

	// The link: dark, no request arrives; mute, no answer does.
	dark, mute bool
	lag        time.Duration

	// The client's side.
	believed   map[int64]struct{}
	news       []int64
	last       reading
	lastAt     time.Time
	statements int
	killed     chan struct{}
	closed     bool
	closedAt   time.Time
	changed    chan struct{} // closed and replaced at each change
}

func (s *fakeSession) changeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// endLocked is the end of the session at the server, which frees its locks.
func (s *fakeSession) endLocked(how string) {
	if !s.alive {
		return
	}
	s.alive, s.how, s.when = false, how, time.Now()
	if s.expiry != nil {
		s.expiry.Stop()
	}
	s.freeLocked()
	s.changeLocked()
}

func (s *fakeSession) freeLocked() {
	for key, holder := range s.store.locks {
		if holder == s {
			delete(s.store.locks, key)
		}
	}
}

// terminate is the server ending the session, as an administrator has it do.
func (s *fakeSession) terminate() { s.store.set(func() { s.endLocked("server") }) }

// cut stops what goes to the server, what comes from it, or both, without a sign.
func (s *fakeSession) cut(requests, answers bool) {
	s.store.set(func() { s.dark, s.mute = requests, answers })
}

// steal takes locks of names away behind the back of the session; without names, all.
func (s *fakeSession) steal(names ...string) {
	s.store.set(func() {
		if len(names) == 0 {
			s.freeLocked()
		}
		for _, name := range names {
			delete(s.store.locks, Key("test", name))
		}
	})
}

// end tells how and when the session ended at the server; how is empty while it lives.
func (s *fakeSession) end() (how string, when time.Time) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.how, s.when
}

// spoke tells how many statements were sent on the session.
func (s *fakeSession) spoke() int {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.statements
}

// await waits until the link lets something through.
func (s *fakeSession) await(open func() bool) error {
	for {
		s.store.mu.Lock()
		ok, changed := open(), s.changed
		s.store.mu.Unlock()
		select {
		case <-s.killed:
			return &sessionError{err: errFakeKilled}
		default:
		}
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-s.killed:
		}
	}
}

// statement sends one to the server, where serve runs with mu held, and waits for the answer.
func (s *fakeSession) statement(kind string, serve func(first int, fail bool) error) error {
	s.sendLocking(kind)
	if err := s.await(func() bool { return !s.dark }); err != nil {
		return err
	}
	pause, err := s.serveLocking(kind, serve)
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-s.killed:
		}
	}
	if gone := s.await(func() bool { return !s.mute }); gone != nil {
		return gone
	}
	return err
}

func (s *fakeSession) sendLocking(kind string) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.backend.counts[kind]++
	s.statements++
	s.last, s.lastAt = s.clock.read(), time.Now()
	if s.closed {
		s.store.breaches = append(s.store.breaches, kind+" after close")
	}
}

func (s *fakeSession) serveLocking(kind string, serve func(first int, fail bool) error) (pause time.Duration, err error) {
	st := s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	if !s.alive {
		return 0, &sessionError{err: errFakeEnded, ended: true}
	}
	if s.expiry != nil {
		s.expiry.Reset(s.silence)
	}
	var f fakeFault
	if faults := s.backend.faults[kind]; len(faults) > 0 {
		f, s.backend.faults[kind] = faults[0], faults[1:]
	}
	if f.err == nil || f.first > 0 {
		err = serve(f.first, f.err != nil)
	}
	if f.err != nil {
		err = f.err
	}
	if f.hang {
		s.mute = true
	}
	return s.lag + f.delay, err
}

func (s *fakeSession) about() sessionInfo {
	return sessionInfo{namespace: "fake", place: "memory", pid: s.pid, proved: s.last}
}

func (s *fakeSession) try(keys []int64) (held []int64, err error) {
	st := s.store
	st.mu.Lock()
	st.tries = append(st.tries, time.Now())
	for i, key := range keys {
		if _, mine := s.believed[key]; mine {
			st.breaches = append(st.breaches, fmt.Sprintf("try of a key that is held: %x", key))
		}
		if i < 100 && slices.Contains(keys[:i], key) {
			st.breaches = append(st.breaches, fmt.Sprintf("try of a key twice: %x", key))
		}
	}
	st.mu.Unlock()
	err = s.statement(kindTry, func(first int, fail bool) error {
		for i, key := range keys {
			switch {
			case fail && i == first:
				return nil
			case st.locks[key] == nil && st.capacity > 0 && len(st.locks) >= st.capacity:
				return errFakeFull
			case st.locks[key] == nil:
				st.locks[key] = s
				s.believed[key] = struct{}{}
				held = append(held, key)
			}
		}
		return nil
	})
	return held, err
}

func (s *fakeSession) unlock(keys []int64) (missing []int64, err error) {
	err = s.statement(kindUnlock, func(int, bool) error {
		for _, key := range keys {
			if s.store.locks[key] == s {
				delete(s.store.locks, key)
			} else {
				missing = append(missing, key)
			}
			delete(s.believed, key)
		}
		return nil
	})
	return missing, err
}

func (s *fakeSession) tell(keys []int64) error {
	return s.statement(kindTell, func(int, bool) error {
		for _, other := range s.store.sessions {
			if other != s && other.alive {
				other.news = append(other.news, keys...)
				other.changeLocked()
			}
		}
		return nil
	})
}

func (s *fakeSession) prove() (lost []int64, err error) {
	s.store.mu.Lock()
	s.store.proofs = append(s.store.proofs, time.Now())
	s.store.mu.Unlock()
	err = s.statement(kindProve, func(int, bool) error {
		if s.store.readOnly {
			return &sessionError{err: errFakeReadOnly}
		}
		for key := range s.believed {
			if s.store.locks[key] != s {
				lost = append(lost, key)
				delete(s.believed, key)
			}
		}
		return nil
	})
	return lost, err
}

func (s *fakeSession) holders(keys []int64) (map[int64]Holder, error) {
	holders := make(map[int64]Holder)
	err := s.statement(kindHolders, func(int, bool) error {
		for _, key := range keys {
			if h := s.store.locks[key]; h != nil {
				holders[key] = Holder{Held: true, Node: h.node, PID: h.pid, Since: h.began}
			}
		}
		return nil
	})
	return holders, err
}

func (s *fakeSession) wait(ctx context.Context) ([]int64, error) {
	for {
		keys, changed, err := s.look()
		if len(keys) > 0 || err != nil {
			return keys, err
		}
		select {
		case <-changed:
		case <-s.killed:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// look takes what has come from the server without having been asked for.
func (s *fakeSession) look() (keys []int64, changed chan struct{}, err error) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	select {
	case <-s.killed:
		return nil, nil, &sessionError{err: errFakeKilled}
	default:
	}
	if s.dark || s.mute {
		return nil, s.changed, nil
	}
	if !s.alive {
		return nil, nil, &sessionError{err: errFakeEnded, ended: true}
	}
	keys, s.news = s.news, nil
	return keys, s.changed, nil
}

func (s *fakeSession) sent() reading {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.last
}

func (s *fakeSession) close() {
	s.store.mu.Lock()
	cut := s.dark || s.mute
	s.store.mu.Unlock()
	if cut {
		time.Sleep(500 * time.Millisecond) // what a polite end in a black hole may take
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.overLocked("closed")
}

func (s *fakeSession) kill() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	select {
	case <-s.killed:
	default:
		close(s.killed)
	}
	s.overLocked("killed")
}

// overLocked is the end of the connection, which the server sees if the link lets it through.
func (s *fakeSession) overLocked(how string) {
	if !s.closed {
		s.closed, s.closedAt = true, time.Now()
	}
	if !s.dark {
		s.endLocked(how)
	}
}

// call is a Run or Try that goes on in a goroutine of its own.
type call struct {
	done chan struct{}
	ran  bool
	err  error
}

func goRun(ctx context.Context, l *Leader, name string, task func(context.Context) error) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = l.Run(ctx, name, task)
	}()
	return c
}

func goTry(ctx context.Context, l *Leader, name string, task func(context.Context) error) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.ran, c.err = l.Try(ctx, name, task)
	}()
	return c
}

func (c *call) returned() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// job is a task that notes each of its runs. Two runs at once are an overlap, unless the job says that it is used to it.
type job struct {
	drain time.Duration // it goes on for, after its context has ended
	hold  chan struct{} // if set, it goes on until this is closed, whatever becomes of its context
	err   error         // it returns

	mu       sync.Mutex
	running  int
	overlaps int
	runs     []*jobRun
}

type jobRun struct {
	ctx           context.Context //nolint:containedctx // of the task, for the test to look at
	began         time.Time
	ended         time.Time
	cancelled     time.Time
	cause         error
	confirmedLate bool // Confirm said yes although the context had ended by a loss
}

func (j *job) task(ctx context.Context) error {
	r := &jobRun{ctx: ctx, began: time.Now()}
	j.mu.Lock()
	j.running++
	if j.running > 1 {
		j.overlaps++
	}
	j.runs = append(j.runs, r)
	j.mu.Unlock()
	<-ctx.Done()
	j.mu.Lock()
	r.cancelled, r.cause = time.Now(), context.Cause(ctx)
	r.confirmedLate = errors.Is(r.cause, ErrLost) && Confirm(ctx) == nil
	drain := j.drain
	j.mu.Unlock()
	if j.hold != nil {
		<-j.hold
	}
	time.Sleep(drain)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running--
	r.ended = time.Now()
	return j.err
}

// count returns how many runs have begun.
func (j *job) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.runs)
}

// run returns a copy of run number i, negative from the end.
func (j *job) run(i int) jobRun {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i < 0 {
		i += len(j.runs)
	}
	if i < 0 || i >= len(j.runs) {
		return jobRun{ctx: context.Background()}
	}
	return *j.runs[i]
}

func (j *job) setDrain(d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.drain = d
}

func (j *job) overlapped() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.overlaps
}

// obey is a task that stops when it is told to.
func obey(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// doneContext is one that has ended.
func doneContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// taskOf finds the task of name in a Status.
func taskOf(s Status, name string) TaskStatus {
	i := slices.IndexFunc(s.Tasks, func(t TaskStatus) bool { return t.Name == name })
	if i < 0 {
		return TaskStatus{}
	}
	return s.Tasks[i]
}
