// SPDX-License-Identifier: MIT

// Package faults is what is done to a fleet: a plan that is a function of a seed, and how each fault is done and undone.
package faults

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/oxygenhub/leader/soak/history"
)

// The kinds of faults.
const (
	Kill    = "kill"    // SIGKILL; another process starts when the fault is undone
	Pause   = "pause"   // SIGSTOP and SIGCONT
	Replace = "replace" // the process leaves in the orderly way, and another starts

	Resigns = "resigns"       // the process resigns and comes back, several times
	Storm   = "storm"         // many calls of Run and Try at once, which end soon
	Clock   = "clock forward" // the wall clock of the process jumps
	Back    = "clock back"
	Slow    = "slow tasks"
	Stub    = "stubborn tasks" // which ignore their context
	Panics  = "panics"
	Crowd   = "crowd" // many processes start at once, and leave again

	Terminate = "terminate"       // pg_terminate_backend of the sessions of a place
	Hole      = "black hole"      // nothing gets through, either way
	HoleUp    = "black hole up"   // to the server
	HoleDown  = "black hole down" // from the server
	Killed    = "killed in a black hole"
	Delay     = "delay" // what comes from the server is late
	Stall     = "stall" // nothing moves, and all arrives at the end
	Reset     = "reset"
	AppHole   = "application: black hole" // of the transactions of the tasks
	AppReset  = "application: reset"
	AllHole   = "all: black hole"
	LinkDown  = "link down" // of the host, a network namespace
	Silence   = "silence"   // a router drops all packets
	NoRoute   = "no route"  // a router answers that the host cannot be reached

	Fast      = "restart fast"
	Immediate = "restart immediate"
	Crash     = "crash of another backend" // the server ends all sessions and recovers
	Full      = "lock table full"
	ReadOnly  = "read-only"
	Bounce    = "pooler restart"
	Promote   = "promotion" // the primary dies, and its replica takes over
	DiskFull  = "disk full"
)

// lane says what a kind excludes: of one lane, one thing happens after the other.
type lane int

const (
	process lane = iota // of each place
	network             // of each place
	server              // of the fleet
)

// kind is what the plan knows of a kind of fault.
type kind struct {
	name   string
	lane   lane
	reach  history.Reach
	arenas string // those that have it
	weight int    // in its lane
	brief  bool   // it is done at once, and needs no time until it is undone
	once   bool   // at most once in an episode
}

// Everything but SQLite, and everything that has a proxy at each place.
const (
	everywhere = "direct pooler replica remote sqlite"
	onServer   = "direct pooler replica remote"
	byProxy    = "direct pooler replica"
)

//nolint:gochecknoglobals // a constant table
var kinds = []kind{
	{name: Kill, lane: process, reach: history.ReachProcess, arenas: everywhere, weight: 4},
	{name: Pause, lane: process, reach: history.ReachFreeze, arenas: everywhere, weight: 4},
	{name: Replace, lane: process, reach: history.ReachLoad, arenas: everywhere, weight: 2},
	{name: Resigns, lane: process, reach: history.ReachLoad, arenas: everywhere, weight: 2},
	{name: Storm, lane: process, reach: history.ReachLoad, arenas: everywhere, weight: 2, brief: true},
	{name: Clock, lane: process, reach: history.ReachClock, arenas: everywhere, weight: 1, brief: true},
	{name: Back, lane: process, reach: history.ReachClock, arenas: everywhere, weight: 1, brief: true},
	{name: Slow, lane: process, reach: history.ReachLoad, arenas: everywhere, weight: 1},
	{name: Stub, lane: process, reach: history.ReachLoad, arenas: everywhere, weight: 1},
	{name: Panics, lane: process, reach: history.ReachLoad, arenas: everywhere, weight: 1},

	{name: Terminate, lane: network, reach: history.ReachSession, arenas: onServer, weight: 3, brief: true},
	{name: Hole, lane: network, reach: history.ReachNetwork, arenas: byProxy, weight: 3},
	{name: HoleUp, lane: network, reach: history.ReachNetwork, arenas: byProxy, weight: 2},
	{name: HoleDown, lane: network, reach: history.ReachNetwork, arenas: byProxy, weight: 2},
	{name: Killed, lane: network, reach: history.ReachNetwork, arenas: byProxy, weight: 2},
	{name: Delay, lane: network, reach: history.ReachDelay, arenas: byProxy, weight: 2},
	{name: Stall, lane: network, reach: history.ReachNetwork, arenas: byProxy, weight: 2},
	{name: Reset, lane: network, reach: history.ReachCut, arenas: byProxy, weight: 3, brief: true},
	{name: AppHole, lane: network, reach: history.ReachLoad, arenas: byProxy, weight: 2},
	{name: AppReset, lane: network, reach: history.ReachLoad, arenas: byProxy, weight: 1, brief: true},
	{name: AllHole, lane: network, reach: history.ReachNetwork, arenas: byProxy, weight: 2},
	{name: LinkDown, lane: network, reach: history.ReachNetwork, arenas: "remote", weight: 3},
	{name: Silence, lane: network, reach: history.ReachNetwork, arenas: "remote", weight: 3},
	{name: NoRoute, lane: network, reach: history.ReachNetwork, arenas: "remote", weight: 3},

	{name: Fast, lane: server, reach: history.ReachServer, arenas: onServer, weight: 2},
	{name: Immediate, lane: server, reach: history.ReachServer, arenas: onServer, weight: 2},
	{name: Crash, lane: server, reach: history.ReachServer, arenas: onServer, weight: 2, brief: true},
	{name: Full, lane: server, reach: history.ReachLocks, arenas: onServer, weight: 2},
	{name: ReadOnly, lane: server, reach: history.ReachWrites, arenas: onServer, weight: 2},
	{name: Crowd, lane: server, reach: history.ReachLoad, arenas: everywhere, weight: 2},
	{name: Bounce, lane: server, reach: history.ReachServer, arenas: "pooler", weight: 6},
	{name: Promote, lane: server, reach: history.ReachPrimary, arenas: "replica", weight: 8, once: true},
	{name: DiskFull, lane: server, reach: history.ReachWrites, arenas: "sqlite", weight: 6},
}

