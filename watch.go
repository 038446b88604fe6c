// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"time"
)

// EventKind says what has happened.
type EventKind string

const (
	// Connected means that a session was opened. Err, if set, warns of the database. The sessions that
	// Options.Disconnect has closed and opened again are not told of, while all is well.
	Connected EventKind = "connected"
	// Unreachable means that opening a session failed, for the first time in this way since there was none. It is tried
	// again.
	Unreachable EventKind = "unreachable"
	// Unsupported means that opening a session failed for good: all who wait get the error.
	Unsupported EventKind = "unsupported"
	// Disconnected means that the session is over: lost, because of Err, or closed for want of work.
	Disconnected EventKind = "disconnected"
	// Waiting means that a Run stands by: another process has the lock of Name, or another Run of this one. It is told once, and
	// again after a session was lost or a question for the lock was refused.
	Waiting EventKind = "waiting"
	// Gained means that the task of Name starts.
	Gained EventKind = "gained"
	// Stopping means that the task was told to stop, by its caller, by Resign, or because somebody asked for it ([ErrHandOver]).
	Stopping EventKind = "stopping"
	// Lost means that the lock is void, because of Err: the task was told to stop.
	Lost EventKind = "lost"
	// Released means that the task has returned and its lock is free; Err is set if the session died meanwhile.
	Released EventKind = "released"
	// Overrun means that the task was told to stop Options.StopTimeout ago and has not returned.
	Overrun EventKind = "overrun"
	// Failed means that a task that was told to stop, whose error Run does not return, has returned Err.
	Failed EventKind = "failed"
	// SteppedDown means that a task has asked for a pause with [StepDown], because of Err: its name is left to other processes.
	SteppedDown EventKind = "stepped down"
	// Refused means that the database did not answer the question for locks, or for that of Name, for the first time since it
	// did or since the session was opened. It is asked again; tasks go on.
	Refused EventKind = "refused"
	// Blocked means that a takeover waits for a transaction of somebody else, as one that was fenced: Err says which.
	Blocked EventKind = "blocked"
	// Delayed means that a takeover waits for Options.TakeoverDelay.
	Delayed EventKind = "delayed"
	// TermsRefused means that terms could not be begun or checked, because of Err, for the first time since they could: the
	// locks of those that were to begin are given back.
	TermsRefused EventKind = "terms refused"
	// Unmarked means that the end of a term could not be marked, for the first time since it could: whoever leads next takes it
	// for an unclean one.
	Unmarked EventKind = "unmarked"
	// Untold means that other processes could not be told of a lock that is free: they see it at their next Retry.
	Untold EventKind = "untold"
)

// Event is one transition of a Leader.
type Event struct {
	Seq        uint64 // counts the events of the Leader: after a gap, look at Status
	Time       time.Time
	Kind       EventKind
	Name       string // of the task; "" for what concerns the session
	Generation uint64 // of the session that the event belongs to; see Status
	Term       Term   // of the leadership, with Options.Terms
	Reason     Reason // of the end of a session or leadership, or for which a task was told to stop; else ""
	// Elapsed is, in Gained, the time since the name was wanted: since the call of Run or Try, or since the last task of that
	// call returned; in Lost and Released the time since Gained; else 0.
	Elapsed time.Duration
	Err     error // why, where something went wrong. Encode its text: most errors are {} in JSON

	more *more // for the log
}

// backlog is how many events are kept for a reader of Watch who does not read.
const backlog = 1024

// watcher is one reader of events.
type watcher struct {
	events chan Event
	closed bool
}

// send never blocks: a reader who does not read loses the oldest events.
func (w *watcher) send(e Event) {
	for {
		select {
		case w.events <- e:
			return
		default:
		}
		select {
		case <-w.events:
		default:
		}
	}
}

func (w *watcher) stop() {
	if w != nil && !w.closed {
		w.closed = true
		close(w.events)
	}
}

// hub hands events to the watchers. It is guarded by Leader.mu.
type hub struct {
	seq      uint64
	watchers map[*watcher]struct{}
	closed   bool
}

func (h *hub) add(w *watcher) {
	if h.closed {
		w.stop()
		return
	}
	if h.watchers == nil {
		h.watchers = make(map[*watcher]struct{})
	}
	h.watchers[w] = struct{}{}
}

func (h *hub) close() {
	h.closed = true
	for w := range h.watchers {
		w.stop()
	}
	h.watchers = nil
}

func (l *Leader) emitLocked(e Event) {
	l.hub.seq++
	e.Seq, e.Time = l.hub.seq, time.Now()
	if e.more == nil || !e.more.granted { // else it has that of its session, which may have been given up before
		e.Generation = l.generation
	}
	if l.logs != nil && !l.logs.closed {
		l.logs.send(e)
		l.logSeq = e.Seq
	}
	e.more = nil
	for w := range l.hub.watchers {
		w.send(e)
	}
}

// waitingLocked tells once that somebody else has the lock that a Run waits for. It is not inlined: its event would make the
// stacks of all callers who wait twice as large.
//
//go:noinline
func (l *Leader) waitingLocked(c *candidate) {
	if !c.once && !c.waiting {
		c.waiting = true
		m := &more{wait: l.opts.Retry}
		if c != c.slot.first() {
			m = &more{variant: behind}
		}
		l.emitLocked(Event{Kind: Waiting, Name: c.slot.name, more: m})
	}
}

// forgetWaitLocked has it told anew that somebody else has the lock of s: after trouble that is what tells of its end.
func (l *Leader) forgetWaitLocked(s *slot) {
	if c := s.first(); c != nil && c.grant == nil {
		c.waiting = false
	}
}

// Watch returns a channel of the transitions from now on, in order. It is closed when ctx ends, and after Resign. To see the
// end of the Runs, give it a ctx that outlives theirs. A reader who does not keep up delays nobody and loses the oldest of
// more than 1,024 events, seen as a gap in Event.Seq.
func (l *Leader) Watch(ctx context.Context) <-chan Event {
	w := &watcher{events: make(chan Event, backlog)}
	l.mu.Lock()
	l.hub.add(w)
	l.mu.Unlock()
	context.AfterFunc(ctx, func() { // ends at once: it only closes the channel
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.hub.watchers, w)
		w.stop()
	})
	return w.events
}
