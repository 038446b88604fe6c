// SPDX-License-Identifier: MIT

package leader

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// attention is for how long Known is kept up after a call of it.
	attention = 15 * time.Second
	// knownNames is how many names without Terms are asked for at most, beside those that this process contends for: they may
	// come from strangers.
	knownNames = 1000
	// succession is how long after a release the successor has got its term, as a rule.
	succession = 50 * time.Millisecond
)

var (
	errNotAsked = errors.New("the database has not answered yet")
	errStale    = errors.New("the database has not answered for too long")
	errIdle     = errors.New("nobody has wanted to know for a while: the database is being asked")
	errCrowded  = errors.New("too many names are asked for without Options.Terms")
)

// known is what Known has heard. Its goroutine asks for as long as somebody wants to know.
type known struct {
	mu     sync.Mutex
	view   View
	heard  reading              // when the question was asked that view answers
	names  map[string]time.Time // asked for, and when; without Terms
	asked  time.Time            // the last call
	closed bool
	stop   context.CancelFunc

	stirred   chan struct{} // buffer 1: a lock was given back
	stirredAt time.Time     // the last question because of that; of the goroutine

	ended chan struct{} // closed when the goroutine that runs ends; nil when none does
}

// Known returns who leads names, or without names all names that it knows of, sorted: those that leader_terms has with
// Options.Terms, and those that this Leader contends for. It never blocks and asks no one: the first call has the Leader ask
// in the background, every Options.Retry and after a release that it hears of, until there has been no call for 15 s or [Leader.Resign]. View.Time is when the
// database has last answered, zero if it has not yet. If that is too long ago, or without Options.Terms one of names was not in
// the question, View.Err says so, and of those nobody is Held but this process, which knows what it leads itself. Without Options.Terms
// at most 1,000 names are kept up beside its own. It may be called concurrently, and per request.
func (l *Leader) Known(names ...string) View {
	v := l.knownOf(names)
	for i, h := range v.Holders {
		if g := l.leads(h.Name); g != nil && (!h.Held || h.Term != g.term) {
			v.Holders[i] = Holder{
				Name: h.Name, Held: true, Node: l.opts.Node, PID: g.worker.info.pid,
				Current: g.term != 0, Addr: l.opts.Addr, Term: g.term, Ended: h.Ended,
			}
		}
	}
	return v
}

// knownOf is what Known knows from the database.
func (l *Leader) knownOf(names []string) View {
	k := &l.known
	var own []string
	if len(names) == 0 || l.store == nil {
		own = l.contended()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	l.attendLocked(names, own)
	v := View{Time: k.view.Time, Err: k.view.Err}
	switch {
	case k.closed:
		v.Err = ErrResigned
	case v.Time.IsZero() && v.Err == nil:
		v.Err = errNotAsked
	case v.Err == nil && l.clock.read().since(k.heard) > l.opts.Lease+2*l.opts.Retry:
		v.Err = errStale
	}
	sound := v.Err == nil
	if len(names) == 0 {
		for _, h := range k.view.Holders {
			own = append(own, h.Name)
		}
		slices.Sort(own)
		names = slices.Compact(own)
	}
	for _, name := range names {
		h := Holder{Name: name}
		i, found := slices.BinarySearchFunc(k.view.Holders, name, byName)
		switch _, kept := k.names[name]; {
		case found && sound:
			h = k.view.Holders[i]
		case l.store != nil || v.Err != nil:
		case kept:
			v.Err = errNotAsked
		default:
			v.Err = cmp.Or(validText("the name", name, 1024), errCrowded)
		}
		v.Holders = append(v.Holders, h)
	}
	return v
}

// attendLocked has names and own asked for from now on.
func (l *Leader) attendLocked(names, own []string) {
	k := &l.known
	k.asked = time.Now()
	if l.store == nil { // the table has all names
		k.wantLocked(own, len(k.names)+len(own))
		k.wantLocked(names, knownNames)
	}
	if k.ended == nil && !k.closed && l.backend != nil {
		ctx, stop := context.WithCancel(context.Background())
		k.stop, k.ended = stop, make(chan struct{})
		go l.learn(ctx, k.ended) // ends when nobody asks, and by Resign, which waits for it
	}
}

// Elsewhere returns where to send a client that needs the leader of name: the other process that is known to lead it, with an
// address that is not that of this one, and how old that knowledge is, as a rule less than Options.Retry: for so long may somebody
// be named who led then and has died or been followed since, though never one whose term was over by then. Held is
// false if there is none. It is what gates ask, and works as [Leader.Known] does.
func (l *Leader) Elsewhere(name string) (holder Holder, age time.Duration) {
	v := l.Known(name)
	h := v.Holders[0]
	long := len(h.Addr) > maxAddr || len(h.Node) > maxNode // whoever can write to the table chooses them: they go into headers
	if !h.Held || !h.Current || h.Addr == "" || h.Addr == l.opts.Addr || h.Node == l.opts.Node || long {
		return Holder{Name: name}, 0
	}
	return h, max(0, time.Since(v.Time))
}

func byName(h Holder, name string) int { return strings.Compare(h.Name, name) }

// contended returns the names that Run or Try are going on for.
func (l *Leader) contended() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.slots))
}

