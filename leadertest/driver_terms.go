// SPDX-License-Identifier: MIT

package leadertest

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/driver"
)

func (p *place) terms() (driver.Terms, context.Context) {
	p.Helper()
	terms, keeps := p.driver.(driver.Terms)
	if !keeps {
		p.Skip("the driver is no driver.Terms")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*p.soon)
	p.Cleanup(cancel)
	return terms, ctx
}

// others are the terms as another process sees them.
func (p *place) others() driver.Terms {
	p.Helper()
	terms, keeps := p.other.(driver.Terms)
	if !keeps {
		p.Fatalf("Controls.Another: a driver that keeps no terms")
	}
	return terms
}

// swap stores next if the number is last, and wants to be told whether it was.
func (p *place) swap(ctx context.Context, terms driver.Terms, key, last int64, next driver.Term, want bool) {
	p.Helper()
	if swapped, err := terms.SwapTerm(ctx, key, last, next); err != nil || swapped != want {
		p.Fatalf("SwapTerm of %d to %d: got %v, %v, want %v", last, next.Number, swapped, err, want)
	}
}

// termKey is the key of the records of testTerms.
const termKey = math.MinInt64

// record wants the record of termKey to be want, with nil for keys and with the key itself.
func (p *place) record(ctx context.Context, want driver.Term) {
	p.Helper()
	for _, keys := range [][]int64{nil, {termKey, 12345}} {
		found, err := p.others().ReadTerms(ctx, want.Namespace, keys)
		if err != nil {
			p.Fatalf("ReadTerms: %v", err)
		}
		got, ok := found[termKey]
		if !ok || len(found) != 1 {
			p.Fatalf("ReadTerms(%v): got %v, want one record", keys, found)
		}
		near := func(a, b time.Time) bool {
			return a.IsZero() == b.IsZero() && (a.IsZero() || a.Sub(b).Abs() < 2*time.Millisecond)
		}
		if !near(got.Taken, want.Taken) || !near(got.Released, want.Released) {
			p.Errorf("ReadTerms: the times differ: got %+v, want %+v", got, want)
		}
		got.Taken, got.Released = want.Taken, want.Released
		if got != want {
			p.Errorf("ReadTerms: got %+v, want %+v", got, want)
		}
	}
}

func testTerms(p *place) {
	terms, ctx := p.terms()
	first := driver.Term{
		Namespace: "n", Name: "a name: \u00e9 '\"\\ %", Number: 1 << 41, Node: "node", Addr: "addr", PID: math.MaxUint32, Taken: time.Now(),
	}
	if found, err := terms.ReadTerms(ctx, "n", nil); err != nil || len(found) > 0 {
		p.Fatalf("ReadTerms: got %v, %v, want nothing", found, err)
	}
	p.swap(ctx, terms, termKey, 7, first, false) // there is none with that number
	p.swap(ctx, terms, termKey, 0, first, true)
	p.record(ctx, first)
	p.swap(ctx, terms, termKey, 0, driver.Term{Namespace: "n", Name: "x", Number: 3}, false) // there is one
	p.swap(ctx, terms, termKey, first.Number-1, driver.Term{Namespace: "n", Name: "x", Number: first.Number + 5}, false)
	p.record(ctx, first)
	ended := first
	ended.Released, ended.Ended = time.Now(), "resigned"
	p.swap(ctx, terms, termKey, first.Number, ended, true) // of the same number: the mark of its end
	p.record(ctx, ended)
	next := first
	next.Number, next.Node, next.Ended = math.MaxInt64, "other", "died"
	p.swap(ctx, terms, termKey, first.Number, next, true)
	p.record(ctx, next)
	other := first
	other.Namespace, other.Name = "m", "y"
	p.swap(ctx, terms, 5, 0, other, true)
	p.record(ctx, next) // not those of other namespaces
}

