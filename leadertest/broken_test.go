// SPDX-License-Identifier: MIT

package leadertest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/oxygenhub/leader/driver"
)

// racy asks who has a lock, and then takes it.
type racy struct {
	mu   sync.Mutex
	held map[int64]*wrapped
}

func (r *racy) spoil(_ driver.Session, w *wrapped) {
	w.try = func(keys []int64) (held []int64, err error) {
		for _, key := range keys {
			r.mu.Lock()
			free := r.held[key] == nil
			r.mu.Unlock()
			runtime.Gosched()
			if free {
				r.mu.Lock()
				r.held[key] = w
				r.mu.Unlock()
				held = append(held, key)
			}
		}
		return held, nil
	}
	w.unlock = func(keys []int64) ([]int64, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, key := range keys {
			delete(r.held, key)
		}
		return nil, nil
	}
}

// low cuts keys off, as a place does that has fewer bits.
func low(keys []int64) []int64 {
	cut := make([]int64, len(keys))
	for i, key := range keys {
		cut[i] = int64(int32(key))
	}
	return cut
}

// brokenDrivers has a driver that breaks a promise for each test of the suite, and often several.
var brokenDrivers = []struct {
	test, what string
	broken     func(d *brokenDriver)
}{
	{"Info", "no namespace", spoiled(func(_ driver.Session, w *wrapped) {
		w.info = func(i driver.Info) driver.Info { i.Namespace = ""; return i }
	})},
	{"OpenHeedsContext", "the context is ignored", func(d *brokenDriver) {
		d.open = func(ctx context.Context, config driver.Config) (driver.Session, error) {
			return d.storeDriver.Open(context.WithoutCancel(ctx), config)
		}
	}},
	{"Exclude", "all get all", spoiled(func(_ driver.Session, w *wrapped) {
		w.try = func(keys []int64) ([]int64, error) { return keys, nil }
	})},
	{"Exclude", "the locks are those of the process", func(d *brokenDriver) { d.apart = true }},
	{"Exclude", "a lock that is taken is waited for", spoiled(func(s driver.Session, w *wrapped) {
		w.try = func(keys []int64) ([]int64, error) {
			held, err := s.Try(keys)
			if len(held) < len(keys) {
				time.Sleep(1100 * time.Millisecond)
			}
			return held, err
		}
	})},
	{"EachKeyAlone", "all or nothing", spoiled(func(s driver.Session, w *wrapped) {
		w.try = func(keys []int64) ([]int64, error) {
			held, err := s.Try(keys)
			if len(held) < len(keys) {
				_, _ = s.Unlock(held)
				return nil, err
			}
			return held, err
		}
	})},
	{"NoStacking", "a proof takes the locks once more", spoiled(func(s driver.Session, w *wrapped) {
		proofs := 0
		w.prove = func() ([]int64, error) { proofs++; return s.Prove() }
		w.unlock = func(keys []int64) ([]int64, error) {
			if proofs--; proofs >= 0 {
				return nil, nil
			}
			proofs = 0
			return s.Unlock(keys)
		}
	})},
	{"Unlock", "nothing is missed", spoiled(func(s driver.Session, w *wrapped) {
		w.unlock = func(keys []int64) ([]int64, error) { _, err := s.Unlock(keys); return nil, err }
	})},
	{"Unlock", "it ends at the first key that is missed", spoiled(func(s driver.Session, w *wrapped) {
		w.unlock = func(keys []int64) (missing []int64, err error) {
			mine := sessionOf(s).Keys()
			for i, key := range keys {
				if slices.Contains(mine, key) {
					continue
				}
				if _, err := s.Unlock(keys[:i]); err != nil {
					return nil, err
				}
				for _, key := range keys {
					if !slices.Contains(mine, key) {
						missing = append(missing, key)
					}
				}
				return missing, nil
			}
			return s.Unlock(keys)
		}
	})},
	{"AnyKey", "32 bits", spoiled(func(s driver.Session, w *wrapped) {
		w.try = func(keys []int64) (held []int64, err error) {
			got, err := s.Try(low(keys))
			for _, key := range keys {
				if slices.Contains(got, int64(int32(key))) {
					held = append(held, key)
				}
			}
			return held, err
		}
		w.unlock = func(keys []int64) ([]int64, error) { return s.Unlock(low(keys)) }
	})},
	{"AnyKey", "bit 62 is dropped", spoiled(func(s driver.Session, w *wrapped) {
		drop := func(keys []int64) []int64 {
			cut := make([]int64, len(keys))
			for i, key := range keys {
				cut[i] = key &^ (1 << 62)
			}
			return cut
		}
		w.try = func(keys []int64) (held []int64, err error) {
			got, err := s.Try(drop(keys))
			for _, key := range keys {
				if slices.Contains(got, key&^(1<<62)) {
					held = append(held, key)
				}
			}
			return held, err
		}
		w.unlock = func(keys []int64) ([]int64, error) { return s.Unlock(drop(keys)) }
	})},
	{"ManyKeys", "1,000 at most", spoiled(func(s driver.Session, w *wrapped) {
		w.try = func(keys []int64) ([]int64, error) { return s.Try(keys[:min(len(keys), 1000)]) }
	})},
	{"Race", "look, then take", func(d *brokenDriver) { d.spoil = (&racy{held: make(map[int64]*wrapped)}).spoil }},
	{"ProveAlive", "held locks are called lost", spoiled(func(s driver.Session, w *wrapped) {
		w.prove = func() ([]int64, error) { return sessionOf(s).Keys(), nil }
	})},
	{"ProveFindsLoss", "losses are not seen", spoiled(func(s driver.Session, w *wrapped) {
		w.prove = func() ([]int64, error) { _, err := s.Prove(); return nil, err }
	})},
	{"Holders", "only its own", spoiled(func(s driver.Session, w *wrapped) {
		w.holders = func(keys []int64) (map[int64]driver.Holder, error) {
			found, err := s.Holders(keys)
			for key, h := range found {
				if h.Node != sessionOf(s).Node() {
					delete(found, key)
				}
			}
			return found, err
		}
	})},
	{"ManyKeys", "holders of 1,000 at most", spoiled(func(s driver.Session, w *wrapped) {
		w.holders = func(keys []int64) (map[int64]driver.Holder, error) { return s.Holders(keys[:min(len(keys), 1000)]) }
	})},
	{"Tell", "nobody hears", spoiled(func(_ driver.Session, w *wrapped) {
		w.tell = func([]int64) error { return nil }
	})},
	{"Tell", "the teller hears itself", spoiled(func(s driver.Session, w *wrapped) {
		w.tell = func(keys []int64) error {
			sessionOf(s).set(func() { sessionOf(s).news = keys })
			return s.Tell(keys)
		}
	})},
	{"Tell", "it takes two seconds", spoiled(func(s driver.Session, w *wrapped) {
		w.tell = func(keys []int64) error {
			time.Sleep(2 * time.Second)
			return s.Tell(keys)
		}
	})},
	{"Tell", "Wait ends before there is news", spoiled(func(s driver.Session, w *wrapped) {
		w.wait = func(ctx context.Context) ([]int64, error) {
			short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			defer cancel()
			return s.Wait(short)
		}
	})},
	{"WaitInterrupted", "what was told before is forgotten", spoiled(func(s driver.Session, w *wrapped) {
		w.wait = func(ctx context.Context) ([]int64, error) {
			sessionOf(s).set(func() { sessionOf(s).news = nil })
			return s.Wait(ctx)
		}
	})},
	{"WaitInterrupted", "an end of the context is an error", spoiled(func(s driver.Session, w *wrapped) {
		w.wait = func(ctx context.Context) ([]int64, error) {
			keys, err := s.Wait(ctx)
			return keys, errors.Join(err, ctx.Err())
		}
	})},
	{"CloseFrees", "Close leaves the locks", spoiled(func(_ driver.Session, w *wrapped) {
		w.end = func() {}
	})},
	{"CloseFrees", "it takes two seconds", spoiled(func(s driver.Session, w *wrapped) {
		w.end = func() {
			s.Close()
			time.Sleep(2 * time.Second)
		}
	})},
	{"CloseFrees", "it frees all locks of the node", spoiled(func(s driver.Session, w *wrapped) {
		w.end = func() {
			for _, other := range sessionOf(s).store.Sessions() {
				if other.Node() == sessionOf(s).Node() {
					other.Take(other.Keys()...)
				}
			}
			s.Close()
		}
	})},
	{"KillFrees", "it ends all sessions of the node", spoiled(func(s driver.Session, w *wrapped) {
		w.kill = func() {
			for _, other := range sessionOf(s).store.Sessions() {
				if other.Node() == sessionOf(s).Node() {
					other.End()
				}
			}
			s.Kill()
		}
	})},
	{"KillFrees", "Kill leaves the locks", spoiled(func(_ driver.Session, w *wrapped) {
		w.kill = func() {}
	})},
	{"KillFrees", "the session speaks after Kill", spoiled(func(s driver.Session, w *wrapped) {
		w.failure = func(error) error { return nil }
		w.kill = s.Kill
	})},
	{"KillEndsWait", "Wait knows its context alone", spoiled(func(_ driver.Session, w *wrapped) {
		w.wait = func(ctx context.Context) ([]int64, error) { <-ctx.Done(); return nil, nil }
	})},
	{"KillEndsRequest", "a request in a black hole is waited for", spoiled(func(s driver.Session, w *wrapped) {
		w.kill = sessionOf(s).End
	})},
	{"Ended", "Ended is not set", spoiled(func(_ driver.Session, w *wrapped) {
		w.failure = func(err error) error { return &driver.OverError{Err: err} }
	})},
	{"Ended", "any error", spoiled(func(_ driver.Session, w *wrapped) {
		w.failure = func(err error) error { return errors.New(err.Error()) }
	})},
	{"ProofsKeep", "a proof asks nobody", spoiled(func(_ driver.Session, w *wrapped) {
		w.prove = func() ([]int64, error) { return nil, nil }
	})},
	{"ProofsKeep", "the place ends sessions too early", timed(func(d time.Duration) time.Duration { return d / 5 })},
	{"SilenceFrees", "a heartbeat while nobody asks", spoiled(func(s driver.Session, w *wrapped) {
		w.wait = func(ctx context.Context) ([]int64, error) {
			beat, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			keys, err := s.Wait(beat)
			sessionOf(s).set(sessionOf(s).hearLocked)
			return keys, err
		}
	})},
	{"SilenceFrees", "each Wait is a request", spoiled(func(s driver.Session, w *wrapped) {
		w.wait = func(ctx context.Context) ([]int64, error) {
			sessionOf(s).set(sessionOf(s).hearLocked)
			return s.Wait(ctx)
		}
	})},
	{"SilenceFrees", "the proof of a session keeps all of its node", spoiled(func(s driver.Session, w *wrapped) {
		w.prove = func() ([]int64, error) {
			for _, other := range sessionOf(s).store.Sessions() {
				if other.Node() == sessionOf(s).Node() {
					other.set(other.hearLocked)
				}
			}
			return s.Prove()
		}
	})},
	{"SilenceFrees", "an expired session is opened again after it was told", spoiled(func(s driver.Session, w *wrapped) {
		told := false
		w.prove = func() ([]int64, error) {
			if told {
				return nil, nil
			}
			lost, err := s.Prove()
			told = err != nil
			return lost, err
		}
	})},
	{"SilenceFrees", "the place ends sessions too early", timed(func(d time.Duration) time.Duration { return d / 2 })},
	{"SilenceFrees", "the place never ends a session", timed(func(time.Duration) time.Duration { return time.Hour })},
	{"CutFrees", "the place ends sessions too early", timed(func(d time.Duration) time.Duration { return d / 2 })},
	{"CutFrees", "the place never ends a session", timed(func(time.Duration) time.Duration { return time.Hour })},
	{"Terms", "what the number was is ignored", func(d *brokenDriver) {
		d.swap = func(ctx context.Context, key, _ int64, next driver.Term) (bool, error) {
			term, _ := d.store.Term(key)
			return d.storeDriver.SwapTerm(ctx, key, term.Number, next)
		}
	}},
	{"Terms", "all namespaces are read", func(d *brokenDriver) {
		d.read = func(namespace string, keys []int64) (string, []int64) {
			if keys == nil {
				keys = []int64{termKey, 5}
			}
			return namespace, keys
		}
	}},
	{"Terms", "nothing is kept", func(d *brokenDriver) {
		d.swap = func(context.Context, int64, int64, driver.Term) (bool, error) { return true, nil }
	}},
	{"Terms", "the terms are those of the process", func(d *brokenDriver) { d.apart = true }},
	{"TermsRace", "read, then write", func(d *brokenDriver) {
		d.swap = func(ctx context.Context, key, last int64, next driver.Term) (bool, error) {
			if term, _ := d.store.Term(key); term.Number != last {
				return false, nil
			}
			time.Sleep(time.Millisecond)
			term, _ := d.store.Term(key)
			return d.storeDriver.SwapTerm(ctx, key, term.Number, next)
		}
	}},
	{"Leaders", "all get all", spoiled(func(_ driver.Session, w *wrapped) {
		w.try = func(keys []int64) ([]int64, error) { return keys, nil }
	})},
	{"Leaders", "Kill does nothing", spoiled(func(_ driver.Session, w *wrapped) { w.kill = func() {} })},
}

