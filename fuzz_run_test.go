// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// FuzzRun plays scripts of the state machine: three Leaders, one name, and what may happen to them in any order. Two bytes are a
// step: what happens, and to whom. After each step the world is compared with a small model of what DESIGN.md promises; at the end
// all is mended, and whoever waits must lead in turn. Nothing in it is random, so a script that fails can be kept.
func FuzzRun(f *testing.F) {
	for _, script := range fuzzSeeds() {
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 2*80 {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			w := newFuzzWorld(t)
			for i := 0; i+1 < len(script); i += 2 {
				w.step(script[i], script[i+1])
				w.look()
			}
			w.end()
		})
	})
}

// The steps.
const (
	fuzzRun = iota
	fuzzTry
	fuzzCancel
	fuzzResign
	fuzzTerminate
	fuzzCut
	fuzzJoin
	fuzzLate
	fuzzHang
	fuzzError
	fuzzSteal
	fuzzReturn
	fuzzSleep
	fuzzDoze
	fuzzReadOnly
	fuzzDial
	fuzzSteps
)

// fuzzSeeds are scripts of the faults that the machine was built against.
func fuzzSeeds() [][]byte {
	return [][]byte{
		{},
		{fuzzRun, 0, fuzzSleep, 9, fuzzReturn, 0},
		{fuzzRun, 0, fuzzRun, 1, fuzzSleep, 9, fuzzTerminate, 0, fuzzSleep, 9, fuzzReturn, 0, fuzzReturn, 1},    // a loss
		{fuzzRun, 0, fuzzRun, 1, fuzzSleep, 9, fuzzCut, 0, fuzzSleep, 255, fuzzSleep, 255, fuzzJoin, 0},         // a black hole
		{fuzzRun, 3, fuzzRun, 1, fuzzSleep, 9, fuzzCut, 0, fuzzSleep, 255, fuzzReturn, 0, fuzzJoin, 0},          // and a task that drains
		{fuzzRun, 3, fuzzRun, 1, fuzzSleep, 9, fuzzHang, 6, fuzzSleep, 80, fuzzSleep, 5, fuzzReturn, 0},         // given up, and held open
		{fuzzRun, 0, fuzzRun, 1, fuzzSleep, 9, fuzzLate, 60, fuzzSleep, 255, fuzzSleep, 255},                    // a late proof
		{fuzzRun, 0, fuzzLate, 61, fuzzCancel, 0, fuzzRun, 1, fuzzSleep, 255},                                   // a grant that nobody wants
		{fuzzRun, 6, fuzzRun, 1, fuzzSleep, 9, fuzzReturn, 0, fuzzSleep, 20, fuzzError, 9, fuzzReturn, 1},       // a panic, a failed unlock
		{fuzzRun, 0, fuzzRun, 0, fuzzTry, 0, fuzzTry, 1, fuzzSleep, 9, fuzzResign, 0, fuzzRun, 0, fuzzSleep, 9}, // resign
		{fuzzRun, 0, fuzzSleep, 9, fuzzSteal, 0, fuzzRun, 1, fuzzSleep, 60, fuzzCancel, 0, fuzzCancel, 1},       // one lock lost
		{fuzzRun, 0, fuzzRun, 1, fuzzRun, 2, fuzzSleep, 9, fuzzReadOnly, 0, fuzzSleep, 90, fuzzReadOnly, 0},
		{fuzzRun, 48, fuzzHang, 88, fuzzRun, 49, fuzzSteal, 49, fuzzJoin, 48}, // stolen before the task began
		{fuzzTry, 0, fuzzTry, 1, fuzzTry, 2, fuzzSleep, 1, fuzzHang, 4, fuzzSleep, 255, fuzzDial, 2, fuzzTerminate, 1},
		{fuzzRun, 3, fuzzSleep, 9, fuzzTerminate, 0, fuzzResign, 0, fuzzSleep, 9, fuzzReturn, 0}, // loss, then Resign, then the return
	}
}

// How a task of a script behaves: it always waits until it is let go by a step, or, if it heeds its context, for the end of that.
const (
	fuzzNil = iota
	fuzzErr
	fuzzPanic
	fuzzGoexit
	fuzzKinds
)

var errFuzz = errors.New("the task's own error")

// fuzzCall is one Run or Try, and what the model knows of it.
type fuzzCall struct {
	node   int
	once   bool
	kind   int  // what its task does in the end
	heeds  bool // its task ends with its context
	cancel context.CancelFunc
	ctx    context.Context //nolint:containedctx // of the call

	done     chan struct{}
	ran      bool
	err      error
	panicked any

	mu      sync.Mutex
	task    context.Context //nolint:containedctx // of the run that goes on; nil when none does
	session *fakeSession    // of that run
	letGo   chan struct{}   // closed to let it return
	runs    int
	alone   bool  // the last run returned without having been told to
	cause   error // of the last run that was told to stop
	checked bool
}

type fuzzWorld struct {
	t        *testing.T
	st       *fakeStore
	leaders  []*Leader
	backends []*fakeBackend
	resigns  []chan struct{} // closed when the Resign of a Leader has returned; nil before it was called
	calls    []*fuzzCall
	began    time.Time
	stolen   map[*fakeSession]bool // whose lock was taken away behind their back
	term     atomic.Int64          // of the last task that began
}

