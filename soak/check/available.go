// SPDX-License-Identifier: MIT

package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oxygenhub/leader/soak/history"
)

// retry is the longest time between two questions of a process that waits.
func (v *view) retry() time.Duration { return v.ep.Options.Retry * 6 / 5 }

// grace is how long after the last fault a fleet may take to be as it was: a process that could not connect waits, and
// a session that was given up is held.
func (v *view) grace() time.Duration { return Grace(v.ep.Options) }

// Grace is how much of a calm time is not judged. An episode whose calm is not longer shows nothing of a healthy fleet.
func Grace(t history.Timing) time.Duration { return Backoff + t.SessionTimeout }

// gap is a time in which a name is not led, and nobody is frozen who still may lead.
type gap struct {
	name       string
	from, till time.Duration
	after      *Span // that led before; nil if none
	next       *Span // that leads then; nil if none
}

// available checks G6: a name that somebody waits for is led again in time.
func available(v *view) {
	v.cover(Unled)
	byName := make(map[string][]*Span)
	for _, s := range v.spans {
		byName[s.Name] = append(byName[s.Name], s)
	}
	for _, name := range v.names() {
		var last *Span
		from := time.Duration(-1)
		for _, s := range byName[name] {
			if last == nil || s.Start > from {
				v.gap(gap{name, from, s.Start, last, s})
			}
			if until := v.ledUntil(s); until > from {
				last, from = s, until
			}
		}
		if from < v.closing {
			v.gap(gap{name, from, v.closing, last, nil})
		}
	}
}

