// SPDX-License-Identifier: MIT

package leadertest

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oxygenhub/leader/driver"
)

func testInfo(p *place) {
	a, b := p.pair()
	if a.Info().Namespace == "" || a.Info().Place == "" {
		p.Errorf("Info: Namespace and Place must not be empty: %+v", a.Info())
	}
	if a.Info().Namespace != b.Info().Namespace {
		p.Errorf("Info: the default namespaces of two sessions differ: %q and %q", a.Info().Namespace, b.Info().Namespace)
	}
	if p.driver.Traits() != p.traits {
		p.Error("Traits: they have changed")
	}
}

func testOpenHeedsContext(p *place) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.within(p.soon, "Open with a context that has ended", func() {
		s, err := p.driver.Open(ctx, driver.Config{Node: "a", SessionTimeout: p.SessionTimeout})
		if err == nil {
			s.Kill()
			s.Close()
			p.Error("Open: a session in spite of a context that has ended")
		}
	})
}

func testExclude(p *place) {
	a, b := p.pair()
	p.try(a, []int64{7}, []int64{7})
	for range 3 {
		p.try(b, []int64{7}, nil)
	}
	p.unlock(a, []int64{7}, nil)
	p.try(b, []int64{7}, []int64{7})
	p.try(a, []int64{7}, nil)
	p.unlock(b, []int64{7}, nil)
}

func testEachKeyAlone(p *place) {
	a, b := p.pair()
	p.try(a, []int64{6, 2, 4}, []int64{2, 4, 6})
	p.try(b, []int64{1, 2, 3, 4, 5, 6}, []int64{1, 3, 5})
	p.try(a, []int64{1, 3, 5}, nil)
	p.try(a, nil, nil)
	p.unlock(a, []int64{2, 4}, nil)
	p.try(b, []int64{2, 4, 6}, []int64{2, 4})
	p.prove(a)
	p.prove(b)
}

// testNoStacking: a lock must not be counted, or one Unlock would not free it.
func testNoStacking(p *place) {
	a, b := p.pair()
	for range 5 {
		p.try(a, []int64{1}, []int64{1})
		p.prove(a)
		p.try(b, []int64{1}, nil)
		p.unlock(a, []int64{1}, nil)
		p.try(b, []int64{1}, []int64{1})
		p.unlock(b, []int64{1}, nil)
	}
}

func testUnlock(p *place) {
	a, b := p.pair()
	p.try(a, []int64{1, 2}, []int64{1, 2})
	p.try(b, []int64{3}, []int64{3})
	p.unlock(a, []int64{3, 1, 4}, []int64{3, 4}) // what is missed is no reason to keep the rest
	p.try(a, []int64{3}, nil)                    // held by b still
	p.prove(a)
	p.prove(b)
	p.try(b, []int64{1, 2}, []int64{1})
}

func testAnyKey(p *place) {
	a, b := p.pair()
	keys := []int64{math.MinInt64, math.MinInt64 + 1, -1 << 32, -1, 0, 1<<31 - 1, 1<<32 - 1, 1<<53 + 1, math.MaxInt64}
	for bit := range 63 { // whichever is dropped, one of these becomes 0
		keys = append(keys, 1<<bit)
	}
	p.try(a, keys, keys)
	p.try(b, keys, nil)
	p.prove(a)
	p.unlock(a, keys, nil)
	p.try(b, keys, keys)
}

func testManyKeys(p *place) {
	a, b := p.pair()
	keys := make([]int64, 3000)
	for i := range keys {
		keys[i] = rand.Int64()<<13 - int64(i) // each another
	}
	half := keys[:len(keys)/2]
	p.try(a, keys, keys)
	p.prove(a)
	p.try(b, keys, nil)
	p.unlock(a, half, nil)
	p.try(b, keys, half)
	p.prove(a)
	p.prove(b)
	holders, err := a.Holders(keys)
	if err != nil || len(holders) != len(keys) || holders[keys[0]].Node != "b" || holders[keys[len(keys)-1]].Node != "a" {
		p.Errorf("Holders: got %d holders of %d keys, %v", len(holders), len(keys), err)
	}
}

