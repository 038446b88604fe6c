// SPDX-License-Identifier: MIT

// Package check says what is wrong with the history of an episode, and what can be measured in it. It knows nothing of the
// library but what docs/guarantees.md promises, and nothing of the fleet but its history.
//
// # Excuses
//
// A fault allows some of what a healthy fleet must not do, and no more: an injury excuses the process or the place that had
// it, in its time and as long after as the bound of its kind says. Result.Coverage counts how much was looked at and
// what excused how much of it. A checker that finds nothing in nothing has said nothing.
//
// # What the laboratory owes
//
// Fault is written before a fault is done, and Heal after it is undone. Where either were the other way round, what a
// process does in between would be judged as if nothing had happened. A fenced transaction ends within Fence of its last
// statement, also where its process is frozen: a takeover waits for it.
package check

import (
	"slices"
	"time"

	"github.com/oxygenhub/leader/internal/ledger"
	"github.com/oxygenhub/leader/soak/history"
)

// Slack is what the bounds allow on top of what the library promises, because a machine with two cores runs a fleet, its
// databases and its faults. Each is some times what was seen at worst on such a machine, and far below the bound of the
// faults that it is to tell apart.
const (
	// After is how long a fault may take from its Heal line: a server ends a session after it has answered that it will.
	After = 500 * time.Millisecond
	// Notice is how long a process takes to see that its connection has ended, or that it has slept: at worst 171 ms were seen.
	Notice = 500 * time.Millisecond
	// Timer is how late a timer is: that of a lease was 3 ms late at worst, and a busy machine adds to it.
	Timer = 250 * time.Millisecond
	// Statement is how long statements take that end a gap: to ask, to begin a term, and the first of a new task.
	Statement = time.Second
	// Backoff is how long a process waits at most before it dials again, and how long it takes then.
	Backoff = 5*time.Second + Statement
	// Fence is how long a fenced transaction of the last term holds up the next one.
	Fence = 3 * time.Second
)

// Rule is what a Violation breaks.
type Rule string

// The rules besides those of package ledger, which are those of G4 and G5.
const (
	Overlap      Rule = "two tasks of a name run at a time" // G1, G2, G3
	Beside       Rule = "a process runs a task of a name beside its own"
	Late         Rule = "a task was told too late"                                // G2, G3
	Calmly       Rule = "a task was told that it had lost, and nothing was wrong" // G8
	Returned     Rule = "a call returned what has not happened"                   // G1
	Unled        Rule = "a name was not led for too long"                         // G6
	TermTwice    Rule = "two tasks have one term"                                 // G5
	TermFell     Rule = "a task that began later has an earlier term"
	Order        Rule = "locks and unlocks have no order in which a lock has one holder"
	Leak         Rule = "a process grows"
	Left         Rule = "the database holds something of a fleet that is gone"
	Cost         Rule = "the fleet asks too often"                // G7
	Holds        Rule = "a lock session holds what blocks others" // G7
	Broken       Rule = "a process saw what must never happen"
	Inconsistent Rule = "the history contradicts itself"
)

// Violation is something that must not happen, and did.
type Violation struct {
	Rule    Rule
	Name    string        // "" if it is not about one
	At      time.Duration // when it could be seen, on the clock of the events; 0 of commits, which have none
	Text    string        // what, with numbers
	Events  []history.Event
	Commits []history.Commit
}

// Coverage is what a checker looked at.
type Coverage struct {
	Rule    Rule
	Checked int            // pairs, intervals, terms or samples
	Excused map[string]int // of them: what would be a violation without the injury of this kind
	Skipped int            // of them: what could not be judged
}

// Series is something that was measured a number of times.
type Series struct {
	What   string        // takeover, overlap, told, gap
	Cause  string        // what had happened before
	Bound  time.Duration // without slack; 0 if there is none
	Values []time.Duration
}

// Result is what All says.
type Result struct {
	Violations []Violation
	Coverage   []Coverage
	Series     []Series       // by What and Cause
	Counts     map[string]int // of what happened: terms, losses, commits, refusals
	Rates      []Rate
}

// Rate is a figure with its bound.
type Rate struct {
	What         string
	Value, Bound float64
	Unit         string
}

// All runs all checkers on an episode. It reads no more than the episode and changes nothing in it. It returns after a time
// that grows with the events; the checker of linearizability gives up after ten seconds a name, which Coverage counts.
func All(ep *history.Episode) Result {
	v := look(ep)
	for _, run := range []func(*view){overlaps, told, terms, commits, available, takeovers, linear, leaks, left, costs, holds, broken} {
		run(v)
	}
	slices.SortStableFunc(v.out.Violations, func(a, b Violation) int { return int(a.At - b.At) })
	return v.out
}

func (v *view) violate(rule Rule, name string, at time.Duration, text string, events ...history.Event) {
	v.out.Violations = append(v.out.Violations, Violation{Rule: rule, Name: name, At: at, Text: text, Events: events})
}

// cover returns the Coverage of a rule, to count in, until that of another rule is asked for.
func (v *view) cover(rule Rule) *Coverage {
	for i := range v.out.Coverage {
		if v.out.Coverage[i].Rule == rule {
			return &v.out.Coverage[i]
		}
	}
	v.out.Coverage = append(v.out.Coverage, Coverage{Rule: rule, Excused: make(map[string]int)})
	return &v.out.Coverage[len(v.out.Coverage)-1]
}

// measure adds a value to a Series.
func (v *view) measure(what, cause string, bound, value time.Duration) {
	for i := range v.out.Series {
		if s := &v.out.Series[i]; s.What == what && s.Cause == cause {
			s.Values = append(s.Values, value)
			return
		}
	}
	v.out.Series = append(v.out.Series, Series{What: what, Cause: cause, Bound: bound, Values: []time.Duration{value}})
}

// commits checks G4 and G5 in the order of the database.
func commits(v *view) {
	const rule = Rule("fenced commits follow the order of terms")
	events := make([]ledger.Event, len(v.ep.Commits))
	for i, c := range v.ep.Commits {
		events[i] = ledger.Event(c)
	}
	v.cover(rule).Checked = len(events)
	for _, found := range ledger.Check(events) {
		v.out.Violations = append(v.out.Violations, Violation{
			Rule: Rule(found.Rule), Name: found.B.Name, Text: found.String(),
			Commits: []history.Commit{history.Commit(found.A), history.Commit(found.B)},
		})
	}
	v.out.Counts["commits"] = len(events)
}

// broken passes on what the processes have seen.
func broken(v *view) {
	for _, e := range v.ep.Events {
		switch e.Kind {
		case history.Broken:
			v.violate(Broken, e.Name, e.At, e.Node+": "+e.Text, e)
		case history.Fenced:
			v.out.Counts["refused by the fence"]++
		}
	}
}
