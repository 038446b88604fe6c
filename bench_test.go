// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// benchLeader leads "x" in memory, on the real clock, and returns its task's context.
func benchLeader(b *testing.B) (*Leader, context.Context) {
	b.Helper()
	return benchLeaderIn(b, newFakeStore())
}

// benchMember is a process that has Terms and has not asked for anything.
func benchMember(b *testing.B, st *fakeStore, addr string) *Leader {
	b.Helper()
	backend := &fakeBackend{store: st, faults: make(map[string][]fakeFault), counts: make(map[string]int)}
	l, err := New(backend, Options{Terms: true, Addr: addr, Retry: 100 * time.Millisecond})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, l.Resign(context.Background())) })
	return l
}

func benchLeaderIn(b *testing.B, st *fakeStore) (*Leader, context.Context) {
	b.Helper()
	l := benchMember(b, st, "leader:80")
	started := make(chan context.Context)
	go func() {
		_ = l.Run(context.Background(), "x", func(ctx context.Context) error {
			started <- ctx
			<-ctx.Done()
			return nil
		})
	}()
	return l, <-started
}

func BenchmarkIsLeading(b *testing.B) {
	l, _ := benchLeader(b)
	name := strings.Clone("x") // not a constant
	b.ReportAllocs()
	for b.Loop() {
		if !l.IsLeading(name) {
			b.Fatal("it does not lead")
		}
	}
}

func BenchmarkIsLeadingParallel(b *testing.B) {
	l, _ := benchLeader(b)
	name := strings.Clone("x") // not a constant
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if !l.IsLeading(name) {
				b.Error("it does not lead")
			}
		}
	})
}

func BenchmarkConfirm(b *testing.B) {
	_, ctx := benchLeader(b)
	b.ReportAllocs()
	for b.Loop() {
		if Confirm(ctx) != nil {
			b.Fatal("it does not lead")
		}
	}
}

func BenchmarkDeadline(b *testing.B) {
	_, ctx := benchLeader(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := Deadline(ctx); !ok {
			b.Fatal("it does not lead")
		}
	}
}

func BenchmarkTermOf(b *testing.B) {
	_, ctx := benchLeader(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := TermOf(ctx); !ok {
			b.Fatal("it has no term")
		}
	}
}

// BenchmarkJoin is what a gate does with a request first.
func BenchmarkJoin(b *testing.B) {
	l, ctx := benchLeader(b)
	for _, name := range []string{"x", "y"} {
		leads := name == "x"
		b.Run(fmt.Sprintf("leads=%v", leads), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := l.Join(ctx, name); ok != leads {
					b.Fatal("it does not know what it leads")
				}
			}
		})
	}
}

// BenchmarkKnown is what a gate asks where another process leads, and what a page asks of all names.
func BenchmarkKnown(b *testing.B) {
	st := newFakeStore()
	benchLeaderIn(b, st)
	standby := benchMember(b, st, "standby:80")
	require.Eventually(b, func() bool {
		h, _ := standby.Elsewhere("x")
		return h.Held
	}, time.Minute, time.Millisecond)
	for _, ask := range []struct {
		name string
		held func() bool
	}{
		{"elsewhere", func() bool { h, _ := standby.Elsewhere("x"); return h.Held }},
		{"one", func() bool { return standby.Known("x").Holders[0].Held }},
		{"all", func() bool { return standby.Known().Holders[0].Held }},
	} {
		b.Run("ask="+ask.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !ask.held() {
					b.Fatal("it does not know who leads")
				}
			}
		})
	}
}

// BenchmarkTimeNow is the floor of those that look at the clocks: each does so once.
func BenchmarkTimeNow(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = time.Now()
	}
}

func BenchmarkKey(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Key("public", "invoices.nightly")
	}
}

// A gate asks per request: it must not allocate.
func TestIsLeadingDoesNotAllocate(t *testing.T) { synctest.Test(t, testIsLeadingDoesNotAllocate) }

func testIsLeadingDoesNotAllocate(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	j := &job{}
	name := strings.Clone("x") // not a constant
	goRun(t.Context(), l, name, j.task)
	synctest.Wait()
	ctx := j.run(0).ctx
	require.Zero(t, testing.AllocsPerRun(1000, func() { l.IsLeading(name) }))
	require.Zero(t, testing.AllocsPerRun(1000, func() { _ = Confirm(ctx) }))
	require.Zero(t, testing.AllocsPerRun(1000, func() { _, _ = l.Join(ctx, name) }))
}

// A name costs at most 8 KiB, waiting and leading, the stack of its caller included.
func TestLoopMemoryPerName(t *testing.T) { synctest.Test(t, testLoopMemoryPerName) }

func testLoopMemoryPerName(t *testing.T) {
	const names, most = 5000, 8 << 10
	st := newFakeStore()
	other, _ := st.leader(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	tasks := make([]string, names)
	for i := range tasks {
		tasks[i] = fmt.Sprint(i)
	}
	for _, name := range tasks {
		goRun(ctx, other, name, obey)
	}
	time.Sleep(time.Minute)
	l, _ := st.leader(t, Options{})
	heap0, stack0 := memory()
	for _, name := range tasks {
		go func() { _ = l.Run(t.Context(), name, obey) }()
	}
	time.Sleep(time.Minute)
	heap1, stack1 := memory()
	cancel()
	time.Sleep(time.Minute)
	synctest.Wait()
	require.Len(t, l.Leading(), names)
	require.NoError(t, other.Resign(t.Context()))
	synctest.Wait()
	heap2, stack2 := memory()
	t.Logf("waiting: %d B heap and %d B stack per name", (heap1-heap0)/names, (stack1-stack0)/names)
	assert.LessOrEqual(t, (heap1-heap0+stack1-stack0)/names, most)
	// Leading, measured by letting it all go.
	require.NoError(t, l.Resign(t.Context()))
	synctest.Wait()
	heap3, stack3 := memory()
	t.Logf("leading: %d B heap and %d B stack per name", (heap2-heap3)/names, (stack2-stack3)/names)
	assert.LessOrEqual(t, (heap2-heap3+max(stack2-stack3, stack1-stack0))/names, most)
}

// memory returns what is in use after a collection.
func memory() (heap, stack int) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc), int(m.StackInuse)
}