// names are those of the episode and those that somebody has called for.
func (v *view) names() []string {
	names := slices.Clone(v.ep.Names)
	for _, c := range v.calls {
		names = append(names, c.event.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ledUntil is until when nobody else needs to lead: a task that has lost its lock and runs on, or sleeps, does not count.
func (v *view) ledUntil(s *Span) time.Duration {
	if held, ok := v.heldUntil(s); ok {
		return max(s.Start, min(s.End, held))
	}
	return s.End
}

// heldUntil is when the server has freed the lock at the latest of a task that did not give it back.
func (v *view) heldUntil(s *Span) (held time.Duration, ok bool) {
	if v.sqlite {
		return 0, false
	}
	if s.Lost() {
		held, ok = s.Told+v.ep.Options.SessionTimeout, true
	}
	for _, i := range v.nodes[s.Node].injuries {
		until := i.From + v.ep.Options.SessionTimeout
		if i.Reach == history.ReachFreeze && v.wakes() && i.From >= s.Start && i.From < s.End && i.Until > until && (!ok || until < held) {
			held, ok = until, true
		}
	}
	return held, ok
}

// wakes says whether the server ends a silent session whatever the kernel of the other side says.
func (v *view) wakes() bool { return v.major == 0 || v.major >= 14 }

// gap judges the time for which each of those that wait has waited: one that is well and has waited for long enough should
// lead.
func (v *view) gap(g gap) {
	var longest, bound time.Duration
	var who *call
	for _, c := range v.calls {
		if c.event.Name != g.name || c.event.Once || c.from >= g.till || c.until <= g.from {
			continue
		}
		from := max(g.from, c.from, c.node.up+Statement) // which it needs to connect
		till := min(g.till, c.until, v.closing)
		if waited, allowed, ok := v.waited(g, c, from, till); ok && waited-allowed > longest-bound {
			longest, bound, who = waited, allowed, c
		}
		if c.from <= g.from && till == g.till && g.next != nil && g.after != nil && c.node.name == g.next.Node {
			v.measure("without a leader", v.endOf(g.after), 0, g.till-g.from)
		}
	}
	if who != nil && longest > bound {
		after := "nobody"
		var events []history.Event
		if g.after != nil {
			after, events = g.after.String(), slices.Clone(g.after.events)
		}
		v.violate(Unled, g.name, g.from, fmt.Sprintf("%s was not led from %v to %v, after %s; %s waited for %v of them, and may for %v",
			g.name, v.since(g.from), v.since(g.till), after, who.node.name, longest.Round(time.Millisecond), bound), append(events, who.event)...)
	}
}

// waited returns how long a caller has waited and how long it may. Of two times that a fault divides it takes the one that
// is worse.
func (v *view) waited(g gap, c *call, from, till time.Duration) (waited, bound time.Duration, ok bool) {
	cover := v.cover(Unled)
	for _, calm := range v.calm {
		start, end := max(from, calm[0]+v.grace()), min(till, calm[1])
		if start >= end {
			continue
		}
		cover.Checked++
		if allowed := v.retry() + Statement; !ok || end-start-allowed > waited-bound {
			waited, bound, ok = end-start, allowed, true
		}
	}
	if till <= from {
		return waited, bound, ok
	}
	if c.node.killed && c.node.gone < till {
		till = c.node.gone
	}
	for _, part := range v.well(c.node, from, till) {
		from, till := part[0], part[1]
		allowed := v.retry() + Statement + Fence
		if g.after != nil {
			if held, ok := v.heldUntil(g.after); ok {
				allowed += max(0, held-from)
			}
		}
		if kind, quiet := v.others(g, c, from, till); quiet {
			if v.sqlite || !v.wakes() { // a frozen process may have got it just before
				cover.Skipped++
				continue
			}
			cover.Excused[kind]++
			allowed += v.ep.Options.SessionTimeout + v.retry()
		}
		cover.Checked++
		if !ok || till-from-allowed > waited-bound {
			waited, bound, ok = till-from, allowed, true
		}
	}
	return waited, bound, ok
}

// well returns the parts of a time in which a process surely could ask: from an injury on it may wait for a new session, until
// grace is over. An injury excuses no more of a long time than that.
func (v *view) well(n *node, from, till time.Duration) (parts [][2]time.Duration) {
	for _, i := range n.injuries { // by From
		if classOf(i.Reach) == harmless || i.From >= till || i.Until+v.grace() <= from {
			continue
		}
		v.cover(Unled).Excused[i.Kind]++
		if i.From > from {
			parts = append(parts, [2]time.Duration{from, i.From})
		}
		from = i.Until + v.grace()
	}
	if from < till {
		parts = append(parts, [2]time.Duration{from, till})
	}
	return parts
}

// others says whether another process may have the lock without leading: it was cut off, frozen or killed since the name was
// led, or when it was.
func (v *view) others(g gap, c *call, from, till time.Duration) (string, bool) {
	since := min(g.from, from) - v.ep.Options.SessionTimeout
	for _, o := range v.calls {
		if o.event.Name != g.name || o.node == c.node || o.from >= till || o.until < since {
			continue
		}
		for _, i := range o.node.injuries {
			if k := classOf(i.Reach); k != harmless && i.From < till && i.Until+After > since {
				return i.Kind, true
			}
		}
		led := g.after != nil && g.after.Node == o.node.name
		if o.node.killed && !led && o.node.gone > since && o.node.gone < till {
			return "killed", true
		}
	}
	return "", false
}

// blame returns the injury that has cost a task its lock, or nil if it is not known.
func (v *view) blame(s *Span) *Injury {
	var best *Injury
	for _, i := range v.nodes[s.Node].injuries {
		c := classOf(i.Reach)
		if c == harmless || i.From > s.seen() {
			continue
		}
		if s.seen() > v.nodes[s.Node].awake(i.Until, After+v.ep.Options.Lease+Timer) {
			continue
		}
		at := func(i *Injury) int { // what ends a session does so at once; of silences, the first one counts
			if k := classOf(i.Reach); k == ended || k == switched {
				return 1
			}
			return 0
		}
		if best == nil || at(i) > at(best) || at(i) == at(best) && at(i) == 1 && i.From > best.From {
			best = i
		}
	}
	return best
}

// endOf says how a task has ended, as far as it matters for who comes next.
func (v *view) endOf(s *Span) string {
	switch {
	case s.Died:
		return "killed"
	case !s.Lost():
		return "released"
	}
	if i := v.blame(s); i != nil {
		return i.Kind
	}
	return "lost"
}

// takeovers measures how long it took from what ended a leadership to the next one.
func takeovers(v *view) {
	for n, a := range v.spans {
		from, bound := a.End, v.retry()
		if i := v.blame(a); a.Lost() && i != nil {
			from = max(i.From, a.Start)
			switch classOf(i.Reach) {
			case quiet, frozen:
				bound += v.ep.Options.SessionTimeout
			case switched:
				bound = 0 // it depends on when a standby reaches the new primary
			}
		} else if a.Lost() {
			from = a.Told
		}
		if from >= v.closing {
			continue
		}
		for _, b := range v.spans[n+1:] {
			if b.Name == a.Name && b.Start >= from {
				if b.Called <= from {
					v.measure("takeover", v.endOf(a), bound, b.Start-from)
				}
				break
			}
		}
	}
	slices.SortStableFunc(v.out.Series, func(a, b Series) int {
		return cmp.Or(strings.Compare(a.What, b.What), strings.Compare(a.Cause, b.Cause))
	})
}
