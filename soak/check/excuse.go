// SPDX-License-Identifier: MIT

package check

import (
	"time"

	"github.com/oxygenhub/leader/soak/history"
)

// class is what an injury means for a lock.
type class int

const (
	harmless class = iota
	quiet          // the server hears nothing, or nothing good: it keeps the lock for SessionTimeout after the last word
	frozen         // so it is, and the process hears nothing either until it wakes
	ended          // the server has ended the session, and says so
	switched       // another server knows of no lock, and nobody says so
)

func classOf(r history.Reach) class {
	switch r {
	case history.ReachNetwork, history.ReachDelay, history.ReachClock, history.ReachWrites, history.ReachLocks:
		return quiet
	case history.ReachFreeze:
		return frozen
	case history.ReachCut, history.ReachSession, history.ReachServer:
		return ended
	case history.ReachPrimary:
		return switched
	default: // the process is dead, or nothing is wrong
		return harmless
	}
}

// excuse is what an injury allows for a task: that the lock may have been free from some time on, and that the process may
// have learned of it so much later.
type excuse struct {
	by   *Injury
	free time.Duration // not before it
	late time.Duration // told at most so long after the lock was free, not counting the time for which it was frozen
	last time.Duration // another task begins no later because of it; 0 if at any time
}

// excuses returns what the injuries of its process allow for a task. A task that has lost its lock on SQLite has died.
func (v *view) excuses(s *Span) (all []excuse) {
	if v.sqlite {
		return nil
	}
	n := v.nodes[s.Node]
	held := v.ep.Options.SessionTimeout - v.ep.Options.Lease - Timer // for which the server keeps the lock after the process has given it up
	for _, i := range n.injuries {
		c := classOf(i.Reach)
		if c == harmless || i.From > s.End || i.Until+After < s.Start {
			continue
		}
		e, latest := v.excuse(n, s, i)
		switch over := c == ended || c == switched; {
		case !s.Lost():
		case over && s.Told < i.From:
			// It was told before, and the lock is free only now: a session that was given up is held open while its task stops.
			e.late, e.last = 0, 0
		case s.Told < i.From || s.Told > n.awake(i.Until, latest-i.Until):
			continue // another one was to blame
		default:
			e.last = 0 // it is known when the lock was lost; others may ask for it at any time
			if c == quiet && n.active(v.quietFrom(n, i), s.Told) == s.Told-v.quietFrom(n, i) {
				e.free = s.Told + held // it was told when its lease ended, which tells when the server heard of it last
			}
		}
		all = append(all, e)
	}
	return all
}

// excuse returns what an injury allows for a task of which nobody knows why it has lost its lock, and until when it can have been
// lost because of it.
func (v *view) excuse(n *node, s *Span, i *Injury) (e excuse, latest time.Duration) {
	opt := v.ep.Options
	held := opt.SessionTimeout - opt.Lease - Timer
	e = excuse{by: i, free: max(i.From, s.Start)}
	latest = i.Until + After
	switch classOf(i.Reach) {
	case quiet:
		latest += opt.Lease + Timer
		e.free = v.quietFrom(n, i) + held
		e.last = i.Until + After + opt.SessionTimeout + Backoff
	case frozen:
		latest += Notice
		e.free, e.late = v.quietFrom(n, i)+held, Notice
		e.last = i.Until + After + opt.SessionTimeout + Backoff
	case ended:
		e.late = Notice
		if n.cutOff(i.From, i.Until+After+Notice) {
			e.late = opt.Lease + Timer
		}
		latest += e.late
		e.last = i.Until + After + Backoff
	case switched:
		e.late = opt.Lease + Timer
		latest += e.late
		e.last = i.Until + After + Backoff
	default:
	}
	return e, latest
}

// quietFrom is since when the server may have heard nothing: since the first of the silences that follow each other up to
// this one.
func (v *view) quietFrom(n *node, i *Injury) time.Duration {
	from := i.From
	for again := true; again; {
		again = false
		for _, other := range n.injuries {
			c := classOf(other.Reach)
			if (c == quiet || c == frozen) && other.From < from && other.Until+After >= from {
				from, again = other.From, true
			}
		}
	}
	return from
}

// cutOff says whether nothing got through to the process, or was late, at some time of these.
func (n *node) cutOff(from, until time.Duration) bool {
	for _, i := range n.injuries {
		if (i.Reach == history.ReachNetwork || i.Reach == history.ReachDelay || i.Reach == history.ReachPrimary) && i.From <= until && i.Until+After >= from {
			return true
		}
	}
	return false
}

// awake returns when the process has been awake for d after a time.
func (n *node) awake(at, d time.Duration) time.Duration {
	until := at + d
	for again := true; again; {
		again = false
		sum := time.Duration(0)
		for _, i := range n.injuries {
			if i.Reach == history.ReachFreeze && i.From < until && i.Until > at {
				sum += i.Until - max(i.From, at)
			}
		}
		if at+d+sum > until {
			until, again = at+d+sum, true
		}
	}
	return until
}

// asleep says whether the process was frozen at the time, or had just been.
func (n *node) asleep(at time.Duration) bool {
	for _, i := range n.injuries {
		if i.Reach == history.ReachFreeze && i.From <= at && at <= i.Until+Notice {
			return true
		}
	}
	return false
}

// allows says whether another task may begin beside this one.
func (e excuse) allows(v *view, s *Span, begins time.Duration) bool {
	if begins < e.free || e.last > 0 && begins > e.last {
		return false
	}
	n := v.nodes[s.Node]
	late := e.late
	if late == 0 && n.asleep(begins) { // silence that a frozen process did not see the end of
		late = Notice
	}
	return s.seen() <= n.awake(begins, late)
}

// freeFrom is when the server may have freed the lock of a task at the earliest.
func (v *view) freeFrom(s *Span) time.Duration {
	from := s.End
	for _, e := range v.excuses(s) {
		from = min(from, max(e.free, s.Start))
	}
	return from
}
