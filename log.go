// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// mostNames is how many names a line of the log has at most.
const mostNames = 10

// more is what only the log tells of an event.
type more struct {
	granted   bool // the event is about a leadership, and has the generation of that
	variant   variant
	names     []string      // where it is about several
	wait      time.Duration // until what comes next
	place     string        // of a session opened
	namespace string
}

// variant tells apart events of one kind that neither Err nor Reason does.
type variant int

const (
	_        variant = iota
	behind           // another call of Run of this process leads
	pausing          // the name is left to others for a while
	checking         // terms that were begun before
	resigned         // the Leader has
	stopped          // the task had been told to stop before, and its call ends with it
)

// event fills in e, which is about g.
func (g *grant) event(e Event) Event {
	e.Name, e.Term, e.Generation = g.name, g.term, g.worker.generation
	e.more = &more{granted: true}
	return e
}

// namesWaitingLocked returns the names whose locks are waited for, for the log.
func (l *Leader) namesWaitingLocked() (names []string) {
	for s := range l.contenders {
		names = append(names, s.name)
	}
	return names
}

// namesHeldLocked returns the names that have a lock of w.
func (l *Leader) namesHeldLocked(w *worker) (names []string) {
	for _, s := range l.slots {
		if c := s.first(); c != nil && c.grant != nil && c.grant.worker == w {
			names = append(names, s.name)
		}
	}
	return names
}

// namesLocked returns those of keys that somebody still wants.
func (l *Leader) namesLocked(keys []int64) (names []string) {
	for _, key := range keys {
		if s := l.keys[key]; s != nil {
			names = append(names, s.name)
		}
	}
	return names
}

func namesOf(ends []termEnd) (names []string) {
	for _, e := range ends {
		names = append(names, e.name)
	}
	return names
}

// message is a line of the log: what happened, how much that matters, and what happens next.
type message struct {
	kind  EventKind
	when  func(Event) bool // nil: in all other cases
	level slog.Level
	text  string
	next  string // what this process does by itself, or who has to do something
}

// messages are the lines of the log, the first that fits. docs/logs.md has a row for each.
var messages = []message{ //nolint:gochecknoglobals // a constant that Go cannot express
	{
		Connected, failing, slog.LevelWarn, "database session opened, with a warning",
		"asks for the locks of the names that wait all the same; err says what to look at",
	},
	{Connected, nil, slog.LevelInfo, "database session opened", "asks for the locks of the names that wait"},
	{
		Unreachable, nil, slog.LevelWarn, "database session not opened, retrying",
		"tries again until it succeeds, at most 5s apart; each kind of err is told once",
	},
	{
		Unsupported, nil, slog.LevelError, "database session not opened, giving up",
		"the calls that wait return err; nothing runs until somebody corrects the database or its address",
	},
	{
		Disconnected, failing, slog.LevelWarn, "database session lost",
		"all leaderships that it had are lost; opens another one if a name is wanted",
	},
	{Disconnected, is(resigned), slog.LevelInfo, "database session closed", "none: this Leader has resigned"},
	{Disconnected, nil, slog.LevelInfo, "database session closed", "opens another one when a name is wanted"},
	{
		Waiting, is(behind), slog.LevelInfo, "standing by, another call of this process leads",
		"contends when that call has ended",
	},
	{
		Waiting, nil, slog.LevelInfo, "standing by, somebody else leads",
		"asks again every next_in, and at once when told that the lock is free",
	},
	{Gained, nil, slog.LevelInfo, "leadership gained", "runs the task"},
	{
		Stopping, because(ReasonHandOver), slog.LevelInfo, "task told to stop",
		"keeps the lock until the task has returned, then leaves the name to others for a while",
	},
	{
		Stopping, nil, slog.LevelInfo, "task told to stop",
		"keeps the lock until the task has returned; then the call ends",
	},
	{
		Lost, notHeld, slog.LevelWarn, "leadership lost before its release",
		"the task has returned already: its call ends as after a release",
	},
	{
		Lost, is(stopped), slog.LevelWarn, "leadership lost",
		"others may lead; the task had been told to stop before: its call ends when it has returned",
	},
	{
		Lost, nil, slog.LevelWarn, "leadership lost",
		"others may lead; has told the task to stop; when it has returned, Run contends again and Try ends",
	},
	{
		Released, failing, slog.LevelWarn, "leadership released with a session that was lost",
		"others may lead as soon as the database has ended that session",
	},
	{
		Released, is(pausing), slog.LevelInfo, "leadership released",
		"others may lead; leaves the name to them for a while",
	},
	{
		Released, because(ReasonFailed), slog.LevelInfo, "leadership released, its task has failed",
		"others may lead; the call ends with the task's error or panic, and does not run it again",
	},
	{
		Released, because(ReasonReturned), slog.LevelInfo, "leadership released",
		"others may lead; the task has returned by itself: the call ends, and does not run it again",
	},
	{
		Released, because(ReasonResigned), slog.LevelInfo, "leadership released",
		"others may lead; this Leader leads nothing any more",
	},
	{Released, nil, slog.LevelInfo, "leadership released", "others may lead; the call ends"},
	{
		Overrun, keeping, slog.LevelWarn, "task has not stopped in time",
		"waits for it and keeps the lock: nobody else leads; if it never returns, somebody has to end this process",
	},
	{
		Overrun, nil, slog.LevelWarn, "task has not stopped in time",
		"waits for it; others may lead beside it; if it never returns, somebody has to end this process",
	},
	{
		Failed, nil, slog.LevelWarn, "stopped task returned an error",
		"Run goes on or ends without this error: it is told only here; Try returns it after a loss",
	},
	{
		SteppedDown, asked, slog.LevelInfo, "left to others on request",
		"does not contend for the name until next_in has passed; then Run goes on",
	},
	{
		SteppedDown, nil, slog.LevelWarn, "stepped down, others may lead",
		"does not contend for the name until next_in has passed; then Run goes on",
	},
	{
		Refused, single, slog.LevelWarn, "asking for a lock failed, retrying",
		"asks again every next_in; other names are not concerned",
	},
	{
		Refused, nil, slog.LevelWarn, "asking for locks failed, retrying",
		"asks again until it succeeds, at most 5s apart; tasks that run go on",
	},
	{
		Blocked, nil, slog.LevelWarn, "takeover waits for a transaction",
		"keeps the lock, and runs the task when that transaction has ended",
	},
	{Delayed, nil, slog.LevelWarn, "takeover delayed", "keeps the lock, and runs the task when next_in has passed"},
	{
		TermsRefused, is(checking), slog.LevelWarn, "terms not checked, retrying",
		"checks them again with each proof of the session; tasks that run go on",
	},
	{
		TermsRefused, nil, slog.LevelWarn, "terms not begun, retrying",
		"gives the locks back, and asks for them again, at most 5s apart, unless another process leads by then",
	},
	{
		Unmarked, nil, slog.LevelWarn, "end of a term not marked",
		"gives the lock back all the same; whoever leads next waits for its TakeoverDelay, as after a crash",
	},
	{
		Untold, nil, slog.LevelWarn, "release not told to others",
		"none: the lock is free, and others find that at their next Retry",
	},
}