// testRace has several sessions ask for the same keys at the same time.
func testRace(p *place) {
	const rounds = 50
	keys := []int64{1, 2, 3}
	holders := make([]atomic.Int32, len(keys)+1)
	var wg sync.WaitGroup
	for range 4 {
		s := p.open("racer")
		wg.Go(func() { // rounds
			for range rounds {
				held, err := s.Try(keys)
				if err != nil {
					p.Errorf("Try: %v", err)
					return
				}
				for _, key := range held {
					if holders[key].Add(1) != 1 {
						p.Errorf("two sessions hold %d", key)
					}
				}
				time.Sleep(rand.N(time.Millisecond))
				for _, key := range held {
					holders[key].Add(-1)
				}
				if missing, err := s.Unlock(held); err != nil || len(missing) > 0 {
					p.Errorf("Unlock: missing %v, %v", missing, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func testProveAlive(p *place) {
	a := p.open("a")
	p.prove(a)
	p.try(a, []int64{1, 2}, []int64{1, 2})
	for range 3 {
		p.prove(a)
	}
	p.unlock(a, []int64{1}, nil)
	p.prove(a)
}

func testProveFindsLoss(p *place) {
	if p.Take == nil {
		p.Skip("no Controls.Take")
	}
	a, b := p.pair()
	p.try(a, []int64{1, 2, 3}, []int64{1, 2, 3})
	p.Take(p, a, 2)
	p.prove(a, 2)
	p.prove(a) // told once
	p.try(b, []int64{1, 2, 3}, []int64{2})
	p.unlock(b, []int64{2}, nil)
	p.try(a, []int64{2}, []int64{2})
	p.prove(a)
	p.Take(p, a, 3)
	p.unlock(a, []int64{3}, []int64{3})
	p.prove(a) // what was given back is not missed
}

func testHolders(p *place) {
	a, b := p.open("node a"), p.open("node b")
	p.try(a, []int64{1, math.MinInt64}, []int64{1, math.MinInt64})
	p.try(b, []int64{-2}, []int64{-2})
	want := map[int64]string{1: "node a", -2: "node b", math.MinInt64: "node a"}
	for _, s := range []driver.Session{a, b} {
		holders, err := s.Holders([]int64{1, -2, 3, math.MinInt64})
		if err != nil {
			p.Fatalf("Holders: %v", err)
		}
		if len(holders) != len(want) {
			p.Errorf("Holders: got %v", holders)
		}
		for key, node := range want {
			if holders[key].Node != node {
				p.Errorf("Holders: %d is held by %q, want %q", key, holders[key].Node, node)
			}
		}
	}
	p.unlock(a, []int64{1}, nil)
	if holders, err := b.Holders([]int64{1}); err != nil || len(holders) > 0 {
		p.Errorf("Holders of a free lock: got %v, %v", holders, err)
	}
}

// hear waits for n keys.
func (p *place) hear(s driver.Session, n int, limit time.Duration) (heard []int64) {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for len(heard) < n && ctx.Err() == nil {
		keys, err := s.Wait(ctx)
		if err != nil {
			p.Fatalf("Wait: %v", err)
		}
		if len(keys) == 0 && ctx.Err() == nil {
			p.Fatalf("Wait: it has ended without news, and before its context")
		}
		heard = append(heard, keys...)
	}
	return heard
}

func testTell(p *place) {
	a, b := p.pair()
	want := []int64{1, -1, math.MaxInt64, math.MinInt64}
	for key := range int64(500) {
		want = append(want, key+10)
	}
	p.within(aSecond, "Tell", func() {
		if err := a.Tell(want); err != nil {
			p.Errorf("Tell: %v", err)
		}
	})
	if !p.Deaf {
		p.same("Wait: heard", p.hear(b, len(want), p.soon), want)
	}
	const short = 50 * time.Millisecond
	p.same("Wait: heard twice", p.hear(b, 1, short), nil)
	p.same("Wait: heard by who has told", p.hear(a, 1, short), nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.within(p.soon, "Wait with a context that has ended", func() {
		if keys, err := a.Wait(ctx); len(keys) > 0 || err != nil {
			p.Errorf("Wait: got %v, %v, want nothing", keys, err)
		}
	})
}

// testWaitInterrupted is how a Leader uses Wait: it ends at any time, requests come in between, and nothing may get lost.
func testWaitInterrupted(p *place) {
	a, b := p.pair()
	const rounds = 300
	var told, heard []int64
	var teller sync.WaitGroup
	teller.Go(func() { // rounds
		for key := range int64(rounds) {
			time.Sleep(rand.N(time.Millisecond))
			if err := a.Tell([]int64{key}); err != nil {
				p.Errorf("Tell: %v", err)
				return
			}
			told = append(told, key)
		}
	})
	for i := range rounds {
		ctx, cancel := context.WithCancel(context.Background())
		timer := time.AfterFunc(rand.N(500*time.Microsecond), cancel)
		keys, err := b.Wait(ctx)
		timer.Stop()
		cancel()
		if err != nil {
			p.Errorf("Wait: %v", err)
			break
		}
		heard = append(heard, keys...)
		if i%4 == 0 {
			if _, err := b.Prove(); err != nil {
				p.Errorf("Prove: %v", err)
				break
			}
		}
	}
	teller.Wait()
	if p.Deaf {
		return
	}
	heard = append(heard, p.hear(b, len(told)-len(heard), p.soon)...)
	slices.Sort(heard)
	p.same("Wait: heard in all", slices.Compact(heard), told)
}
