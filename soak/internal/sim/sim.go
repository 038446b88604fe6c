// SPDX-License-Identifier: MIT

// Package sim invents histories for the tests of the laboratory: of a fleet that keeps each promise of the library, but
// no more, under random faults. What the checkers find in one of them is a mistake of theirs. It shares no code with
// them.
package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/oxygenhub/leader/soak/history"
)

// Broken is what a fleet does that it must not, in each leadership in which it can.
type Broken string

// The ways to be broken.
const (
	Sound   Broken = ""
	Early   Broken = "the lock is given back before the task has returned"
	Eager   Broken = "the server frees the lock before the lease has ended"
	Deaf    Broken = "a task is not told that its session has ended"
	Asleep  Broken = "nobody asks for a lock that is free"
	Repeats Broken = "a term is not raised"
)

// fleet is one that is being invented.
type fleet struct {
	*rand.Rand
	ep       *history.Episode
	broken   Broken
	nodes    []*node
	injuries []injury
	close    time.Duration
	last     int64 // term
}

type node struct {
	name     string
	place    int
	up, gone time.Duration
	ops      int64
}

type injury struct {
	history.Injury
	from, until time.Duration
}

// Episode returns the history of four processes in two places, which a seed repeats.
func Episode(seed uint64, broken Broken) *history.Episode {
	f := &fleet{Rand: rand.New(rand.NewPCG(seed, 1)), broken: broken, close: 60 * time.Second} //nolint:gosec // of no secret
	f.ep = &history.Episode{
		Seed: seed, Backend: "postgres", Arena: "direct", Server: "PostgreSQL 15.14", Broken: string(broken),
		Options:  history.Timing{Retry: 200 * time.Millisecond, Check: 400 * time.Millisecond, Lease: time.Second, SessionTimeout: 3 * time.Second},
		StopTime: time.Second, Names: []string{"billing", "mail", "reports"}, Places: 2,
	}
	f.add(history.Event{Kind: history.Begin, Text: "invented"})
	for i := range 4 {
		f.born(i%2+1, 0)
	}
	f.plan()
	for _, name := range f.ep.Names {
		f.lead(name)
	}
	calm := f.injuries[len(f.injuries)-1].until + 100*time.Millisecond
	f.add(history.Event{At: calm, Kind: history.Calm}, history.Event{At: f.close, Kind: history.Close})
	for _, n := range f.nodes {
		if n.gone == f.close {
			f.add(history.Event{At: f.close + 2*time.Second, Kind: history.Down, Node: n.name})
		}
	}
	f.add(history.Event{At: f.close + 3*time.Second, Kind: history.End}, history.Event{At: f.close + 4*time.Second, Kind: history.Load})
	slices.SortStableFunc(f.ep.Events, func(a, b history.Event) int { return int(a.At - b.At) })
	return f.ep
}

func (f *fleet) add(events ...history.Event) { f.ep.Events = append(f.ep.Events, events...) }

func (f *fleet) upTo(d time.Duration) time.Duration { return time.Duration(f.Int64N(int64(d))) }

func (f *fleet) born(place int, at time.Duration) {
	n := &node{name: fmt.Sprintf("p%d.%d", place, len(f.nodes)+1), place: place, up: at, gone: f.close}
	f.nodes = append(f.nodes, n)
	f.add(history.Event{At: at, Kind: history.Up, Node: n.name, Place: place, PID: 100 + len(f.nodes)})
}

// plan draws the faults of the first two thirds.
func (f *fleet) plan() {
	kinds := []history.Injury{
		{Kind: "SIGKILL", Reach: history.ReachProcess},
		{Kind: "SIGSTOP", Reach: history.ReachFreeze},
		{Kind: "black hole", Reach: history.ReachNetwork},
		{Kind: "terminate backend", Reach: history.ReachSession},
		{Kind: "reset", Reach: history.ReachCut},
		{Kind: "storm", Reach: history.ReachLoad},
	}
	for at := time.Second + f.upTo(time.Second); at < 40*time.Second; at += 2*time.Second + f.upTo(4*time.Second) {
		i := injury{Injury: kinds[f.IntN(len(kinds))], from: at, until: at}
		n := f.nodes[f.IntN(len(f.nodes))]
		if n.gone < f.close {
			continue
		}
		i.ID, i.Node = len(f.injuries)+1, n.name
		switch i.Reach {
		case history.ReachProcess:
			n.gone = at
			f.born(n.place, at+300*time.Millisecond)
		case history.ReachFreeze, history.ReachNetwork, history.ReachLoad:
			i.until += f.upTo(6 * time.Second)
		}
		if i.Reach == history.ReachNetwork && f.IntN(2) == 0 {
			i.Node, i.Place = "", n.place
		}
		i.For = i.until - i.from
		f.injuries = append(f.injuries, i)
		f.add(history.Event{At: i.from, Kind: history.Fault, Fault: &i.Injury}, history.Event{At: i.until, Kind: history.Heal, Fault: &i.Injury})
	}
}

