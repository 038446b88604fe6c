// SPDX-License-Identifier: MIT

package check_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/ledger"
	"github.com/oxygenhub/leader/soak/check"
	"github.com/oxygenhub/leader/soak/history"
)

func TestTerms(t *testing.T) {
	first := run("x", 1, 7, 10, 20, 1000)
	judge(t, "postgres", []row{
		{what: "they rise", events: h{first, run("y", 1, 8, 50, 1010, 2000), run("x", 2, 9, 60, 2010, 3000)}},
		{what: "there are none", events: h{run("x", 1, 0, 10, 20, 1000), run("y", 1, 0, 50, 1010, 2000)}},
		{what: "one twice", events: h{first, run("y", 1, 7, 50, 1010, 2000)}, want: []check.Rule{check.TermTwice}},
		{what: "of two names", events: h{first, task{node: "y", op: 1, term: 7, called: 50, start: 1010, stop: 2000, name: "b"}.events()}},
		{what: "one that is lower, of a task that is slow to begin", events: h{first, run("y", 1, 6, 5, 1010, 2000)}},
		{what: "one that is lower, of a later call", events: h{first, run("y", 1, 6, 50, 1010, 2000)}, want: []check.Rule{check.TermFell}},
		{what: "a task without a call", events: h{run("x", 1, 7, 10, 20, 1000)[1:2]}, want: []check.Rule{check.Inconsistent}},
		{what: "the end of no task", events: h{run("x", 1, 7, 10, 20, 1000)[:1], run("x", 1, 7, 10, 20, 1000)[2:]}, want: []check.Rule{check.Inconsistent, check.Returned}},
	})
}

func TestLossesWhileAllIsWell(t *testing.T) {
	cut := hurt(1, history.ReachCut, "x", 0, 900, 901)
	judge(t, "postgres", []row{
		{what: "with a reason", events: h{cut, lost("x", 1, 7, 10, 20, 910, 950)}},
		{what: "before it is calm", events: h{lost("x", 1, 7, 10, 20, 910, 950)}, want: []check.Rule{check.Calmly}},
		{what: "when the process beside it was hurt", events: h{hurt(1, history.ReachSession, "y", 0, 900, 901), lost("x", 1, 7, 10, 20, 910, 950)}, want: []check.Rule{check.Calmly}},
		{what: "when the server had no more locks", events: h{hurt(1, history.ReachLocks, "", 0, 900, 3000), lost("x", 1, 7, 10, 20, 910, 950)}, want: []check.Rule{check.Calmly}},
		{what: "in the calm", events: h{cut, at(1000, history.Calm), lost("x", 1, 7, 10, 11000, 12000, 12010), at(12500, history.Close)}, want: []check.Rule{check.Calmly}},
		{what: "when it is calm no more", events: h{cut, at(1000, history.Calm), lost("x", 1, 7, 10, 11000, 12000, 12010), hurt(2, history.ReachCut, "x", 0, 11990, 11991)}},
		{what: "of a task that began before", events: h{cut, at(1000, history.Calm), lost("x", 1, 7, 10, 1100, 1900, 1910), at(2000, history.Close)}},
	})
}

