// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"log/slog"
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
	// Waiting means that a Run stands by: another process has the lock of Name, or another Run of this one.
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
	// Refused means that the database did not answer the question for locks, for the first time since it did. It is asked
	// again; tasks go on.
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
	Term       Term   // of what was gained or lost, with Options.Terms
	Reason     Reason // of the end of a session or leadership, or for which a task was told to stop; else ""
	// Elapsed is, in Gained, the time since the name was wanted: since the call of Run or Try, or since the last task of that
	// call returned; in Lost and Released the time since Gained; else 0.
	Elapsed time.Duration
	Err     error // why, where something went wrong. Encode its text: most errors are {} in JSON

	where []slog.Attr // of a session opened, for the log
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
	e.Seq, e.Time, e.Generation = l.hub.seq, time.Now(), l.generation
	if l.logs != nil && !l.logs.closed {
		l.logs.send(e)
		l.logSeq = e.Seq
	}
	for w := range l.hub.watchers {
		w.send(e)
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

// startLogLocked starts the goroutine that writes the log, if there is a Logger: its handler is code of the user and may
// block. It ends when it has written what was emitted until the loop ended. As long as an old one blocks there is no new
// one, and what is not written is counted.
func (l *Leader) startLogLocked() {
	if l.opts.Logger == nil || l.logs != nil && !l.logs.closed {
		return
	}
	if l.logged != nil {
		select {
		case <-l.logged:
		default:
			return
		}
	}
	w, logged := &watcher{events: make(chan Event, backlog)}, make(chan struct{})
	l.logs, l.logged = w, logged
	seq := l.logSeq
	go func() {
		defer close(logged)
		log := l.opts.Logger.With(slog.String("node", l.opts.Node))
		for e := range w.events {
			if e.Seq != seq+1 {
				log.WarnContext(context.Background(), "log events dropped", slog.Uint64("count", e.Seq-seq-1))
			}
			seq = e.Seq
			e.log(log)
		}
	}()
}

// log writes e: what is retried as a warning, the rest as information.
func (e Event) log(log *slog.Logger) {
	attrs := []slog.Attr{slog.Uint64("generation", e.Generation)}
	if e.Name != "" {
		attrs = append(attrs, slog.String("name", e.Name))
	}
	if e.Term != 0 {
		attrs = append(attrs, slog.Int64("term", int64(e.Term)))
	}
	attrs = append(attrs, e.where...)
	level := slog.LevelInfo
	if e.Err != nil {
		attrs = append(attrs, slog.Any("err", e.Err))
		if e.Kind != Stopping && e.Kind != Lost {
			level = slog.LevelWarn
		}
	}
	if e.Kind == Overrun {
		level = slog.LevelWarn
	}
	log.LogAttrs(context.Background(), level, messages[e.Kind], attrs...) //nolint:sloglint // constant all the same
}

// messages are the constant texts of the log.
var messages = map[EventKind]string{ //nolint:gochecknoglobals // a constant that Go cannot express
	Connected:    "session opened",
	Unreachable:  "session not opened, trying on",
	Unsupported:  "session not opened, giving up",
	Disconnected: "session over",
	Waiting:      "standing by, somebody else leads",
	Gained:       "leadership gained",
	Stopping:     "task told to stop",
	Lost:         "leadership lost",
	Released:     "leadership released",
	Overrun:      "task has not stopped in time",
	Failed:       "stopped task returned an error",
	SteppedDown:  "stepped down, others may lead",
	Refused:      "locks not asked for, trying on",
	Blocked:      "takeover waits for a transaction",
	Delayed:      "takeover delayed",
	TermsRefused: "terms not begun or not checked, trying on",
	Unmarked:     "end of a term not marked",
	Untold:       "release not told to others",
}
