// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLoopRandom has three Leaders contend for three names while everything goes wrong, and looks at what must hold all the
// same. It has been seen to catch: a session closed beside a task that still runs, also by the wall clock or a lease too
// early; a lease that counts from the answer; a lock given back before its task has returned; a grant kept that nobody wants;
// a task that is not told of its loss. LEADER_TEST_SEEDS says how many schedules to try, LEADER_TEST_SEED which one: the choices are the same then, though
// not the order in which goroutines make them.
func TestLoopRandom(t *testing.T) {
	seeds := 150
	if n, err := strconv.Atoi(os.Getenv("LEADER_TEST_SEEDS")); err == nil {
		seeds = n
	}
	seed, err := strconv.ParseUint(os.Getenv("LEADER_TEST_SEED"), 10, 64)
	for range seeds {
		if err != nil {
			seed = rand.Uint64()
		}
		synctest.Test(t, func(t *testing.T) {
			w := &randomWorld{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), st: newFakeStore(), running: make(map[*randomRun]struct{})}
			w.test()
		})
		if t.Failed() {
			return
		}
	}
}

const (
	randomChaos = time.Minute
	randomDrain = 3900 * time.Millisecond // less than SessionTimeout - Lease
	// randomCalm is in what time every name leads again: a task drains, SessionTimeout, a dial that hangs, its back-off, and
	// a Retry that slow tries have stretched.
	randomCalm = randomDrain + 10*time.Second + 6*time.Second + 5*time.Second + 12*time.Second
)

var randomNames = []string{"a", "b", "c"}

type randomWorld struct {
	t        *testing.T
	seed     uint64
	st       *fakeStore
	leaders  []*Leader
	backends []*fakeBackend
	callers  sync.WaitGroup

	mu       sync.Mutex
	rng      *rand.Rand
	running  map[*randomRun]struct{}
	era      context.Context //nolint:containedctx // of all calls; ends with the faults
	end      context.CancelFunc
	calm     bool // no more faults; tasks do as they are told
	resigned *Leader
	log      []string
}

// randomRun is one run of a task.
type randomRun struct {
	name    string
	node    int
	ctx     context.Context //nolint:containedctx // of the task
	session *fakeSession
	stolen  bool // its lock was taken away at the server
}