func (i injury) of(n *node) bool {
	return i.Reach != history.ReachLoad && (i.Node == n.name || i.Node == "" && i.Place == n.place)
}

// well returns a process that can ask at the time and has been able to for a while, and the first time from then on at
// which there is one.
func (f *fleet) well(at time.Duration) (*node, time.Duration) {
	for ; ; at += 50 * time.Millisecond {
		fit := slices.DeleteFunc(slices.Clone(f.nodes), func(n *node) bool {
			return n.up+500*time.Millisecond > at || n.gone <= at || slices.ContainsFunc(f.injuries, func(i injury) bool {
				return i.of(n) && i.from <= at && at < i.until+f.ep.Options.SessionTimeout
			})
		})
		if len(fit) > 0 {
			return fit[f.IntN(len(fit))], at
		}
	}
}

// lead invents who leads a name, one after the other.
func (f *fleet) lead(name string) {
	waits := make(map[*node]time.Duration) // since when
	busy := make(map[*node]time.Duration)  // until when its last task runs
	at := 600 * time.Millisecond
	for at < f.close {
		n, start := f.well(at)
		if start < busy[n] {
			at = start + 10*time.Millisecond
			continue
		}
		if start >= f.close {
			break
		}
		op := n.op()
		called := max(waits[n], n.up) + time.Millisecond
		told, cause, stop, next := f.term(n, start)
		if n.gone < f.close && stop >= n.gone { // it dies before that
			stop, next = n.gone, max(start, min(next, n.gone+f.upTo(f.ep.Options.Retry)))
			if told >= n.gone {
				told = 0
			}
		}
		if f.broken != Repeats || f.last == 0 {
			f.last++
		}
		e := history.Event{Node: n.name, Op: op, Name: name, Term: f.last}
		f.say(e, history.Contend, called)
		f.say(e, history.Start, start)
		if told > 0 {
			e.Cause = cause
			f.say(e, history.Told, told)
			e.Cause = ""
		}
		if stop < n.gone || n.gone == f.close {
			f.say(e, history.Stop, stop)
			f.say(e, history.Done, stop+time.Millisecond)
		}
		waits[n], busy[n], at = stop+time.Millisecond, stop+2*time.Millisecond, next
	}
	for _, n := range f.nodes { // those that wait in vain
		since := max(waits[n], n.up) + time.Millisecond
		if since < min(n.gone, f.close) {
			e := history.Event{Node: n.name, Op: n.op(), Name: name}
			f.say(e, history.Contend, since)
			if n.gone == f.close {
				e.Text = "context canceled"
				f.say(e, history.Done, max(since, f.close+time.Second))
			}
		}
	}
}

func (n *node) op() int64 {
	n.ops++
	return n.ops
}

func (f *fleet) say(e history.Event, kind history.Kind, at time.Duration) {
	e.At, e.Kind = at, kind
	f.add(e)
}

// term invents when a task that begins is told and stops, and when the lock is free and somebody asks for it.
func (f *fleet) term(n *node, start time.Duration) (told time.Duration, cause history.Cause, stop, next time.Duration) {
	o := f.ep.Options
	end := start + 200*time.Millisecond + f.upTo(5*time.Second)
	ask := f.upTo(o.Retry)
	if f.broken == Asleep && f.IntN(4) == 0 {
		ask += 8 * time.Second
	}
	slow := f.upTo(f.ep.StopTime)
	for _, i := range f.injuries {
		if !i.of(n) || i.from < start || i.from > end {
			continue
		}
		early := time.Duration(0)
		if f.broken == Eager {
			early = o.SessionTimeout - o.Lease
		}
		switch long := i.until - i.from; {
		case i.Reach == history.ReachProcess:
			return 0, "", i.from, i.from + ask
		case i.Reach == history.ReachFreeze && long > o.SessionTimeout:
			told = i.until + f.upTo(20*time.Millisecond)
			return told, history.CauseLost, told + slow, i.from + o.SessionTimeout - f.upTo(o.Check) - early + ask
		case i.Reach == history.ReachFreeze && long > o.Lease:
			told = i.until + f.upTo(20*time.Millisecond)
			return told, history.CauseLost, told + slow, max(i.from+o.SessionTimeout, told+slow) + ask
		case i.Reach == history.ReachNetwork && long > o.Lease:
			sent := i.from - f.upTo(o.Check)
			told = max(start, sent+o.Lease)
			return told, history.CauseLost, told + slow, told - o.Lease + o.SessionTimeout - early + ask
		case i.Reach == history.ReachSession || i.Reach == history.ReachCut:
			told = i.from + f.upTo(20*time.Millisecond)
			if f.broken == Deaf {
				told += 3 * time.Second
			}
			return told, history.CauseLost, told + slow, i.from + ask
		}
	}
	if end > f.close || f.IntN(3) == 0 { // its caller ends it
		told, cause = min(end, f.close+time.Millisecond), history.CauseCaller
		stop = told + slow
	} else {
		stop = end
	}
	next = stop + ask
	if f.broken == Early {
		next = max(start+10*time.Millisecond, stop-5*time.Millisecond)
	}
	return told, cause, stop, next
}