func TestAvailability(t *testing.T) {
	const unled = check.Unled
	session, process, network, freeze := history.ReachSession, history.ReachProcess, history.ReachNetwork, history.ReachFreeze
	waits := func(node string, from int) []history.Event { return run(node, 9, 0, from, from, from)[:1] }
	leads := func(node string, start int) []history.Event { return run(node, 9, 0, 50, start, start+20000) }
	end := at(30000, history.Close)
	dead := task{node: "x", op: 1, called: 10, start: 20}.events()
	judge(t, "postgres", []row{
		{what: "nobody waits", events: h{run("x", 1, 0, 10, 20, 1000), end}},
		{what: "at once", events: h{run("x", 1, 0, 10, 20, 1000), leads("y", 1100)}},
		{what: "not any more, as the fleet leaves", events: h{run("x", 1, 0, 10, 20, 1000), waits("y", 50), at(2000, history.Close), at(20000, history.End)}, want: []check.Rule{check.Left, check.Left, check.Left}},
		{what: "nobody leads though one waits", events: h{run("x", 1, 0, 10, 20, 1000), waits("y", 50), end}, want: []check.Rule{unled}},
		{what: "nobody ever leads", events: h{waits("y", 50), end}, want: []check.Rule{unled}},
		{what: "nobody ever leads, though each was hurt at some time", events: h{waits("x", 50), waits("y", 50), waits("z", 50), hurt(1, session, "", 0, 12000, 12001), at(14000, history.Calm), at(22000, history.Close)}, want: []check.Rule{unled}},
		{what: "nobody leads any more, a long time after each was hurt", events: h{run("x", 1, 0, 10, 20, 3000), waits("y", 50), waits("z", 50), hurt(1, session, "", 0, 3000, 3001), at(20000, history.Close)}, want: []check.Rule{unled}},
		{what: "somebody leads late", events: h{run("x", 1, 0, 10, 20, 1000), leads("y", 5300)}, want: []check.Rule{unled}},
		{what: "somebody leads, who had not waited", events: h{run("x", 1, 0, 10, 20, 1000), run("y", 9, 0, 5250, 5300, 9000)}},
		{what: "killed, and one leads in time", events: h{hurt(1, process, "x", 0, 900, 900), dead, leads("y", 1100)}},
		{what: "killed, and one leads late", events: h{hurt(1, process, "x", 0, 900, 900), dead, leads("y", 5500)}, want: []check.Rule{unled}},
		{what: "killed, and the one that waits is cut off", events: h{hurt(1, process, "x", 0, 900, 900), dead, hurt(2, network, "y", 0, 950, 5300), leads("y", 5500)}},
		{what: "killed, and another one is cut off that does not wait", events: h{hurt(1, process, "x", 0, 900, 900), dead, hurt(2, network, "z", 0, 950, 5300), leads("y", 5500)}, want: []check.Rule{unled}},
		{what: "killed, and another one that may have the lock is cut off", events: h{hurt(1, process, "x", 0, 900, 900), dead, hurt(2, network, "z", 0, 950, 5300), waits("z", 50), leads("y", 5500)}},
		{what: "in silence, and one leads when it may", events: h{hurt(1, network, "x", 0, 900, 9000), lost("x", 1, 0, 10, 20, 1900, 2000), leads("y", 4000)}},
		{what: "in silence, and one leads late", events: h{hurt(1, network, "x", 0, 900, 9000), lost("x", 1, 0, 10, 20, 1900, 2000), leads("y", 12700)}, want: []check.Rule{unled}},
		{what: "frozen, and one leads when it may", events: h{hurt(1, freeze, "x", 0, 900, 20000), leads("y", 4000), lost("x", 1, 0, 10, 20, 20010, 20020)}},
		{what: "frozen, and nobody ever leads", events: h{hurt(1, freeze, "x", 0, 900, 25000), waits("y", 50), lost("x", 1, 0, 10, 20, 25010, 25020), run("z", 1, 0, 60, 25030, 30000)}, want: []check.Rule{unled}},

		{what: "calm, and at once", events: h{hurt(1, session, "", 0, 100, 101), at(500, history.Calm), run("x", 1, 0, 400, 1000, 12000), leads("y", 12100), end}},
		{what: "calm, and late", events: h{hurt(1, session, "", 0, 100, 101), at(500, history.Calm), run("x", 1, 0, 400, 1000, 12000), leads("y", 13200), end}, want: []check.Rule{unled}},
		{what: "calm for not long enough", events: h{hurt(1, session, "", 0, 3000, 3001), at(3500, history.Calm), run("x", 1, 0, 10, 20, 3000), leads("y", 12000), end}},
		{what: "calm, and nobody ever leads", events: h{hurt(1, session, "", 0, 100, 101), at(500, history.Calm), waits("y", 50), end}, want: []check.Rule{unled}},
	})
}

