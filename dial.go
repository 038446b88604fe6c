// SPDX-License-Identifier: MIT

package leader

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"
	"time"
	"unicode"
)

var errDeaf = errors.New("dialing does not end: a hook of the configuration hangs")

const (
	// mostDeaf is how many dials that do not heed their context may go on beside the next one.
	mostDeaf = 3
	// mostTroubles is how many kinds of trouble are told of before there is a session again.
	mostTroubles = 8
)

// dial is one attempt to open a session, on a goroutine of its own.
type dial struct {
	cancel    context.CancelFunc
	deadline  time.Time
	unwanted  bool // the loop has cancelled it
	abandoned bool // nobody waits for it: it closes what it opens
}

// connectLocked opens a session if somebody waits for one.
func (l *Leader) connectLocked(now time.Time, due func(time.Time)) {
	switch d := l.dial; {
	case d != nil && now.Before(d.deadline.Add(hopeless)):
		due(d.deadline.Add(hopeless))
	case d != nil && l.deaf < mostDeaf:
		l.abandonDialLocked()
		l.dialFailedLocked(trouble{err: errDeaf, kind: "deaf"}, now)
	case d != nil || len(l.contenders) == 0 && len(l.asks) == 0:
	case now.Before(l.dialAt):
		due(l.dialAt)
	case now.Before(l.restUntil) && len(l.asks) == 0:
		due(l.restUntil)
	default:
		l.dialLocked(now)
		due(l.dial.deadline.Add(hopeless))
	}
}

func (l *Leader) dialLocked(now time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), l.backend.dialTimeout())
	d := &dial{cancel: cancel, deadline: now.Add(l.backend.dialTimeout())}
	l.dial = d
	opts := l.opts
	opts.Namespace = cmp.Or(l.namespace, opts.Namespace) // as the first connection said, whatever the next one would
	go func() {                                          // ends when open does, at the latest when code of the user that it runs returns
		defer cancel()
		s, err := l.backend.open(ctx, opts, l.clock)
		if !l.dialed(d, s, troubleOf(err)) && s != nil { //nolint:contextcheck // a session outlives its dial
			s.close()
		}
	}()
}

// abandonDialLocked leaves a dial alone whose hook hangs.
func (l *Leader) abandonDialLocked() {
	l.dial.cancel()
	l.dial.abandoned = true
	l.dial = nil
	l.deaf++
}

// trouble is why a dial came to nothing. It is made outside mu, as it runs methods of the error, which may be the user's.
type trouble struct {
	err   error
	kind  string // like err's text, but the same at each attempt
	final bool   // it cannot heal
	full  bool   // the server has no connection to spare
}

func troubleOf(err error) trouble {
	if err == nil {
		return trouble{}
	}
	kind := strings.Map(func(r rune) rune { // ports and addresses differ each time
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, err.Error())
	return trouble{err: err, kind: kind, final: errors.Is(err, ErrUnsupported), full: tooManyConnections(err)}
}

// dialed hands the session that d has opened to the loop, if it still waits for it.
func (l *Leader) dialed(d *dial, s session, failed trouble) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.poke()
	if d.abandoned {
		l.deaf--
		return false
	}
	l.posted = append(l.posted, func() {
		l.dial = nil
		switch {
		case failed.err == nil:
			l.connectedLocked(s)
		case !d.unwanted:
			l.dialFailedLocked(failed, time.Now())
		}
	})
	return true
}

func (l *Leader) dialFailedLocked(t trouble, now time.Time) {
	l.counts.ConnectErrors++
	if t.final {
		l.emitLocked(Event{Kind: Unsupported, Err: t.err, more: &more{names: l.namesWaitingLocked()}})
	} else if !t.full || len(l.retired) == 0 { // our own that is held open may be the one too many
		l.tellTroubleLocked(t)
	}
	l.dialAt = now.Add(backoff(l.failures))
	l.failures++
	l.err, l.resting = t.err, false
	l.poke()
	if t.final {
		l.failLocked(t.err)
	}
}

// tellTroubleLocked tells of a kind of trouble the first time that it keeps the session away.
func (l *Leader) tellTroubleLocked(t trouble) {
	if _, told := l.troubles[t.kind]; told || len(l.troubles) >= mostTroubles {
		return
	}
	if l.troubles == nil {
		l.troubles = make(map[string]struct{})
	}
	l.troubles[t.kind] = struct{}{}
	l.emitLocked(Event{Kind: Unreachable, Err: t.err, more: &more{names: l.namesWaitingLocked()}})
}

// connectedLocked takes up a new session.
func (l *Leader) connectedLocked(s session) {
	now := time.Now()
	info := s.about()
	w := &worker{session: s, info: info, lease: &lease{clock: l.clock}, generation: l.generation}
	if l.backend.expires() {
		w.lease.length = l.opts.Lease
	}
	w.lease.renew(info.proved)
	l.workers++
	l.counts.Connects++
	l.current, l.since, l.err, l.troubles, l.proofErr = w, now, nil, nil, nil
	go w.run(l.post, // ends when the loop has called end or kill
		func(keys []int64) { l.heardLocked(w, keys) },
		func(keys []int64) { l.pleadedLocked(w, keys) },
		func(err error) { l.brokenLocked(w, err) },
		func() { l.workers-- })
	// Counted from the last proof, as the lease is: setting a session up takes its time on a slow link.
	l.checkAt = now.Add(max(l.opts.Check-w.lease.age(l.clock.read()), 0))
	l.tryAt, l.notBefore, l.tryFailures = now, now, 0
	l.nameLocked(info)
	l.site = termSite{
		schema: info.schema, server: info.server, namespace: l.namespace, node: l.opts.Node, addr: l.opts.Addr,
		pid: cmp.Or(info.pid, uint32(os.Getpid())),
	}
	if l.resting {
		l.resting = false
		return
	}
	m := &more{names: l.namesWaitingLocked(), place: l.place, namespace: l.namespace}
	l.emitLocked(Event{Kind: Connected, Err: info.warning, more: m})
}

// nameLocked fixes the namespace at the first connection, for good: names must not change their meaning.
func (l *Leader) nameLocked(info sessionInfo) {
	l.place = info.place
	if l.named {
		return
	}
	l.named, l.namespace = true, l.opts.Namespace
	if l.namespace == "" {
		l.namespace = info.namespace
	}
	for _, s := range l.slots {
		if err := l.keyLocked(s); err != nil {
			l.failSlotLocked(s, err)
		}
	}
}

// failLocked tells all who wait that they wait in vain.
func (l *Leader) failLocked(err error) {
	for s := range l.contenders {
		l.failSlotLocked(s, err)
	}
	l.failAsksLocked(err)
}

func (l *Leader) failSlotLocked(s *slot, err error) {
	s.err = err
	for _, c := range s.queue {
		if c.grant == nil {
			l.dismissLocked(c, err)
		}
	}
}