func spoiled(spoil func(s driver.Session, w *wrapped)) func(d *brokenDriver) {
	return func(d *brokenDriver) { d.spoil = spoil }
}

func timed(timeout func(time.Duration) time.Duration) func(d *brokenDriver) {
	return func(d *brokenDriver) {
		d.open = func(ctx context.Context, config driver.Config) (driver.Session, error) {
			config.SessionTimeout = timeout(config.SessionTimeout)
			return d.storeDriver.Open(ctx, config)
		}
	}
}

// TestDriverFindsWhatIsBroken: each test of the suite fails for a driver that breaks its promise.
func TestDriverFindsWhatIsBroken(t *testing.T) {
	tested := make(map[string]bool)
	for _, b := range brokenDrivers {
		tested[b.test] = true
		t.Run(b.test+"/"+strings.ReplaceAll(b.what, " ", "_"), func(t *testing.T) {
			t.Parallel()
			d := &brokenDriver{storeDriver: storeDriver{NewStore()}}
			b.broken(d)
			failures := record(t, b.test, d)
			assert.NotEmpty(t, failures)
			t.Log(failures)
		})
	}
	for _, test := range driverTests {
		assert.True(t, tested[test.name], "%s: no driver breaks it", test.name)
	}
}

// TestDriverFindsNothingElse: the wrapper alone breaks nothing.
func TestDriverFindsNothingElse(t *testing.T) {
	for _, test := range driverTests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := &brokenDriver{storeDriver: storeDriver{NewStore()}, spoil: func(driver.Session, *wrapped) {}}
			assert.Empty(t, record(t, test.name, d))
		})
	}
}
