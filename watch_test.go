// SPDX-License-Identifier: MIT

package leader

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWatchTellsInOrder(t *testing.T) { synctest.Test(t, testWatchTellsInOrder) }

func testWatchTellsInOrder(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, z := l.Watch(ctx), l.Watch(t.Context())
	j := &job{}
	c := goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Minute)
	cut := time.Now()
	b.session().terminate()
	time.Sleep(time.Minute)
	cancel()
	synctest.Wait()
	require.NoError(t, l.Resign(t.Context()))
	<-c.done
	var seen []Event
	for e := range z { // closed after Resign
		seen = append(seen, e)
	}
	var text []string
	for i, e := range seen {
		assert.EqualValues(t, i+1, e.Seq)
		if i > 0 {
			assert.False(t, e.Time.Before(seen[i-1].Time))
		}
		text = append(text, fmt.Sprintf("%s %s %d %v", e.Kind, e.Name, e.Generation, e.Err))
	}
	assert.Equal(t, []string{
		"connected  0 <nil>",
		"gained x 0 <nil>",
		"disconnected  0 fake: terminated by the server",
		"lost x 0 fake: terminated by the server",
		"connected  1 <nil>",
		"gained x 1 <nil>",
		"stopping x 1 leader: resigned",
		"released x 1 <nil>",
		"disconnected  1 <nil>",
	}, text)
	assert.Equal(t, cut, seen[2].Time)
	n := 0
	for range a { // closed when its ctx ended
		n++
	}
	assert.Equal(t, 6, n)
}

// Between the return of a task and the order to give its lock back there is a moment in which neither counts as its loss:
//
//	caller   its task has returned
//	loop     the session is over
//	caller   it asks to give the lock back
//
// How it ended is told all the same, once.
func TestWatchTellsOnceOfALossAtTheReturn(t *testing.T) {
	synctest.Test(t, testWatchTellsOnceOfALossAtTheReturn)
}

func testWatchTellsOnceOfALossAtTheReturn(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	lead(t, l, 1, 0)
	events := l.Watch(t.Context())
	c, err := l.enter(t.Context(), "x", false, obey)
	require.NoError(t, err)
	g, err := l.await(t.Context(), c)
	require.NoError(t, err)
	assert.Nil(t, l.finish(c, g, nil, nil, EndReturned, nil).lost)
	b.session().terminate()
	synctest.Wait()
	require.NoError(t, l.release(c))
	g.release()
	l.leave(c)
	assert.Equal(t, []EventKind{Gained, Released}, named(events, "x"))

	// Nobody knows in which order these three come: whatever it is, each run ends once.
	for range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		done := goTry(ctx, l, "x", obey)
		time.Sleep(time.Second)
		require.True(t, l.IsLeading("x"))
		go cancel()
		go b.session().terminate()
		<-done.done
		time.Sleep(10 * time.Second)
		ends := named(events, "x")
		require.Equal(t, 1, count(ends, Lost)+count(ends, Released), "%v", ends)
	}
}

// named drains the events that have been emitted so far, and returns the kinds of those of name.
func named(events <-chan Event, name string) (kinds []EventKind) {
	synctest.Wait()
	for {
		select {
		case e := <-events:
			if e.Name == name {
				kinds = append(kinds, e.Kind)
			}
		default:
			return kinds
		}
	}
}

// A doubt about the place is told with each session.
func TestWatchWarning(t *testing.T) {
	var out buffer
	l, err := New(SQLite(sqliteDB(t, ":memory:")), Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
	require.NoError(t, err)
	require.NoError(t, l.Run(t.Context(), "x", func(context.Context) error { return nil }))
	require.NoError(t, l.Resign(t.Context()))
	assert.Contains(t, out.lines()[0], `level=WARN msg="database session opened, with a warning"`)
	assert.Contains(t, out.lines()[0], errSQLiteMemory.Error())
}

func TestWatchOfADeadContext(t *testing.T) { synctest.Test(t, testWatchOfADeadContext) }

func testWatchOfADeadContext(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	_, open := <-l.Watch(doneContext())
	assert.False(t, open)
	l.mu.Lock()
	defer l.mu.Unlock()
	assert.Empty(t, l.hub.watchers)
}

// A reader who never reads costs a bounded backlog, delays nobody and sees a gap.
func TestWatchWithoutAReader(t *testing.T) { synctest.Test(t, testWatchWithoutAReader) }

func testWatchWithoutAReader(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	events := l.Watch(t.Context())
	began := time.Now()
	for range 1000 {
		require.NoError(t, l.Run(t.Context(), "x", func(context.Context) error { return nil }))
	}
	assert.Zero(t, time.Since(began))
	assert.Len(t, events, backlog)
	first, second := <-events, <-events
	assert.EqualValues(t, 1+2*1000-backlog+1, first.Seq)
	assert.Equal(t, first.Seq+1, second.Seq)
}

// handler is a slog.Handler that blocks while it is told to.
type handler struct {
	slog.Handler
	block chan struct{} // blocks until it is closed
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	<-h.block
	return h.Handler.Handle(ctx, r)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.block}
}

func TestLoopLoggerThatBlocks(t *testing.T) { synctest.Test(t, testLoopLoggerThatBlocks) }