// TestReturned: what calls say of themselves.
func TestReturned(t *testing.T) {
	call := func(once, ran bool, text string) []history.Event {
		return []history.Event{
			{At: ms(10), Kind: history.Contend, Node: "x", Op: 1, Name: "a", Once: once},
			{At: ms(500), Kind: history.Done, Node: "x", Op: 1, Name: "a", Once: once, Ran: ran, Text: text},
		}
	}
	task := run("x", 1, 7, 10, 20, 400)[1:3]
	want := []check.Rule{check.Returned}
	judge(t, "postgres", []row{
		{what: "Run, of its task", events: h{call(false, true, ""), task}},
		{what: "Run, with an error", events: h{call(false, true, "context canceled")}},
		{what: "Try, of its task", events: h{call(true, true, ""), task}},
		{what: "Try, of the task of another", events: h{call(true, false, ""), run("y", 1, 7, 5, 6, 600)}},
		{what: "Run, of no task", events: h{call(false, true, "")}, want: want},
		{what: "Try, of no task", events: h{call(true, true, ""), run("y", 1, 7, 5, 6, 600)}, want: want},
		{what: "Try, that nothing has run, and it has", events: h{call(true, false, ""), task}, want: want},
		{what: "before the task", events: h{call(false, true, ""), run("x", 1, 7, 10, 20, 600)[1:3]}, want: want},
	})
}

func TestTries(t *testing.T) {
	try := func(node string, op int64, from, until int, text string) []history.Event {
		return []history.Event{
			{At: ms(from), Kind: history.Contend, Node: node, Op: op, Name: "a", Once: true},
			{At: ms(until), Kind: history.Done, Node: node, Op: op, Name: "a", Text: text},
		}
	}
	judge(t, "postgres", []row{
		{what: "beside a leader", events: h{run("x", 1, 7, 10, 20, 1000), try("z", 1, 500, 510, "")}},
		{what: "while one begins", events: h{run("x", 1, 7, 10, 20, 1000), try("z", 1, 12, 15, "")}},
		{what: "and failed", events: h{run("x", 1, 7, 10, 20, 1000), try("z", 1, 1500, 1510, "no session")}},
		{what: "when nobody has it", events: h{run("x", 1, 7, 10, 20, 1000), try("z", 1, 1500, 1510, "")}, want: []check.Rule{check.Order}},
		{what: "when one may have it who shows no task", events: h{run("x", 1, 7, 10, 20, 1000), run("y", 1, 8, 1400, 1, 1)[:1], try("z", 1, 1500, 1510, ""), at(1600, history.Close)}},
	})
}

func TestLeaks(t *testing.T) {
	samples := func(number, from int, of func(n int) history.Event) (all []history.Event) {
		for n := range number {
			e := of(n)
			e.At, e.Kind, e.Node = ms(from+1000*n), history.Sample, "x"
			all = append(all, e)
		}
		return all
	}
	constant := func(int) history.Event { return history.Event{Goroutines: 20, Files: 9, Heap: 4 << 20} }
	most := func(int) history.Event { return history.Event{Goroutines: 100, Files: 90, Heap: 40 << 20} }
	judge(t, "postgres", []row{
		{what: "constant", events: h{samples(30, 0, constant)}},
		{what: "up and down", events: h{samples(30, 0, func(n int) history.Event {
			return history.Event{Goroutines: 20 + n%2*50, Files: 9 + n%3*9, Heap: int64(n%5) << 24}
		})}},
		{what: "more with another task", events: h{samples(15, 0, constant), run("x", 1, 7, 15000, 15000, 29999), samples(14, 15001, most)}},
		{what: "goroutines", events: h{samples(30, 0, func(n int) history.Event { return history.Event{Goroutines: 20 + n} })}, want: []check.Rule{check.Leak}},
		{what: "files", events: h{samples(30, 0, func(n int) history.Event { return history.Event{Files: 9 + n} })}, want: []check.Rule{check.Leak}},
		{what: "heap", events: h{samples(30, 0, func(n int) history.Event { return history.Event{Heap: int64(n) << 20} })}, want: []check.Rule{check.Leak}},
		{what: "too few to say", events: h{samples(11, 0, func(n int) history.Event { return history.Event{Goroutines: 20 * n} })}},
	})
}

