// SPDX-License-Identifier: MIT

package leadertest

import (
	"slices"
	"time"
)

// Session is a session of a Leader as its [Store] sees it, and the link between them. Its methods say what befalls it. They
// neither block nor wait for the Leader to notice, and may be called concurrently.
type Session struct {
	store   *Store
	node    string
	pid     uint32
	timeout time.Duration

	// The rest but killed is guarded by store.mu.

	alive  bool
	expiry *time.Timer
	heard  time.Time // when the last request came

	cut, frozen bool
	delay       time.Duration
	gone        bool // the Leader has closed its side
	changed     chan struct{}
	news        []int64
	believed    map[int64]struct{} // what the Leader's side holds as far as it knows
	killed      chan struct{}      // closed when the Leader's side is
}

// Node returns Options.Node of the Leader.
func (s *Session) Node() string { return s.node }

// Alive tells whether the session lives at the store, whatever its Leader believes.
func (s *Session) Alive() bool {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.alive
}

// Keys returns the keys of the locks that the session holds at the store, sorted.
func (s *Session) Keys() []int64 {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	var keys []int64
	for key, h := range s.store.locks {
		if h.session == s {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// End has the store end the session and free its locks, as an administrator does who terminates it, or a server that is shut
// down. The Leader hears of it at once, unless the link is cut or frozen.
func (s *Session) End() { s.set(s.endLocked) }

// Take has the store take the locks of keys from the session, which lives on and is not told. The Leader finds out with the
// next Options.Check.
func (s *Session) Take(keys ...int64) {
	s.set(func() {
		for _, key := range keys {
			if s.store.locks[key].session == s {
				delete(s.store.locks, key)
			}
		}
	})
}

// Cut turns the link into a black hole, as a partition does: no request arrives, no answer either, and nobody is told. After
// Options.SessionTimeout of silence the store ends the session.
func (s *Session) Cut() { s.set(func() { s.cut = true }) }

// Mend ends what Cut began. What was sent meanwhile arrives now.
func (s *Session) Mend() {
	s.set(func() {
		s.cut = false
		s.missedLocked()
	})
}

// Freeze stops the store's process for the session: nothing is answered, and nothing ends there either, so its locks stay
// held until Thaw. The Leader sees what it sees with Cut.
func (s *Session) Freeze() {
	s.set(func() {
		s.frozen = true
		if s.expiry != nil {
			s.expiry.Stop()
		}
	})
}

// Thaw ends what Freeze began. The silence of the Leader counts from now.
func (s *Session) Thaw() {
	s.set(func() {
		if !s.frozen {
			return
		}
		s.frozen = false
		s.hearLocked()
		s.missedLocked()
	})
}

// Delay has the answer to each request come d later than it would, from the next request on. 0 ends that.
func (s *Session) Delay(d time.Duration) { s.set(func() { s.delay = d }) }

func (s *Session) set(change func()) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	change()
	s.changeLocked()
}

func (s *Session) changeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Session) openLocked() bool { return !s.cut && !s.frozen }

// hearLocked counts the silence from now.
func (s *Session) hearLocked() {
	if s.alive && s.expiry != nil {
		s.heard = time.Now()
		s.expiry.Reset(s.timeout)
	}
}

// expire is run by the timer, which may have been about to fire when a request came.
func (s *Session) expire() {
	s.set(func() {
		if !s.frozen && time.Since(s.heard) >= s.timeout {
			s.endLocked()
		}
	})
}

// missedLocked is for an end of the Leader's side that has not got through.
func (s *Session) missedLocked() {
	if s.gone && s.openLocked() {
		s.endLocked()
	}
}

// leaveLocked closes the Leader's side. The store sees it if the link lets it through.
func (s *Session) leaveLocked() {
	if !s.gone {
		s.gone = true
		close(s.killed)
	}
	if s.openLocked() || s.store.durable {
		s.endLocked()
	}
}

func (s *Session) endLocked() {
	if !s.alive {
		return
	}
	s.alive = false
	if s.expiry != nil {
		s.expiry.Stop()
	}
	for key, h := range s.store.locks {
		if h.session == s {
			delete(s.store.locks, key)
		}
	}
	s.store.sessions = slices.DeleteFunc(s.store.sessions, func(other *Session) bool { return other == s })
	s.changeLocked()
}