// wantLocked has names asked for, as long as there are not more than most.
func (k *known) wantLocked(names []string, most int) {
	if k.names == nil {
		k.names = make(map[string]time.Time)
	}
	for _, name := range names {
		// One that is no name would cost all of them their answer.
		if _, ok := k.names[name]; ok || len(k.names) < most && validText("the name", name, 1024) == nil {
			k.names[name] = k.asked
		}
	}
}

// wanted returns the names to ask for, and false if nobody asks: then the goroutine is over.
func (k *known) wanted() ([]string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	since := time.Now().Add(-attention)
	maps.DeleteFunc(k.names, func(_ string, asked time.Time) bool { return asked.Before(since) })
	switch {
	case k.closed:
		return nil, false
	case k.asked.Before(since):
		k.stop()
		k.ended, k.view.Err = nil, errIdle // nobody looks whether it is still so
		return nil, false
	}
	return slices.Sorted(maps.Keys(k.names)), true
}

// close ends the goroutine, and returns what is closed at its end: nil if there is none.
func (k *known) close() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	if k.ended == nil {
		return nil
	}
	k.stop()
	select {
	case <-k.ended:
		return nil
	default:
		return k.ended
	}
}

// learn keeps known up.
func (l *Leader) learn(ctx context.Context, ended chan struct{}) {
	defer close(ended)
	k := &l.known
	var last View
	for {
		names, wanted := k.wanted()
		if !wanted {
			return
		}
		if l.store != nil {
			names = nil // all that the table has
		}
		if l.store != nil || len(names) > 0 {
			sent := l.clock.read()
			v, err := l.view(ctx, last, names)
			if err != nil {
				v = View{Time: time.Now(), Err: err}
			}
			k.hear(v, sent)
			last = v
		}
		k.rest(ctx, l.opts.Retry)
	}
}

// rest waits until it is time to ask again: in a Retry, or, at most once in that time, right after a lock was given back.
func (k *known) rest(ctx context.Context, retry time.Duration) {
	pause := time.NewTimer(jitter(retry))
	defer pause.Stop()
	var stirred <-chan struct{}
	if now := time.Now(); now.Sub(k.stirredAt) >= retry {
		stirred = k.stirred
	}
	select {
	case <-pause.C:
	case <-stirred:
		k.stirredAt = time.Now()
		pause.Reset(min(retry, succession))
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
}

// stir has the question asked soon, if somebody wants to know: a lock was given back. It never blocks.
func (k *known) stir() {
	select {
	case k.stirred <- struct{}{}:
	default:
	}
}

// hear keeps what the database has said, or the time of what it said last.
func (k *known) hear(v View, sent reading) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if v.Err != nil {
		k.view.Err = v.Err
		return
	}
	if !v.Time.Equal(k.view.Time) || k.view.Err != nil { // view passes on what it had before, too, for a while
		k.view, k.heard = v, sent
	}
}