func testLoopLoggerThatBlocks(t *testing.T) {
	st := newFakeStore()
	block := make(chan struct{})
	l, b := st.leader(t, Options{Logger: slog.New(&handler{slog.NewTextHandler(&buffer{}, nil), block})})
	j := &job{}
	c := goRun(t.Context(), l, "x", j.task)
	time.Sleep(time.Minute)
	for i := range 1000 {
		require.NoError(t, l.Run(t.Context(), fmt.Sprint(i), func(context.Context) error { return nil }))
	}
	time.Sleep(time.Hour)
	assert.Equal(t, 1, j.count())
	assert.InDelta(t, 1830, b.count(kindProve), 2)
	began := time.Now()
	require.NoError(t, l.Resign(t.Context()))
	assert.Equal(t, time.Second, time.Since(began))
	assert.True(t, c.returned())
	close(block)
}

// A handler that blocks costs one goroutine, however often the loop ends and starts meanwhile.
func TestLoopLoggerThatBlocksOverRestarts(t *testing.T) {
	synctest.Test(t, testLoopLoggerThatBlocksOverRestarts)
}

func testLoopLoggerThatBlocksOverRestarts(t *testing.T) {
	st := newFakeStore()
	block := make(chan struct{})
	var out buffer
	l, _ := st.leader(t, Options{Logger: slog.New(&handler{slog.NewTextHandler(&out, nil), block})})
	once := func() {
		require.NoError(t, l.Run(t.Context(), "x", func(context.Context) error { return nil }))
		time.Sleep(time.Minute)
	}
	once()
	for range 20 {
		once()
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	assert.Equal(t, 1, bytes.Count(stacks, []byte("startLogLocked.func1(")))
	close(block)
	synctest.Wait()
	assert.Len(t, out.lines(), 4, "of the first loop")
	once()
	lines := out.lines()
	require.Len(t, lines, 9)
	assert.Contains(t, lines[4], `"log events dropped" node=`)
	assert.Contains(t, lines[4], fmt.Sprintf("count=%d", 20*4))
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Split(strings.TrimSpace(b.buf.String()), "\n")
}

// An outage is told once for each kind of trouble, however the errors differ in numbers, and anew after it.
func TestWatchTroubles(t *testing.T) { synctest.Test(t, testWatchTroubles) }

func testWatchTroubles(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	fail := func(port int, text string) {
		st.set(func() { b.failures, b.dialErr = 1<<30, fmt.Errorf("127.0.0.1:%d: %s", port, text) })
		time.Sleep(time.Minute)
	}
	events := l.Watch(t.Context())
	st.set(func() { b.failures = 1 << 30 }) // before the first dial
	goRun(t.Context(), l, "x", obey)
	for port := range 5 {
		fail(port, "connection refused")
		fail(port, "password authentication failed")
	}
	for i := range 2 * mostTroubles {
		fail(1, strings.Repeat("x", 1+i))
	}
	assert.Equal(t, slices.Repeat([]EventKind{Unreachable}, mostTroubles), kinds(events))
	st.set(func() { b.failures = 0 })
	time.Sleep(time.Minute)
	fail(1, "connection refused")
	b.session().terminate()
	time.Sleep(time.Minute)
	assert.Equal(t, []EventKind{Connected, Gained, Disconnected, Lost, Unreachable}, kinds(events))
	require.ErrorContains(t, l.Status().Err, "connection refused")
}

// Too many connections, one of which is our own that is held open for a task, is no news.
func TestWatchFullServerWhileRetiring(t *testing.T) {
	synctest.Test(t, testWatchFullServerWhileRetiring)
}

func testWatchFullServerWhileRetiring(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	j := &job{drain: 3 * time.Second}
	goRun(t.Context(), l, "x", j.task)
	goRun(t.Context(), l, "y", obey)
	synctest.Wait()
	events := l.Watch(t.Context())
	st.set(func() { b.failures, b.dialErr = 1<<30, fmt.Errorf("connect: %w", &pgconn.PgError{Code: "53300"}) })
	b.session().cut(true, true)
	time.Sleep(l.opts.Lease + time.Second)
	require.Equal(t, 1, l.Status().Retired)
	require.ErrorContains(t, l.Status().Err, "53300")
	assert.Equal(t, []EventKind{Disconnected, Lost, Lost}, kinds(events))
	time.Sleep(time.Minute)
	assert.Equal(t, []EventKind{Unreachable}, kinds(events), "the task has returned, and it is full all the same")
	st.set(func() { b.failures = 0 })
}

// A standby tells once that it waits, and again after it has led.
func TestWatchStandby(t *testing.T) { synctest.Test(t, testWatchStandby) }

func testWatchStandby(t *testing.T) {
	st := newFakeStore()
	a, ab := st.leader(t, Options{})
	b, _ := st.leader(t, Options{})
	goRun(t.Context(), a, "x", obey)
	synctest.Wait()
	events := b.Watch(t.Context())
	goRun(t.Context(), b, "x", obey)
	time.Sleep(time.Hour)
	assert.Equal(t, []EventKind{Connected, Waiting}, kinds(events))
	goRun(t.Context(), b, "x", obey) // behind the first
	time.Sleep(time.Hour)
	ran, err := b.Try(t.Context(), "x", obey)
	require.NoError(t, err)
	assert.False(t, ran)
	assert.Empty(t, kinds(events))
	st.set(func() { ab.failures = 1 << 30 })
	ab.session().terminate()
	time.Sleep(time.Hour)
	st.set(func() { ab.failures = 0 })
	assert.Equal(t, []EventKind{Gained}, kinds(events))
	goRun(t.Context(), b, "x", obey)
	synctest.Wait()
	assert.Equal(t, []EventKind{Waiting}, kinds(events))
}