func failing(e Event) bool { return e.Err != nil }
func notHeld(e Event) bool { return e.Err == errNotHeld } //nolint:errorlint // another one's methods may be the user's
func single(e Event) bool  { return e.Name != "" }

func is(v variant) func(Event) bool {
	return func(e Event) bool { return e.more.variant == v }
}

func because(reason Reason) func(Event) bool {
	return func(e Event) bool { return e.Reason == reason }
}

// keeping is whether the task that was told to stop has its lock still.
func keeping(e Event) bool {
	return e.Reason == ReasonCaller || e.Reason == ReasonResigned || e.Reason == ReasonHandOver
}

func asked(e Event) bool {
	down, ok := e.Err.(*stepDown) //nolint:errorlint // as it was made
	return ok && down.pleaded
}

// line is what the log says of e.
func (e Event) line() message {
	return messages[slices.IndexFunc(messages, func(m message) bool {
		return m.kind == e.Kind && (m.when == nil || m.when(e))
	})]
}

// What the log says when its handler is too slow.
const (
	droppedText = "log events dropped"
	droppedNext = "goes on with what is newest: look at Status for what is so now"
)

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
				log.WarnContext(context.Background(), droppedText,
					slog.Uint64("count", e.Seq-seq-1), slog.String("next", droppedNext))
			}
			seq = e.Seq
			e.log(log)
		}
	}()
}

// log writes e: what happened to whom, why, and what happens next.
func (e Event) log(log *slog.Logger) {
	if e.more == nil {
		e.more = &more{}
	}
	attrs := e.whom(make([]slog.Attr, 0, 12))
	if e.Kind == Connected {
		attrs = append(attrs, slog.String("place", e.more.place), slog.String("namespace", e.more.namespace))
	}
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(e.Reason)))
	}
	switch e.Kind {
	case Gained:
		attrs = append(attrs, slog.Duration("waited", e.Elapsed.Round(time.Millisecond)))
	case Lost, Released:
		attrs = append(attrs, slog.Duration("led", e.Elapsed.Round(time.Millisecond)))
	}
	if err := e.cause(); err != nil {
		attrs = append(attrs, slog.Any("err", err))
	}
	m := e.line()
	attrs = append(attrs, slog.String("next", m.next))
	if e.more.wait > 0 {
		attrs = append(attrs, slog.Duration("next_in", e.more.wait.Round(time.Millisecond)))
	}
	log.LogAttrs(context.Background(), m.level, m.text, attrs...) //nolint:sloglint // constant all the same
}

// whom appends what e is about.
func (e Event) whom(attrs []slog.Attr) []slog.Attr {
	attrs = append(attrs, slog.Uint64("generation", e.Generation))
	if e.Name != "" {
		attrs = append(attrs, slog.String("name", e.Name))
	}
	if names := slices.Sorted(slices.Values(e.more.names)); len(names) > mostNames {
		attrs = append(attrs, slog.Any("names", names[:mostNames]), slog.Int("more_names", len(names)-mostNames))
	} else if len(names) > 0 {
		attrs = append(attrs, slog.Any("names", names))
	}
	if e.Term != 0 {
		attrs = append(attrs, slog.Int64("term", int64(e.Term)))
	}
	return attrs
}

// cause is the error that the log shows: none where Reason or the message says all of it.
func (e Event) cause() error {
	down, ok := e.Err.(*stepDown) //nolint:errorlint // as it was made
	switch {
	case ok && down.pleaded:
		return nil
	case ok:
		return down.err
	case e.Kind != Stopping:
		return e.Err
	}
	if slices.Contains([]error{context.Canceled, ErrResigned, ErrHandOver}, e.Err) { // what wraps one of these says more
		return nil
	}
	return e.Err
}