// testTermsRace has several processes begin the same term: one wins.
func testTermsRace(p *place) {
	terms, ctx := p.terms()
	for last := range int64(20) {
		var won atomic.Int32
		var wg sync.WaitGroup
		for _, terms := range []driver.Terms{terms, p.others(), terms, p.others()} {
			wg.Go(func() { // one swap
				swapped, err := terms.SwapTerm(ctx, 1, last, driver.Term{Namespace: "n", Name: "x", Number: last + 1, Taken: time.Now()})
				if err != nil {
					p.Errorf("SwapTerm: %v", err)
				}
				if swapped {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			p.Fatalf("SwapTerm: %d of 4 swaps of the same number won, want 1", won.Load())
		}
	}
}

// testLeaders runs Leaders on the driver: they take over from each other, after a release and after a loss, and never overlap.
func testLeaders(p *place) {
	opts := leader.Options{SessionTimeout: p.SessionTimeout, Lease: p.SessionTimeout / 2, Check: p.SessionTimeout / 8, Retry: p.SessionTimeout / 16}
	_, opts.Terms = p.driver.(driver.Terms)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tasks := make(chan context.Context)
	release := make(chan struct{})
	var running atomic.Int32
	var wg sync.WaitGroup
	leaders := make(map[string]*leader.Leader)
	for node, d := range map[string]driver.Driver{"a": p.driver, "b": p.other} {
		opts.Node = node
		l, err := leader.New(leader.Driver(d), opts)
		if err != nil {
			p.Fatal(err)
		}
		leaders[node] = l
		wg.Go(func() { // until ctx ends, or the first release by this node
			err := l.Run(ctx, "x", func(ctx context.Context) error {
				if running.Add(1) != 1 {
					p.Error("two tasks run")
				}
				defer running.Add(-1)
				select {
				case tasks <- context.WithValue(ctx, nodeKey{}, node):
				case <-ctx.Done():
					return nil
				}
				select {
				case <-release:
				case <-ctx.Done():
				}
				return nil
			})
			if err != nil && !errors.Is(err, context.Canceled) {
				p.Errorf("Run: %v", err)
			}
		})
	}
	p.handOver(leaders, tasks, release, opts.Terms)
	cancel()
	wg.Wait()
	for _, l := range leaders {
		if err := l.Resign(context.Background()); err != nil {
			p.Errorf("Resign: %v", err)
		}
	}
}

type nodeKey struct{}

// handOver sees one release and one death.
func (p *place) handOver(leaders map[string]*leader.Leader, tasks chan context.Context, release chan struct{}, numbered bool) {
	p.Helper()
	next := func() (task context.Context, node string) {
		p.Helper()
		late := time.NewTimer(3*p.SessionTimeout + p.soon)
		defer late.Stop()
		select {
		case task = <-tasks:
			node, _ = task.Value(nodeKey{}).(string)
			return task, node
		case <-late.C:
			p.Errorf("nobody leads")
			return context.Background(), ""
		}
	}
	first, node := next()
	if node == "" {
		return
	}
	term, ok := leader.TermOf(first)
	if ok != numbered {
		p.Errorf("TermOf: got %v, want %v", ok, numbered)
	}
	time.Sleep(p.SessionTimeout / 4) // in which the other one asks several times, in vain
	select {
	case release <- struct{}{}:
	case <-first.Done():
		p.Errorf("the first task was told to stop: %v", context.Cause(first))
		return
	}
	second, other := next()
	if other == "" {
		return
	}
	if node == other {
		p.Errorf("%s leads again, which has returned", other)
	}
	if later, _ := leader.TermOf(second); numbered && later <= term {
		p.Errorf("the term %d follows on %d", later, term)
	}
	Kill(p, leaders[other])
	<-second.Done()
	if !errors.Is(context.Cause(second), leader.ErrLost) {
		p.Errorf("the cause of the end of a task that was lost: %v", context.Cause(second))
	}
	if _, again := next(); again != "" && again != other {
		p.Errorf("%s leads, which has returned", again)
	}
}
