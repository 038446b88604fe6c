// SPDX-License-Identifier: MIT

package leadertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/driver"
)

// Namespace is the default namespace of the locks of a [Store]: the key of a name there is leader.Key(Namespace, name).
const Namespace = "test"

var (
	errEnded  = errors.New("leadertest: the store has ended the session")
	errKilled = errors.New("leadertest: the connection was cut off by its owner")
)

// Store is a place of locks and terms in memory, for the Leaders of one test: each stands for a process. It does no I/O, and
// waits only on channels and timers that are made when a session is, so it works in a bubble of testing/synctest. Its
// methods neither block nor wait for a Leader to see what they do, and may be called concurrently.
type Store struct {
	durable bool // for the tests of the adapter

	mu       sync.Mutex // held for moments only
	locks    map[int64]held
	sessions []*Session // those that live, oldest first
	terms    map[int64]driver.Term
	opened   uint32
	refusal  error // of connects
	trouble  error // of terms
}

type held struct {
	session *Session
	since   time.Time
}

// NewStore returns a store in which nobody holds anything.
func NewStore() *Store {
	return &Store{locks: make(map[int64]held), terms: make(map[int64]driver.Term)}
}

// Backend returns the backend with which a Leader keeps its locks in st, and its terms, with Options.Terms.
func (st *Store) Backend() leader.Backend { return leader.Driver(st.Driver()) }

// Driver returns the driver under Backend, to wrap it.
func (st *Store) Driver() driver.Driver { return storeDriver{st} }

// Refuse has all connects fail with err from now on, until it is nil. Sessions that there are live on.
func (st *Store) Refuse(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.refusal = err
}

// RefuseTerms has all that is read and written of terms fail with err from now on, until it is nil.
func (st *Store) RefuseTerms(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.trouble = err
}

// Sessions returns the sessions that live at the store, oldest first.
func (st *Store) Sessions() []*Session {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Clone(st.sessions)
}

// Session returns the youngest session of node (Options.Node) that lives at the store, or nil.
func (st *Store) Session(node string) *Session {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, s := range slices.Backward(st.sessions) {
		if s.node == node {
			return s
		}
	}
	return nil
}

// Holder returns the session that holds the lock of key at the store, or nil. See leader.Key.
func (st *Store) Holder(key int64) *Session {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.locks[key].session
}

// Term returns the record of the last term of key; false if there is none.
func (st *Store) Term(key int64) (driver.Term, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	term, ok := st.terms[key]
	return term, ok
}

// storeDriver is the side of a Store that Leaders see.
type storeDriver struct{ store *Store }

func (d storeDriver) Traits() driver.Traits { return driver.Traits{Durable: d.store.durable} }

func (d storeDriver) Open(ctx context.Context, config driver.Config) (driver.Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	st := d.store
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.refusal != nil {
		return nil, st.refusal
	}
	st.opened++
	s := &Session{
		store: st, node: config.Node, pid: st.opened, timeout: config.SessionTimeout, alive: true,
		changed: make(chan struct{}), killed: make(chan struct{}), believed: make(map[int64]struct{}),
	}
	if !st.durable {
		s.heard = time.Now()
		s.expiry = time.AfterFunc(s.timeout, s.expire)
	}
	st.sessions = append(st.sessions, s)
	return client{s}, nil
}

func (d storeDriver) ReadTerms(ctx context.Context, namespace string, keys []int64) (map[int64]driver.Term, error) {
	st := d.store
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := errors.Join(ctx.Err(), st.trouble); err != nil {
		return nil, err
	}
	found := make(map[int64]driver.Term)
	for key, term := range st.terms {
		if keys == nil && term.Namespace == namespace || slices.Contains(keys, key) {
			found[key] = term
		}
	}
	return found, nil
}

func (d storeDriver) SwapTerm(ctx context.Context, key, last int64, next driver.Term) (bool, error) {
	st := d.store
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := errors.Join(ctx.Err(), st.trouble); err != nil {
		return false, err
	}
	if st.terms[key].Number != last {
		return false, nil
	}
	st.terms[key] = next
	return true, nil
}