func (w *randomWorld) intn(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

func (w *randomWorld) duration(most time.Duration) time.Duration {
	return time.Duration(w.intn(int(most)))
}

func (w *randomWorld) test() {
	w.era, w.end = context.WithCancel(context.Background())
	for i := range 3 {
		l, b := w.st.leader(w.t, Options{Node: fmt.Sprint(i), StopTimeout: 2 * time.Second, Disconnect: (w.seed+uint64(i))%4 == 0})
		b.durable = w.seed%5 == 0
		w.leaders, w.backends = append(w.leaders, l), append(w.backends, b)
	}
	for i := range w.leaders {
		for _, name := range randomNames {
			w.callers.Go(func() { w.call(i, name) })
		}
	}
	for end := time.Now().Add(randomChaos); time.Now().Before(end); {
		time.Sleep(w.duration(2 * time.Second))
		w.fault()
		w.look()
	}
	w.heal()
	w.recover()
	for _, l := range w.leaders {
		require.NoError(w.t, l.Resign(context.Background()))
	}
	w.callers.Wait()
	synctest.Wait()
	assert.Zero(w.t, w.st.held())
	for _, l := range w.leaders {
		l.mu.Lock()
		assert.Empty(w.t, l.slots)
		assert.Empty(w.t, l.retired)
		for _, f := range l.posted { // by workers whose statements took longer than Resign waits for one that hangs
			f()
		}
		assert.Zero(w.t, l.candidates+l.inside+l.workers)
		assert.Nil(w.t, l.running)
		l.mu.Unlock()
	}
	if w.t.Failed() {
		w.t.Logf("LEADER_TEST_SEED=%d", w.seed)
		for _, line := range w.log {
			w.t.Log(line)
		}
	}
}

// note writes down what happens, for a schedule that fails.
func (w *randomWorld) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

// call calls Run or Try of name again and again, until its Leader has resigned.
func (w *randomWorld) call(node int, name string) {
	for err := error(nil); !errors.Is(err, ErrResigned); {
		w.mu.Lock()
		era, calm := w.era, w.calm
		w.mu.Unlock()
		ctx, cancel := context.WithCancel(era)
		if w.intn(3) == 0 && !calm {
			ctx, cancel = context.WithTimeout(era, 1+w.duration(20*time.Second))
		}
		c, try := &call{done: make(chan struct{})}, w.intn(4) == 0 && !calm
		go func() { // a goroutine of its own, which the task may end
			defer close(c.done)
			defer func() { _ = recover() }()
			if try {
				c.ran, c.err = w.leaders[node].Try(ctx, name, w.task(node, name))
			} else {
				c.err = w.leaders[node].Run(ctx, name, w.task(node, name))
			}
		}()
		<-c.done
		if err = c.err; err != nil && !errors.Is(err, errTask) && !errors.Is(err, ErrResigned) && ctx.Err() == nil {
			assert.True(w.t, try && (errors.Is(err, ErrLost) || errors.Is(err, ErrHandOver)), "an error out of nowhere: %v", err)
		}
		cancel()
		time.Sleep(w.duration(2 * time.Second))
	}
}

// task returns one that does as it likes until all is calm.
func (w *randomWorld) task(node int, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		r := &randomRun{name: name, node: node, ctx: ctx, session: grantOf(ctx).worker.session.(*fakeSession)}
		w.begin(r)
		defer w.finish(r)
		kind, drain := w.intn(8), w.duration(randomDrain)
		alone := time.NewTimer(time.Hour)
		if w.mu.Lock(); !w.calm {
			alone.Reset(time.Duration(w.rng.IntN(int(20 * time.Second))))
		}
		w.mu.Unlock()
		defer alone.Stop()
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), ErrLost) && Confirm(ctx) == nil {
				w.t.Error("it leads after the loss")
			}
			time.Sleep(drain)
		case <-alone.C:
		}
		switch kind {
		case 0:
			return errTask
		case 1:
			panic(errTask)
		case 2:
			runtime.Goexit()
		case 3:
			return ctx.Err()
		}
		return nil
	}
}

// begin sees that nobody else runs the task, unless the server itself has taken the lock away.
func (w *randomWorld) begin(r *randomRun) {
	w.note("%d runs %s on session %d", r.node, r.name, r.session.pid)
	w.mu.Lock()
	defer w.mu.Unlock()
	for other := range w.running {
		if other.name == r.name && !other.excused() && !r.excused() { // r: if the end is still on its way behind the answer
			how, when := other.session.end()
			w.t.Errorf("%s runs on %d and %d; the session of the first ended by %q %v ago", r.name, other.node, r.node, how, time.Since(when))
		}
	}
	w.running[r] = struct{}{}
}

func (w *randomWorld) finish(r *randomRun) {
	w.note("%d does not run %s any more", r.node, r.name)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, r)
}

// excused tells whether the server has given the lock of r away before its task could know.
func (r *randomRun) excused() bool {
	how, _ := r.session.end()
	return how == "server" || r.stolen
}

// look sees that whoever is sure to lead holds the lock, unless the link hides from him that he does not.
func (w *randomWorld) look() {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.st.mu.Lock()
	defer w.st.mu.Unlock()
	for r := range w.running {
		sure := Confirm(r.ctx) == nil
		if leads := w.leaders[r.node].IsLeading(r.name); leads && !sure {
			w.t.Errorf("%d leads %s and is not sure", r.node, r.name)
		}
		hidden := r.stolen || r.session.hidden()
		if sure && !hidden && w.st.locks[Key("test", r.name)] != r.session {
			w.t.Errorf("%d is sure to lead %s and does not hold it", r.node, r.name)
		}
	}
}

// hidden tells whether the server has ended s and the link, or the answer that comes before, keeps that from the client.
func (s *fakeSession) hidden() bool {
	return s.how == "server" && (s.dark || s.mute || s.asking) && time.Since(s.when) < 6*time.Second
}

