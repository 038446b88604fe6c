// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/driver"
)

// fakeDriver has the fake behind the adapter, which thereby meets the contract of sessions as far as the fake does.
type fakeDriver struct {
	backend *fakeBackend
	clock   *clock
	pause   time.Duration // before Open connects
	refusal error
	answers func(held []int64) []int64 // of Try
}

func newFakeDriver() *fakeDriver {
	b := &fakeBackend{store: newFakeStore(), faults: make(map[string][]fakeFault), counts: make(map[string]int)}
	return &fakeDriver{backend: b, clock: &clock{epoch: time.Now()}}
}

func (d *fakeDriver) Traits() driver.Traits { return driver.Traits{Durable: d.backend.durable} }

func (d *fakeDriver) Open(ctx context.Context, config driver.Config) (driver.Session, error) {
	if d.refusal != nil {
		return nil, d.refusal
	}
	time.Sleep(d.pause)
	opts := Options{Node: config.Node, SessionTimeout: config.SessionTimeout}
	s, err := d.backend.open(ctx, opts, d.clock)
	if err != nil {
		return nil, err
	}
	return &fakeDriven{s.(*fakeSession), d}, nil
}

// fakeDriven is a fake session in the terms of package driver.
type fakeDriven struct {
	fake   *fakeSession
	driver *fakeDriver
}

func (s *fakeDriven) error(err error) error {
	if over, ok := errors.AsType[*sessionError](err); ok {
		return &driver.OverError{Err: over.err, Ended: over.ended}
	}
	return err
}

func (s *fakeDriven) Info() driver.Info {
	return driver.Info{Namespace: "fake", Place: "memory", PID: s.fake.pid}
}

func (s *fakeDriven) Try(keys []int64) ([]int64, error) {
	held, err := s.fake.try(keys)
	if s.driver.answers != nil {
		held = s.driver.answers(held)
	}
	return held, s.error(err)
}

func (s *fakeDriven) Unlock(keys []int64) ([]int64, error) {
	missing, err := s.fake.unlock(keys)
	clear(keys) // they are a copy
	return missing, s.error(err)
}

func (s *fakeDriven) Tell(keys []int64) error { return s.error(s.fake.tell(keys)) }

func (s *fakeDriven) Prove() ([]int64, error) {
	lost, err := s.fake.prove()
	return lost, s.error(err)
}

func (s *fakeDriven) Holders(keys []int64) (map[int64]driver.Holder, error) {
	found, err := s.fake.holders(keys)
	holders := make(map[int64]driver.Holder)
	for key, h := range found {
		holders[key] = driver.Holder{Node: h.Node, PID: h.PID, Since: h.Since}
	}
	return holders, s.error(err)
}

func (s *fakeDriven) Wait(ctx context.Context) ([]int64, error) {
	keys, err := s.fake.wait(ctx)
	return keys, s.error(err)
}

func (s *fakeDriven) Close() { s.fake.close() }
func (s *fakeDriven) Kill()  { s.fake.kill() }

func TestConformanceDriver(t *testing.T) {
	for _, c := range sessionTests {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.test(t, driverPlace(newFakeDriver())) })
		})
	}
}

func driverPlace(d *fakeDriver) *sessionPlace {
	fakeOf := func(s session) *fakeSession { return s.(*driverSession).inner.(*fakeDriven).fake }
	return &sessionPlace{
		open: func(t *testing.T, node string) session {
			t.Helper()
			return openSession(t, Driver(d), node)
		},
		take: func(_ *testing.T, s session, keys ...int64) {
			if len(keys) == 0 {
				fakeOf(s).steal()
			}
			d.backend.store.set(func() {
				for _, key := range keys {
					delete(d.backend.store.locks, key)
				}
			})
		},
		end: func(_ *testing.T, s session) { fakeOf(s).terminate() },
	}
}

func TestDriverOptions(t *testing.T) {
	for what, row := range map[string]struct {
		driver driver.Driver
		opts   Options
	}{
		"the driver is nil": {nil, Options{}},
		"Options.Terms":     {newFakeDriver(), Options{Terms: true}},
		"Options.Schema":    {newFakeDriver(), Options{Terms: true, Schema: "x"}},
	} {
		_, err := New(Driver(row.driver), row.opts)
		assert.ErrorContains(t, err, what)
	}
	l, err := New(Driver(newFakeDriver()), Options{})
	require.NoError(t, err)
	assert.Equal(t, time.Second, l.opts.Retry)
	assert.Equal(t, 5*time.Second, l.backend.dialTimeout())
}

