// SPDX-License-Identifier: MIT

package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/oxygenhub/leader/driver"
)

var (
	errDriverKeys  = errors.New("the driver says that it holds a lock that it was not asked for, or one twice")
	errDriverFence = errors.New("the place of the locks is one of a driver, and no transaction of it can be fenced here: compare TermOf there")
)

// Driver returns a Backend for locks at any place that d can reach. What is promised there is what d and its place promise:
// docs/guarantees.md says what follows from which property of the locks, docs/drivers.md what d must keep, and
// leadertest.TestDriver tests it. Options.Terms needs a driver that is a [driver.Terms], too; then [TermOf] has the term, for
// the store that is written to, but [Fence] and its kin return an error. It may be shared by several Leaders.
func Driver(d driver.Driver) Backend { return &driverBackend{d} }

type driverBackend struct{ driver driver.Driver }

func (b *driverBackend) check(opts Options) error {
	switch _, keeps := b.driver.(driver.Terms); {
	case b.driver == nil:
		return errors.New("Driver: the driver is nil")
	case opts.Schema != "":
		return errors.New("Options.Schema: a driver has no schemas")
	case opts.Terms && !keeps:
		return fmt.Errorf("Options.Terms: the driver keeps no terms: %T does not implement driver.Terms", b.driver)
	}
	return nil
}

// traits are those of no driver before check has refused that.
func (b *driverBackend) traits() driver.Traits {
	if b.driver == nil {
		return driver.Traits{}
	}
	return b.driver.Traits()
}

func (b *driverBackend) expires() bool        { return !b.traits().Durable }
func (b *driverBackend) sqlite() bool         { return false }
func (b *driverBackend) retry() time.Duration { return cmp.Or(b.traits().Retry, time.Second) }
func (b *driverBackend) dialTimeout() time.Duration {
	return cmp.Or(b.traits().OpenTimeout, 5*time.Second)
}

// open proves the session once: so the lease counts from a request of which the time is known, not from the start of a
// dial that may take as long as a lease.
func (b *driverBackend) open(ctx context.Context, opts Options, clock *clock) (session, error) {
	inner, err := b.driver.Open(ctx, driver.Config{Node: opts.Node, SessionTimeout: opts.SessionTimeout})
	if err != nil {
		if errors.Is(err, driver.ErrUnsupported) {
			return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		return nil, err
	}
	s := &driverSession{inner: inner, clock: clock, patience: (opts.Lease - opts.Check) / 2}
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.store.terms, _ = b.driver.(driver.Terms)
	info := inner.Info()
	if info.Namespace == "" {
		s.close()
		return nil, errors.New("the driver has no default namespace")
	}
	unwatch := context.AfterFunc(ctx, s.kill)
	proved := clock.read()
	_, err = s.prove()
	if !unwatch() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("prove the session: %w", err)
	}
	s.namespace = cmp.Or(opts.Namespace, info.Namespace)
	s.info = sessionInfo{
		namespace: info.Namespace, place: info.Place, pid: info.PID, warning: info.Warning, proved: proved,
		reads: opts.Terms,
	}
	return s, nil
}

// driverSession is a session of a driver. It keeps a wrong answer from becoming a wrong state, where that can be seen.
type driverSession struct {
	inner     driver.Session
	clock     *clock
	info      sessionInfo
	namespace string // of the terms
	store     driverTerms
	patience  time.Duration   // with the store, whose answers are waited for between proofs
	life      context.Context //nolint:containedctx // ends with kill, and with it what is asked of the store
	end       context.CancelFunc

	mu   sync.Mutex
	last reading // when something was sent for the last time
}

func (s *driverSession) about() sessionInfo { return s.info }

// sending notes the time. It is called before and after each call: what a driver sends, it sends in between.
func (s *driverSession) sending() {
	now := s.clock.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = now
}

func (s *driverSession) sent() reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// driverError translates what an error of a driver says of its session.
func driverError(err error) error {
	if over, ok := errors.AsType[*driver.OverError](err); ok {
		return &sessionError{err: err, ended: over.Ended, cut: true}
	}
	if some, ok := errors.AsType[*driver.KeysError](err); ok {
		return &keysError{keys: some.Keys, err: err}
	}
	return err
}

func (s *driverSession) try(keys []int64) (held []int64, err error) {
	s.sending()
	defer s.sending()
	held, err = s.inner.Try(slices.Clone(keys))
	if !eachOnceOf(held, keys) {
		return nil, &sessionError{err: errDriverKeys}
	}
	return held, driverError(err)
}

// eachOnceOf tells whether all of some are among keys, none of them twice. A key more than asked for would be given back as
// unwanted, and with it the lock of a task that runs.
func eachOnceOf(some, keys []int64) bool {
	if len(some) == 0 {
		return true
	}
	asked := make(map[int64]struct{}, len(keys))
	for _, key := range keys {
		asked[key] = struct{}{}
	}
	for _, key := range some {
		if _, ok := asked[key]; !ok {
			return false
		}
		delete(asked, key)
	}
	return true
}

func (s *driverSession) unlock(keys []int64) (missing []int64, err error) {
	s.sending()
	defer s.sending()
	missing, err = s.inner.Unlock(slices.Clone(keys))
	return missing, driverError(err)
}

func (s *driverSession) tell(keys []int64) error {
	s.sending()
	defer s.sending()
	return driverError(s.inner.Tell(slices.Clone(keys)))
}

func (s *driverSession) prove() (lost []int64, err error) {
	s.sending()
	defer s.sending()
	lost, err = s.inner.Prove()
	return lost, driverError(err)
}

func (s *driverSession) holders(keys []int64) (map[int64]Holder, error) {
	s.sending()
	defer s.sending()
	found, err := s.inner.Holders(slices.Clone(keys))
	if err != nil {
		return nil, driverError(err)
	}
	holders := make(map[int64]Holder, len(found))
	for key, h := range found {
		holders[key] = Holder{Held: true, Node: h.Node, PID: h.PID, Since: h.Since}
	}
	return holders, nil
}

// terms reads apart from the session, but the loop looks at the lease before it looks at the answer: if that is good, the locks
// were held when the answer was made.
func (s *driverSession) terms(keys []int64) (map[int64]termRow, error) {
	ctx, cancel := context.WithTimeout(s.life, s.patience)
	defer cancel()
	return s.store.read(ctx, termSite{namespace: s.namespace}, keys)
}

// wait returns any error as the end of the session.
func (s *driverSession) wait(ctx context.Context) ([]int64, error) {
	keys, err := s.inner.Wait(ctx)
	if err == nil {
		return keys, nil
	}
	err = driverError(err)
	if _, over := errors.AsType[*sessionError](err); !over {
		err = &sessionError{err: err}
	}
	return nil, err
}

func (s *driverSession) close() {
	s.end()
	s.inner.Close()
}

func (s *driverSession) kill() {
	s.end()
	s.inner.Kill()
}

// ofDriver tells whether the locks are at a place whose transactions are unknown here.
func ofDriver(b Backend) bool {
	_, is := b.(*driverBackend)
	return is
}