// Kinds are the names of what may happen in an arena.
func Kinds(arena string) (names []string) {
	for _, k := range kinds {
		if k.in(arena) {
			names = append(names, k.name)
		}
	}
	return names
}

func (k kind) in(arena string) bool { return slices.Contains(strings.Fields(k.arenas), arena) }

// Fault is one thing that is done, at At after the begin of the faults.
type Fault struct {
	history.Injury

	At   time.Duration
	Dice uint64 // for what is random in the fault itself
	lane lane
}

func (f Fault) String() string {
	place := "all"
	if f.Place != 0 {
		place = fmt.Sprint("place ", f.Place)
	}
	return fmt.Sprintf("%7v + %-6v %-8s %s", f.At.Round(time.Millisecond), f.For.Round(time.Millisecond), place, f.Kind)
}

// New is one fault that does not come from a plan. It panics for a kind that nobody knows.
func New(name string, place int, at, length time.Duration) Fault {
	for _, k := range kinds {
		if k.name == name {
			return Fault{Injury: history.Injury{Kind: name, Reach: k.reach, Place: place, For: length}, At: at, lane: k.lane, Dice: 1}
		}
	}
	panic("soak: nobody knows the fault " + name)
}

// Plan is the faults of an episode of the arena, which begin in the course of length. The same arguments make the same plan.
func Plan(seed uint64, arena string, places int, timing history.Timing, length time.Duration) (plan []Fault) {
	random := rand.New(rand.NewPCG(seed, 1))
	for place := 1; place <= places; place++ {
		plan = append(plan, one(random, process, arena, place, timing, length)...)
		plan = append(plan, one(random, network, arena, place, timing, length)...)
	}
	return number(append(plan, one(random, server, arena, 0, timing, length)...))
}

// Deploy adds to a plan that the process of one place after the other is replaced, spread over length.
func Deploy(plan []Fault, places int, length time.Duration) []Fault {
	for place := 1; place <= places; place++ {
		plan = append(plan, New(Replace, place, length*time.Duration(place)/time.Duration(places+1), 100*time.Millisecond))
	}
	return number(plan)
}

// number sorts a plan and numbers it.
func number(plan []Fault) []Fault {
	slices.SortStableFunc(plan, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	for i := range plan {
		plan[i].ID = i + 1
	}
	return plan
}

// one is the plan of one lane.
func one(random *rand.Rand, l lane, arena string, place int, timing history.Timing, length time.Duration) (plan []Fault) {
	var choice []kind // each as often as it weighs
	for _, k := range kinds {
		if k.lane == l && k.in(arena) {
			for range k.weight {
				choice = append(choice, k)
			}
		}
	}
	rest := between(random, timing.SessionTimeout/2, 3*timing.SessionTimeout)
	if l == server { // which hits everybody: rarer
		rest = between(random, timing.SessionTimeout, 4*timing.SessionTimeout)
	}
	for at := rest; at < length && len(choice) > 0; {
		k := choice[random.IntN(len(choice))]
		f := New(k.name, place, at, duration(random, k, timing))
		f.Dice = random.Uint64()
		plan = append(plan, f)
		if k.once {
			choice = slices.DeleteFunc(choice, func(c kind) bool { return c.name == k.name })
		}
		at += f.For + between(random, timing.SessionTimeout/4, 2*timing.SessionTimeout)
	}
	return plan
}

// duration is short against the lease, between it and the session's timeout, or long.
func duration(random *rand.Rand, k kind, timing history.Timing) time.Duration {
	dice := random.IntN(10)
	d := between(random, timing.Lease/10, timing.Lease)
	switch {
	case k.brief:
		return 0
	case dice >= 6:
		d = between(random, timing.SessionTimeout, 2*timing.SessionTimeout)
	case dice >= 3:
		d = between(random, timing.Lease, timing.SessionTimeout)
	}
	return d
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}