func TestDriverUnsupported(t *testing.T) {
	d := newFakeDriver()
	d.refusal = fmt.Errorf("a cache: %w", driver.ErrUnsupported)
	l, err := New(Driver(d), Options{})
	require.NoError(t, err)
	err = l.Run(t.Context(), "x", func(context.Context) error { return nil })
	require.ErrorIs(t, err, ErrUnsupported)
	assert.ErrorContains(t, err, "a cache")
	require.NoError(t, l.Resign(t.Context()))
}

// TestLoopDriverLeaseCountsFromTheProof: a dial that takes longer than a lease must not use it up, and what is sent after it must
// not lengthen it.
func TestLoopDriverLeaseCountsFromTheProof(t *testing.T) { synctest.Test(t, testLoopDriverLease) }

func testLoopDriverLease(t *testing.T) {
	d := newFakeDriver()
	d.pause, d.backend.lag = 4*time.Second, 300*time.Millisecond
	clock := &clock{epoch: time.Now()}
	opts, err := Options{Node: "a"}.withDefaults(Driver(d))
	require.NoError(t, err)
	began := time.Now()
	s, err := Driver(d).open(t.Context(), opts, clock)
	require.NoError(t, err)
	require.Equal(t, 4300*time.Millisecond, time.Since(began))
	assert.Equal(t, 300*time.Millisecond, clock.read().since(s.about().proved), "from when it was sent, not from its answer")
	assert.Zero(t, clock.read().since(s.sent()), "the place may count from the answer")
	time.Sleep(time.Second)
	_, err = s.prove()
	require.NoError(t, err)
	assert.Zero(t, clock.read().since(s.sent()))
	s.close()
}

func TestLoopDriverOpenEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver()
		d.backend.dark = true // the proof is never answered
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Driver(d).open(ctx, Options{Node: "a", SessionTimeout: 10 * time.Second}, d.clock)
		require.Error(t, err)
		all, now := d.backend.opened()
		assert.Equal(t, []int{1, 0}, []int{all, now})
	})
}

// TestDriverWrongKeys: a lock that nobody asked for, or that is told of twice, would be given back as unwanted.
func TestDriverWrongKeys(t *testing.T) {
	for what, answers := range map[string]func([]int64) []int64{
		"others": func([]int64) []int64 { return []int64{9} },
		"twice":  func(held []int64) []int64 { return append(held, held...) },
	} {
		d := newFakeDriver()
		s := openSession(t, Driver(d), "a")
		d.answers = answers
		_, err := s.try([]int64{1, 2})
		var over *sessionError
		require.ErrorAs(t, err, &over, what)
		assert.False(t, over.ended, what)
	}
}

func TestDriverKeysAreCopies(t *testing.T) {
	s := openSession(t, Driver(newFakeDriver()), "a")
	keys := []int64{1, 2}
	give(t, s, keys...)
	_, err := s.unlock(keys)
	require.NoError(t, err)
	assert.Equal(t, []int64{1, 2}, keys)
}

func TestDriverErrors(t *testing.T) {
	plain := errors.New("plain")
	require.NoError(t, driverError(nil))
	assert.Equal(t, plain, driverError(plain))
	over, ok := errors.AsType[*sessionError](driverError(fmt.Errorf("try: %w", &driver.OverError{Err: plain, Ended: true})))
	require.True(t, ok)
	assert.True(t, over.ended)
	require.ErrorIs(t, over, plain)
	some, ok := errors.AsType[*keysError](driverError(&driver.KeysError{Keys: []int64{3}, Err: plain}))
	require.True(t, ok)
	assert.True(t, slices.Equal(some.keys, []int64{3}))
	require.ErrorIs(t, some, plain)
}

func TestDriverCannotFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Driver(newFakeDriver()), Options{})
		require.NoError(t, err)
		require.NoError(t, l.Run(t.Context(), "x", func(ctx context.Context) error {
			_, ok := TermOf(ctx)
			assert.False(t, ok)
			for _, err := range []error{
				Fence(ctx, nil), FenceShared(ctx, nil), FenceSQL(ctx, (*sql.Tx)(nil)), FenceSharedSQL(ctx, nil),
			} {
				require.ErrorIs(t, err, errDriverFence)
				require.NotErrorIs(t, err, ErrFenced)
			}
			return nil
		}))
		require.NoError(t, l.Resign(t.Context()))
	})
}
