// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"fmt"
	"slices"
	"time"
)

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
	pleaded    []int64
	last       reading
	lastAt     time.Time
	statements int
	asking     bool // a statement is under way
	killed     chan struct{}
	left       bool // close was called: no other call may follow
	closed     bool // by close or kill
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
			return &sessionError{err: errFakeKilled, cut: true}
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
	defer s.heard()
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
	s.asking = true
	s.last, s.lastAt = s.clock.read(), time.Now()
	if s.left {
		s.store.breaches = append(s.store.breaches, kind+" after close")
	}
}

func (s *fakeSession) heard() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.asking = false
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
	return sessionInfo{
		namespace: "fake", place: "memory", pid: s.pid, proved: s.last, reads: !s.backend.durable, warning: s.backend.warning,
	}
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

func (s *fakeSession) terms(keys []int64) (rows map[int64]termRow, err error) {
	err = s.statement(kindTerms, func(int, bool) error {
		rows = s.store.rowsLocked(keys)
		return nil
	})
	return rows, err
}

func (s *fakeSession) wait(ctx context.Context) ([]int64, error) {
	for {
		keys, changed, err := s.look()
		if len(keys) > 0 || err != nil || s.pleading() {
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

// pleading reports whether there is something for pleas.
func (s *fakeSession) pleading() bool {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return len(s.pleaded) > 0 && !s.dark && !s.mute
}

func (s *fakeSession) pleas() []int64 {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if s.dark || s.mute {
		return nil
	}
	keys := s.pleaded
	s.pleaded = nil
	return keys
}

// plead is somebody asking the holder of name to hand it over.
func (s *fakeSession) plead(name string) {
	s.store.set(func() {
		s.pleaded = append(s.pleaded, Key("test", name))
		s.changeLocked()
	})
}

// look takes what has come from the server without having been asked for.
func (s *fakeSession) look() (keys []int64, changed chan struct{}, err error) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	select {
	case <-s.killed:
		return nil, nil, &sessionError{err: errFakeKilled, cut: true}
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
	s.left = true
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
