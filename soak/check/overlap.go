// SPDX-License-Identifier: MIT

package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/oxygenhub/leader/soak/history"
)

// overlaps checks G1 to G3: no task of a name begins while another one runs, but where an injury of the other's process
// allows it. That the other one ran on for a time after it was told is its own affair: how fast a task stops is not the
// library's. When it was told is.
func overlaps(v *view) {
	byName := make(map[string][]*Span)
	for _, s := range v.spans {
		v.out.Counts["terms"]++
		v.cover(Overlap).Checked++ // against all before it; of those that have ended before, nothing is left to say
		running := slices.DeleteFunc(byName[s.Name], func(a *Span) bool { return a.End <= s.Start })
		for _, a := range running {
			v.pair(a, s)
		}
		byName[s.Name] = append(running, s)
	}
}

// pair judges b, which has begun while a was running.
func (v *view) pair(a, b *Span) {
	events := slices.Concat(a.events, b.events)
	length := min(a.End, b.End) - b.Start
	what := fmt.Sprintf("%v began while %v ran, for %v; it was told at %v", b, a, length.Round(time.Microsecond), v.toldText(a))
	if a.Node == b.Node {
		v.violate(Beside, b.Name, b.Start, what, events...)
		return
	}
	excuses := v.excuses(a)
	for _, e := range excuses {
		if e.allows(v, a, b.Start) {
			v.cover(Overlap).Excused[e.by.Kind]++
			v.measure("overlap", e.by.Kind, 0, length)
			return
		}
	}
	for _, e := range excuses {
		what += fmt.Sprintf("; %s #%d of [%v, %v] allows it from %v on, and the other to be told %v later", e.by.Kind, e.by.ID, v.since(e.by.From), v.since(e.by.Until), v.since(e.free), e.late)
	}
	if len(excuses) == 0 {
		what += "; it had no injury that allows it"
	}
	v.violate(Overlap, b.Name, b.Start, what, events...)
}

func (v *view) toldText(s *Span) string {
	if !s.WasTold {
		return "no time"
	}
	return fmt.Sprintf("%v (%s)", v.since(s.Told), s.Cause)
}

// told checks G2 and G3 without another task: one that has lost its lock is told in time, whether or not somebody else
// has it.
func told(v *view) {
	v.cover(Late)
	for _, s := range v.spans {
		n := v.nodes[s.Node]
		if s.Lost() {
			v.out.Counts["lost"]++
			v.unprovoked(n, s)
		}
		if v.sqlite {
			continue
		}
		for _, i := range n.injuries {
			bound, from, must := v.mustTell(n, s, i)
			if !must {
				continue
			}
			v.cover(Late).Checked++
			if s.Lost() && s.Told >= i.From {
				since := i.From
				if i.Reach == history.ReachFreeze {
					since = min(from, s.Told)
				}
				v.measure("told", i.Kind, bound, n.active(since, s.Told))
			}
			slack := After + Timer
			if bound == 0 {
				slack = After + Notice
			}
			if latest := n.awake(from, bound+slack); s.seen() > latest {
				what := fmt.Sprintf("%v was told at %v, after %s #%d of [%v, %v]: by %v it had to be", s, v.toldText(s), i.Kind, i.ID, v.since(i.From), v.since(i.Until), v.since(latest))
				v.violate(Late, s.Name, s.seen(), what, s.events...)
			}
		}
	}
}

// mustTell says whether an injury costs a task its lock for sure, and within what time after which moment it is to be told.
func (v *view) mustTell(n *node, s *Span, i *Injury) (bound, from time.Duration, must bool) {
	lease := v.ep.Options.Lease
	if s.Start > i.From || s.seen() < i.From {
		return 0, 0, false
	}
	switch i.Reach {
	case history.ReachNetwork: // no proof was sent that came back, unless it was over sooner
		return lease, i.From, i.Until-i.From > lease+After+Timer
	case history.ReachWrites: // of a server, the first proof that is sent from then on says so
		bound = v.ep.Options.Check
		if n.cutOff(i.From, i.Until) {
			bound = lease
		}
		return bound, i.From, i.Until-i.From > bound+After+Timer
	case history.ReachFreeze: // the lease has ended when it wakes
		return 0, i.Until, i.Until-i.From > lease+After && s.End > i.Until
	case history.ReachSession, history.ReachServer, history.ReachCut, history.ReachPrimary:
		if i.Reach == history.ReachPrimary || n.cutOff(i.From, i.Until+After+Notice) {
			return lease, i.Until, true
		}
		return 0, i.Until, true
	default:
		return 0, 0, false
	}
}

// active is how long the process was awake between two times.
func (n *node) active(from, until time.Duration) time.Duration {
	d := until - from
	for _, i := range n.injuries {
		if i.Reach == history.ReachFreeze {
			d -= max(0, min(until, i.Until)-max(from, i.From))
		}
	}
	return d
}

// unprovoked finds losses that no injury of the process explains (G8): what befalls others, the end of another task, or a server
// that has no more locks to give, costs nobody a lock.
func (v *view) unprovoked(n *node, s *Span) {
	cover := v.cover(Calmly)
	cover.Checked++
	for _, c := range v.calm {
		if grace := v.grace(); s.Start > c[0]+grace && s.Told < c[1] {
			v.violate(Calmly, s.Name, s.Told, fmt.Sprintf("%v was told at %v", s, v.toldText(s)), s.events...)
			return
		}
	}
	for _, i := range n.injuries {
		if i.From <= s.Told && classOf(i.Reach) != harmless && i.Reach != history.ReachLocks && s.Told <= n.awake(i.Until, After+v.ep.Options.Lease+Timer) {
			cover.Excused[i.Kind]++
			return
		}
	}
	v.violate(Calmly, s.Name, s.Told, fmt.Sprintf("%v was told at %v, and its process had no injury", s, v.toldText(s)), s.events...)
}

// terms checks G5 as the tasks see it.
func terms(v *view) {
	cover := v.cover(TermTwice)
	last := make(map[string][]*Span)
	for _, b := range v.spans {
		if b.Term == 0 { // without Options.Terms
			continue
		}
		cover.Checked++
		for _, a := range last[b.Name] {
			switch {
			case a.Term == b.Term:
				v.violate(TermTwice, b.Name, b.Start, fmt.Sprintf("%v and %v", a, b), slices.Concat(a.events, b.events)...)
			case a.Term > b.Term && a.Start <= b.Called, a.Term < b.Term && b.Start <= a.Called:
				v.violate(TermFell, b.Name, b.Start, fmt.Sprintf("%v, and later %v", a, b), slices.Concat(a.events, b.events)...)
			}
		}
		last[b.Name] = append(last[b.Name], b)
	}
}