func TestLeft(t *testing.T) {
	leave := func(nodes ...string) (all []history.Event) {
		for _, n := range nodes {
			all = append(all, history.Event{At: ms(5000), Kind: history.Down, Node: n})
		}
		return all
	}
	load := func(e history.Event) []history.Event {
		e.At, e.Kind = ms(6500), history.Load
		return []history.Event{e}
	}
	all, end := leave("x", "y", "z"), at(6000, history.End)
	busy := []history.Event{{At: ms(5500), Kind: history.Load, Backends: 3, Locks: 4}}
	judge(t, "postgres", []row{
		{what: "nothing", events: h{all, busy, end, load(history.Event{})}},
		{what: "it was not looked at", events: h{all, busy, end}},
		{what: "a session", events: h{all, end, load(history.Event{Backends: 1})}, want: []check.Rule{check.Left}},
		{what: "a lock", events: h{all, end, load(history.Event{Locks: 1})}, want: []check.Rule{check.Left}},
		{what: "a transaction", events: h{all, end, load(history.Event{Open: 1})}, want: []check.Rule{check.Left}},
		{what: "a process that was killed", events: h{leave("x", "y"), hurt(1, history.ReachProcess, "z", 0, 100, 100), end}},
		{what: "a process that has died", events: h{leave("x", "y"), end}, want: []check.Rule{check.Left}},
		{what: "a process that has died, and another was killed", events: h{leave("x"), hurt(1, history.ReachProcess, "z", 0, 100, 100), end}, want: []check.Rule{check.Left}},
	})
}

// TestCosts: three processes may ask 12.5 times a second, and look 5 times.
func TestCosts(t *testing.T) {
	calm := func(perSecond int64, e history.Event) (all []history.Event) {
		all = append(at(1000, history.Calm), processes()[1:]...)
		for n := range 20 {
			e.At, e.Kind, e.Statements = ms(12000+1000*n), history.Load, perSecond*int64(n)
			all = append(all, e)
		}
		for i := range all[1:4] {
			all = append(all, history.Event{At: ms(40000), Kind: history.Down, Node: all[1+i].Node})
		}
		return append(all, history.Event{At: ms(41000), Kind: history.Close})
	}
	frozen := hurt(1, history.ReachFreeze, "x", 0, 11000, 29000)
	judge(t, "postgres", []row{
		{what: "few", events: h{calm(50, history.Event{})}},
		{what: "more than Retry and Check", events: h{calm(60, history.Event{})}, want: []check.Rule{check.Cost}},
		{what: "more, and one leads and stops", events: h{calm(60, history.Event{}), run("x", 1, 7, 12500, 12600, 14000), run("x", 2, 8, 14500, 14600, 16000), run("x", 3, 9, 16500, 16600, 18000)}},
		{what: "more, and it is not calm", events: h{calm(60, history.Event{})[1:]}},
		{what: "snapshots", events: h{calm(50, history.Event{Snapshots: 1})}, want: []check.Rule{check.Holds}},
		{what: "transactions", events: h{calm(50, history.Event{Open: 1})}, want: []check.Rule{check.Holds}},
		{what: "transactions of who is frozen", events: h{calm(50, history.Event{Open: 1})[:20], frozen}},
	})
}

// TestNothingIsCalledLookedAt: where there is nothing to see, the report must not say that it was looked at.
func TestNothingIsCalledLookedAt(t *testing.T) {
	looked := func(backend string, statements int64) map[check.Rule]int {
		ep := episode(at(1000, history.Calm))
		for n := range 20 {
			ep.Events = append(ep.Events, history.Event{At: ms(12000 + 1000*n), Kind: history.Load, Statements: statements})
		}
		ep.Events = append(ep.Events, at(41000, history.Close)...)
		ep.Backend = backend
		found := make(map[check.Rule]int)
		for _, c := range check.All(ep).Coverage {
			found[c.Rule] = c.Checked
		}
		return found
	}
	counted := looked("postgres", 1)
	assert.NotZero(t, counted[check.Cost])
	assert.NotZero(t, counted[check.Holds])
	assert.Zero(t, looked("postgres", 0)[check.Cost], "no proxy counts statements")
	assert.Zero(t, looked("sqlite", 0)[check.Cost])
	assert.Zero(t, looked("sqlite", 0)[check.Holds])
}

