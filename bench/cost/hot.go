// SPDX-License-Identifier: MIT

package cost

import (
	"context"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/bench/result"
	"github.com/oxygenhub/leader/leaderhttp"
	"github.com/oxygenhub/leader/leadertest"
)

// call is one on a hot path, done n times.
type call struct {
	peer, setting string
	times         func(n int)
}

// Hot is what the calls cost that a service makes all the time, beside the floor of each: a look at the clock, and a handler
// without a gate.
func Hot(ctx context.Context, c Config) ([]result.Row, error) {
	l, err := leader.New(leadertest.NewStore().Backend(), leader.Options{Terms: true})
	if err != nil {
		return nil, err
	}
	t := newTable("hot")
	err = inTask(ctx, l, func(ctx context.Context) error {
		// A service has a heap. In a small one, the collector would run all the time.
		heap := make([]byte, 64<<20)
		defer runtime.KeepAlive(heap)
		calls := hotCalls(ctx, l)
		for range c.few(15, 2) {
			for _, of := range calls {
				t.add(column{peer: of.peer, setting: of.setting, measure: "call", unit: "ns"}, of.nanoseconds(c.span(40*time.Millisecond, 5*time.Millisecond)))
			}
		}
		for _, of := range calls {
			allocs := testing.AllocsPerRun(1000, func() { of.times(1) })
			t.add(column{peer: of.peer, setting: of.setting, measure: "allocations", unit: "1"}, allocs)
		}
		return nil
	})
	return t.rows, err
}

// hotCalls are made in the task of "ledger", whose context is ctx.
func hotCalls(ctx context.Context, l *leader.Leader) []call {
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	request, cancel := context.WithCancel(context.WithoutCancel(ctx)) // as that of a server: it has an end
	context.AfterFunc(ctx, cancel)
	serve := func(h http.Handler) func(int) {
		r, err := http.NewRequestWithContext(request, http.MethodPost, "/", http.NoBody)
		w := &sink{make(http.Header)}
		return func(n int) {
			if err != nil {
				panic(err) // it is a constant
			}
			for range n {
				h.ServeHTTP(w, r)
			}
		}
	}
	return []call{
		{"time.Now", "", func(n int) {
			for range n {
				_ = time.Now()
			}
		}},
		{"IsLeading", "", func(n int) {
			for range n {
				_ = l.IsLeading("ledger")
			}
		}},
		{"Confirm", "", func(n int) {
			for range n {
				_ = leader.Confirm(ctx)
			}
		}},
		{"Join", "", func(n int) {
			for range n {
				_, _ = l.Join(request, "ledger")
			}
		}},
		{"handler", "bare", serve(bare)},
		{"handler", "leaderhttp.Gate", serve(leaderhttp.Gate(l, "ledger", bare, leaderhttp.GateOptions{}))},
	}
}

// sink is an answer to nobody.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

// nanoseconds is how long one call takes, of as many as fill about length.
func (of call) nanoseconds(length time.Duration) float64 {
	for n := 1000; ; n *= 4 {
		start := time.Now()
		of.times(n)
		if took := time.Since(start); took >= length {
			return float64(took.Nanoseconds()) / float64(n)
		}
	}
}