func newFuzzWorld(t *testing.T) *fuzzWorld {
	t.Helper()
	w := &fuzzWorld{t: t, st: newFakeStore(), began: time.Now(), stolen: make(map[*fakeSession]bool)}
	for i := range 3 {
		l, b := w.st.leader(t, Options{Node: fmt.Sprint(i), Terms: true, Disconnect: i == 2})
		w.leaders, w.backends, w.resigns = append(w.leaders, l), append(w.backends, b), append(w.resigns, nil)
	}
	return w
}

// step has one thing happen.
func (w *fuzzWorld) step(what, arg byte) {
	w.t.Logf("%v: step %d, %d", time.Since(w.began), what%fuzzSteps, arg) // shown for a script that fails
	node := int(arg) % 3
	b := w.backends[node]
	s := b.session()
	kinds := []string{kindTry, kindUnlock, kindProve, kindTell, kindTerms}
	kind := kinds[int(arg/3)%len(kinds)]
	late := time.Duration(arg/15) * 500 * time.Millisecond
	switch what % fuzzSteps {
	case fuzzRun, fuzzTry:
		w.call(node, what%fuzzSteps == fuzzTry, int(arg/3))
	case fuzzCancel:
		if len(w.calls) > 0 {
			w.calls[int(arg)%len(w.calls)].cancel()
		}
	case fuzzResign:
		w.resign(node)
	case fuzzReturn:
		if len(w.calls) > 0 {
			w.calls[int(arg)%len(w.calls)].let()
		}
	case fuzzSleep:
		time.Sleep(time.Duration(arg) * 100 * time.Millisecond)
	case fuzzDoze:
		time.Sleep(time.Duration(arg) * time.Millisecond)
	case fuzzReadOnly:
		w.st.set(func() { w.st.readOnly = !w.st.readOnly })
	case fuzzDial:
		w.st.set(func() { b.failures = int(arg / 3 % 4) })
	case fuzzJoin:
		w.st.set(w.joinLocked)
	case fuzzTerminate, fuzzCut, fuzzSteal:
		if s != nil {
			w.harm(s, what%fuzzSteps, arg)
		}
	case fuzzLate:
		b.fault(kind, fakeFault{delay: late})
	case fuzzHang:
		b.fault(kind, fakeFault{hang: true})
	case fuzzError:
		b.fault(kind, fakeFault{err: errFakeSoft})
	}
	synctest.Wait()
}

func (w *fuzzWorld) harm(s *fakeSession, what, arg byte) {
	switch what {
	case fuzzTerminate:
		s.terminate()
	case fuzzCut:
		s.cut(arg/3%3 != 1, arg/3%3 != 2)
	case fuzzSteal:
		if w.st.holder("x") == s {
			w.stolen[s] = true
			s.steal("x")
		}
	}
}

func (w *fuzzWorld) joinLocked() {
	for _, s := range w.st.sessions {
		s.dark, s.mute = false, false
	}
}

// call calls Run or Try.
func (w *fuzzWorld) call(node int, once bool, how int) {
	if len(w.calls) >= 12 {
		return
	}
	c := &fuzzCall{node: node, once: once, kind: how / 2 % fuzzKinds, heeds: how%2 == 0, done: make(chan struct{}), letGo: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	w.calls = append(w.calls, c)
	l, resigned := w.leaders[node], w.resigns[node] != nil
	go func() { // ends with the call, which end waits for
		defer close(c.done)
		defer func() { c.panicked = recover() }()
		c.err = errGoexit // unless it returns
		if once {
			ran, err := l.Try(c.ctx, "x", w.task(c))
			c.ran, c.err = ran, err
		} else {
			c.err = l.Run(c.ctx, "x", w.task(c))
		}
	}()
	synctest.Wait()
	if resigned {
		assert.True(w.t, c.returned(), "a call after Resign goes on")
		assert.ErrorIs(w.t, c.err, ErrResigned)
	}
}

var errGoexit = errors.New("the goroutine has ended")

func (c *fuzzCall) returned() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// let lets the task return.
func (c *fuzzCall) let() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.task != nil {
		close(c.letGo)
		c.letGo = make(chan struct{})
	}
}

// task is one that does as the script says. It sees itself that it is never run twice at once in one call.
func (w *fuzzWorld) task(c *fuzzCall) func(context.Context) error {
	return func(ctx context.Context) error {
		term, _ := TermOf(ctx)
		assert.Greater(w.t, int64(term), w.term.Swap(int64(term)), "the term of a task is not higher than that of the last one")
		c.mu.Lock()
		assert.Nil(w.t, c.task, "two runs of one call")
		c.task, c.session = ctx, grantOf(ctx).worker.session.(*fakeSession)
		c.runs++
		letGo := c.letGo
		c.mu.Unlock()
		done := ctx.Done()
		if !c.heeds {
			done = nil
		}
		select {
		case <-letGo:
		case <-done:
		}
		c.mu.Lock()
		c.alone, c.cause = ctx.Err() == nil, context.Cause(ctx)
		c.task, c.session = nil, nil
		c.mu.Unlock()
		switch c.kind {
		case fuzzErr:
			return errFuzz
		case fuzzPanic:
			panic(errFuzz)
		case fuzzGoexit:
			runtime.Goexit()
		}
		return nil
	}
}

// resign has a Leader resign, once.
func (w *fuzzWorld) resign(node int) {
	if w.resigns[node] != nil {
		return
	}
	done := make(chan struct{})
	w.resigns[node] = done
	go func() { // ends when the last task has returned, which end sees to
		defer close(done)
		_ = w.leaders[node].Resign(context.Background())
	}()
}