// fault is one thing that goes wrong.
func (w *randomWorld) fault() {
	i := w.intn(len(w.leaders))
	l, b := w.leaders[i], w.backends[i]
	s := b.session()
	if s == nil {
		return
	}
	kind := []string{kindTry, kindUnlock, kindTell, kindProve, kindProve, kindHolders}[w.intn(6)]
	what := w.intn(18)
	if b.durable && slices.Contains([]int{0, 1, 3, 16}, what) {
		return // there is no link between a process and its kernel, which does not end a session either
	}
	w.note("%d on session %d: fault %d (%s)", i, s.pid, what, kind)
	switch what {
	case 0:
		s.terminate()
	case 1:
		s.cut(w.intn(2) == 0, w.intn(2) == 0)
	case 2:
		w.st.set(w.joinLocked)
	case 3:
		b.fault(kind, fakeFault{hang: true})
	case 4:
		b.fault(kind, fakeFault{delay: w.duration(8 * time.Second)})
	case 5:
		b.fault(kind, fakeFault{err: errFakeSoft, first: w.intn(3)})
	case 6:
		b.fault(kind, fakeFault{err: &sessionError{err: errFakeSoft}, delay: w.duration(time.Second)})
	case 7:
		w.st.set(func() { b.failures = 1 + w.intn(4) })
	case 8:
		w.st.set(func() { b.dialHang, b.dialTime = w.intn(4) == 0, w.duration(3*time.Second) })
	case 9:
		w.st.set(func() { b.lag = w.duration(time.Second); s.lag = b.lag })
	case 10:
		w.st.set(func() { w.st.readOnly = true })
		time.AfterFunc(w.duration(8*time.Second), func() { w.st.set(func() { w.st.readOnly = false }) })
	case 11:
		w.st.set(func() { w.st.capacity = 1 + w.intn(2) })
		time.AfterFunc(w.duration(8*time.Second), func() { w.st.set(func() { w.st.capacity = 0 }) })
	case 12:
		l.clock.skew.Add(int64(w.duration(20*time.Second)) - int64(10*time.Second))
	case 13:
		l.clock.skew.Add(int64(w.duration(2*time.Hour)) - int64(time.Hour))
	case 14:
		w.steal(s)
	case 15:
		w.resign(l)
	case 16: // a late answer is the last that gets through
		b.fault(kindProve, fakeFault{delay: w.duration(6 * time.Second)})
		time.AfterFunc(3*time.Second, func() { w.cut(s) })
	case 17:
		s.plead(randomNames[w.intn(len(randomNames))])
	}
}

// cut has nothing get through to the server any more, unless all has become well meanwhile.
func (w *randomWorld) cut(s *fakeSession) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.calm {
		s.cut(true, false)
	}
}

// steal takes a lock from a session behind its back.
func (w *randomWorld) steal(s *fakeSession) {
	name := randomNames[w.intn(len(randomNames))]
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.running {
		if r.session == s && r.name == name && w.st.holder(name) == s {
			r.stolen = true
			s.steal(name)
		}
	}
}

// resign has one of the Leaders resign, once, and asks about a name on the way.
func (w *randomWorld) resign(l *Leader) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.callers.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = l.Holder(ctx, "a")
	})
	if w.resigned != nil || w.rng.IntN(3) > 0 {
		return
	}
	w.resigned = l
	w.callers.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(w.t, l.Resign(ctx))
	})
}

// joinLocked mends the links.
func (w *randomWorld) joinLocked() {
	for _, s := range w.st.sessions {
		s.dark, s.mute = false, false
	}
}

// heal ends all faults, and all calls: from now on tasks do as they are told.
func (w *randomWorld) heal() {
	w.note("all is well")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.st.set(func() {
		w.joinLocked()
		w.st.readOnly, w.st.capacity = false, 0
		for _, s := range w.st.sessions {
			s.lag, s.pleaded = 0, nil
		}
		for _, b := range w.backends {
			b.failures, b.dialHang, b.dialTime, b.lag = 0, false, 0, 0
			clear(b.faults)
		}
	})
	w.calm = true
	w.end()
	w.era = context.Background()
}

// recover waits until each name is led by one of those that have not resigned.
func (w *randomWorld) recover() {
	began := time.Now()
	for {
		w.look()
		var led []string
		for _, l := range w.leaders {
			led = append(led, l.Leading()...)
		}
		slices.Sort(led)
		if slices.Equal(led, randomNames) {
			return
		}
		if time.Since(began) > randomCalm {
			w.t.Errorf("led %v after all was well: %v", time.Since(began), led)
			return
		}
		time.Sleep(time.Second)
	}
}
