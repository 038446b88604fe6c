// SPDX-License-Identifier: MIT

package leaderotel

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/oxygenhub/leader"
)

// transition is what is counted of an event.
type transition struct {
	name   string // "" for those of the session
	kind   leader.EventKind
	reason leader.Reason // "" where the kind has none, or where it is not counted by reason
}

// eventName is how kind is written in attributes.
func eventName(kind leader.EventKind) string { return strings.ReplaceAll(string(kind), " ", "_") }

// transitionsOf returns all that there are of name, or of the session.
func transitionsOf(name string) (all []transition) {
	kinds, reasons := sessionKinds(), sessionReasons()
	if name != "" {
		kinds, reasons = nameKinds(), nameReasons()
	}
	for _, kind := range kinds {
		if reasons[kind] == nil {
			all = append(all, transition{name: name, kind: kind})
		}
		for _, reason := range reasons[kind] {
			all = append(all, transition{name, kind, reason})
		}
	}
	return all
}

func nameKinds() []leader.EventKind {
	return []leader.EventKind{
		leader.Waiting, leader.Gained, leader.Stopping, leader.Lost, leader.Released, leader.Overrun, leader.Failed,
		leader.SteppedDown, leader.Blocked, leader.Delayed,
	}
}

func nameReasons() map[leader.EventKind][]leader.Reason {
	told := []leader.Reason{leader.ReasonCaller, leader.ReasonResigned, leader.ReasonHandOver}
	return map[leader.EventKind][]leader.Reason{
		leader.Stopping: told,
		leader.Lost: {
			leader.ReasonConnection, leader.ReasonLease, leader.ReasonSession, leader.ReasonLock, leader.ReasonTerm,
		},
		leader.Released: append(told, leader.ReasonReturned, leader.ReasonFailed),
	}
}

// sessionKinds are told of a session, or of all names: where some have a name it is not counted.
func sessionKinds() []leader.EventKind {
	return []leader.EventKind{
		leader.Connected, leader.Unreachable, leader.Unsupported, leader.Disconnected, leader.Refused, leader.TermsRefused,
		leader.Unmarked, leader.Untold,
	}
}

func sessionReasons() map[leader.EventKind][]leader.Reason {
	return map[leader.EventKind][]leader.Reason{
		leader.Disconnected: {"", leader.ReasonConnection, leader.ReasonLease, leader.ReasonSession, leader.ReasonLock},
	}
}

// transitionOf returns what is counted of e.
func transitionOf(e leader.Event) transition {
	t := transition{kind: e.Kind}
	if slices.Contains(nameKinds(), e.Kind) {
		t.name = e.Name
		if nameReasons()[e.Kind] != nil {
			t.reason = e.Reason
		}
	} else if sessionReasons()[e.Kind] != nil {
		t.reason = e.Reason
	}
	return t
}

// follow reads the events of the Leader until there are no more.
func (i *Instrumentation) follow(events <-chan leader.Event) {
	defer close(i.done)
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			i.note(e)
		case asked := <-i.asks:
			for range len(events) { // all that had happened before it was asked
				if e, ok := <-events; ok {
					i.note(e)
				}
			}
			close(asked)
		}
	}
}

// settle returns when all that has happened is counted, but waits no longer than patience for it.
func (i *Instrumentation) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	asked := make(chan struct{})
	select {
	case i.asks <- asked:
	case <-i.done:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-asked:
	case <-ctx.Done():
	}
}

// note counts e. Instruments and spans, which are not ours, are used without mu.
func (i *Instrumentation) note(e leader.Event) {
	label, told := i.count(e)
	switch e.Kind {
	case leader.Gained:
		i.waited.Record(context.Background(), e.Elapsed.Seconds(), i.set(i.knownNamespace(), KeyName.String(label)))
	case leader.Lost, leader.Released:
		i.led.Record(context.Background(), e.Elapsed.Seconds(),
			i.set(i.knownNamespace(), KeyName.String(label), KeyEvent.String(eventName(e.Kind))))
	}
	for _, s := range told {
		s.hear(e)
	}
}

// count returns the label of the event's name, and the spans that are to hear of it.
func (i *Instrumentation) count(e leader.Event) (label string, told []*leadership) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.lastSeq != 0 && e.Seq > i.lastSeq {
		i.missed += int64(e.Seq - i.lastSeq - 1)
	}
	i.lastSeq = e.Seq
	t := transitionOf(e)
	if t.name != "" {
		t.name = i.labelLocked(t.name)
	}
	i.counts[t]++
	return t.name, slices.Collect(maps.Keys(i.spans[e.Name]))
}

// labelLocked returns what stands for name in the metrics.
func (i *Instrumentation) labelLocked(name string) string {
	if _, ok := i.known[name]; ok {
		return name
	}
	if len(i.known) >= i.max {
		i.others = true
		return Other
	}
	i.known[name] = struct{}{}
	return name
}