func TestCommitsAndBroken(t *testing.T) {
	ep := episode()
	ep.Commits = []history.Commit{
		{Wrote: 1, Committed: 2, Name: "a", Term: 7, Node: "x", Begun: true},
		{Wrote: 3, Committed: 4, Name: "a", Term: 7, Node: "x"},
		{Wrote: 5, Committed: 6, Name: "a", Term: 8, Node: "y", Begun: true},
	}
	require.Empty(t, check.All(ep).Violations)
	assert.Equal(t, 3, check.All(ep).Counts["commits"])
	ep.Commits = append(ep.Commits, history.Commit{Wrote: 7, Committed: 8, Name: "a", Term: 7, Node: "x"})
	ep.Events = append(ep.Events, history.Event{At: ms(9), Kind: history.Broken, Node: "z", Text: "no cause"})
	found := check.All(ep).Violations
	require.Len(t, found, 2)
	assert.EqualValues(t, ledger.Stale, found[0].Rule)
	assert.Equal(t, []history.Commit{ep.Commits[2], ep.Commits[3]}, found[0].Commits)
	assert.Equal(t, check.Broken, found[1].Rule)
	assert.Equal(t, "z: no cause", found[1].Text)
}

// TestMeasures: what was measured carries the cause and the bound, and what was looked at is counted.
func TestMeasures(t *testing.T) {
	got := check.All(episode(
		hurt(1, history.ReachProcess, "x", 0, 900, 900), task{node: "x", op: 1, term: 7, called: 10, start: 20}.events(),
		run("y", 1, 8, 50, 1000, 2000), run("z", 1, 9, 60, 2004, 3000),
		hurt(2, history.ReachSession, "z", 0, 4000, 4001), lost("z", 2, 10, 3010, 3020, 4005, 4300), run("y", 2, 11, 2500, 4003, 9000),
		at(9001, history.Close),
	))
	require.Empty(t, got.Violations)
	values := make(map[string][]int64)
	for _, s := range got.Series {
		for _, d := range s.Values {
			values[s.What+", "+s.Cause] = append(values[s.What+", "+s.Cause], d.Milliseconds())
		}
	}
	assert.Equal(t, map[string][]int64{
		"takeover, killed": {100}, "takeover, released": {4}, "takeover, a session": {3},
		"without a leader, killed": {100}, "without a leader, released": {4},
		"overlap, a session": {297}, "told, a session": {5},
	}, values)
	assert.Equal(t, 5, got.Counts["terms"])
	assert.Equal(t, 1, got.Counts["lost"])
}

// TestAcross: one loss that is heard of late is no violation, and most of them are.
func TestAcross(t *testing.T) {
	of := func(n int, d time.Duration, cause string) check.Result {
		return check.Result{Series: []check.Series{{What: "told", Cause: cause, Values: slices.Repeat([]time.Duration{d}, n)}}}
	}
	for _, c := range []struct {
		what    string
		results []check.Result
		found   bool
	}{
		{"at once", []check.Result{of(15, time.Millisecond, "terminate"), of(15, time.Millisecond, "reset")}, false},
		{"some late", []check.Result{of(16, time.Millisecond, "terminate"), of(14, time.Second, "reset")}, false},
		{"most late", []check.Result{of(14, time.Millisecond, "terminate"), of(16, 60*time.Millisecond, "reset")}, true},
		{"too few", []check.Result{of(19, time.Second, "terminate")}, false},
		{"of what takes its time", []check.Result{of(100, time.Second, "black hole")}, false},
	} {
		v, found := check.Across(c.results)
		assert.Equal(t, c.found, found, "%s: %s", c.what, v.Text)
	}
}
