// SPDX-License-Identifier: MIT

package check_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/oxygenhub/leader/soak/check"
	"github.com/oxygenhub/leader/soak/history"
)

// The options of all episodes here. The server keeps the lock for 2 s after a process has given it up.
func timing() history.Timing {
	return history.Timing{Retry: 100 * time.Millisecond, Check: 200 * time.Millisecond, Lease: time.Second, SessionTimeout: 3 * time.Second}
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// The processes are x and y in place 1, z in place 2.
func processes() []history.Event {
	return []history.Event{
		{Kind: history.Begin},
		{Kind: history.Up, Node: "x", Place: 1},
		{Kind: history.Up, Node: "y", Place: 1},
		{Kind: history.Up, Node: "z", Place: 2},
	}
}

// task is a call and its task, by the milliseconds at which things happen.
type task struct {
	node          string
	op, term      int64
	called, start int
	told          int // 0 if it was not
	cause         history.Cause
	stop          int // 0 if it did not
	stubborn      bool
	name          string // a where it is ""
}

func (s task) events() []history.Event {
	name := s.name
	if name == "" {
		name = "a"
	}
	e := func(at int, k history.Kind) history.Event {
		return history.Event{At: ms(at), Kind: k, Node: s.node, Op: s.op, Name: name, Term: s.term}
	}
	all := []history.Event{e(s.called, history.Contend), e(s.start, history.Start)}
	all[1].Stubborn = s.stubborn
	if s.told > 0 {
		all = append(all, e(s.told, history.Told))
		all[2].Cause = s.cause
	}
	if s.stop > 0 {
		all = append(all, e(s.stop, history.Stop), e(s.stop+1, history.Done))
	}
	return all
}

// run is a task that ends well.
func run(node string, op, term int64, called, start, stop int) []history.Event {
	return task{node: node, op: op, term: term, called: called, start: start, stop: stop}.events()
}

func caller(node string, op, term int64, called, start, told, stop int) []history.Event {
	return task{node: node, op: op, term: term, called: called, start: start, told: told, cause: history.CauseCaller, stop: stop}.events()
}

func lost(node string, op, term int64, called, start, told, stop int) []history.Event {
	return task{node: node, op: op, term: term, called: called, start: start, told: told, cause: history.CauseLost, stop: stop}.events()
}

// hurt is an injury of a process, or of a place if that is not 0.
func hurt(id int, reach history.Reach, node string, place, from, until int) []history.Event {
	i := &history.Injury{ID: id, Kind: "a " + string(reach), Reach: reach, Node: node, Place: place, For: ms(until - from)}
	return []history.Event{{At: ms(from), Kind: history.Fault, Fault: i}, {At: ms(until), Kind: history.Heal, Fault: i}}
}

func at(n int, kind history.Kind) []history.Event { return []history.Event{{At: ms(n), Kind: kind}} }

func episode(parts ...[]history.Event) *history.Episode {
	ep := &history.Episode{Backend: "postgres", Server: "PostgreSQL 15.14", Options: timing(), StopTime: 500 * time.Millisecond, Names: []string{"a"}, Places: 2}
	ep.Events = slices.Concat(append([][]history.Event{processes()}, parts...)...)
	return ep
}

type row struct {
	what   string
	events [][]history.Event
	want   []check.Rule // in the order of time; of one moment, in that of All
	excuse string       // of an overlap
}

func judge(t *testing.T, backend string, rows []row) {
	t.Helper()
	for _, r := range rows {
		ep := episode(r.events...)
		ep.Backend = backend
		got := check.All(ep)
		var rules []check.Rule
		for _, v := range got.Violations {
			rules = append(rules, v.Rule)
		}
		if !assert.Equal(t, r.want, rules, r.what) {
			for _, v := range got.Violations {
				t.Logf("\t%s: %s", v.Rule, v.Text)
			}
		}
		if r.excuse != "" {
			for _, c := range got.Coverage {
				if c.Rule == check.Overlap {
					assert.Equal(t, map[string]int{r.excuse: 1}, c.Excused, r.what)
				}
			}
		}
	}
}

type h = [][]history.Event

// TestOverlaps: what may happen beside another task and what may not, with the right injury, with that of another process
// and with that of another time. The order of locks agrees, but for when a task is told, which it does not know.
func TestOverlaps(t *testing.T) {
	const overlap, order, late, beside, calmly = check.Overlap, check.Order, check.Late, check.Beside, check.Calmly
	cut, session, server, network := history.ReachCut, history.ReachSession, history.ReachServer, history.ReachNetwork
	freeze, process, primary, load, writes := history.ReachFreeze, history.ReachProcess, history.ReachPrimary, history.ReachLoad, history.ReachWrites
	second := func(start int) []history.Event { return run("y", 1, 8, 50, start, start+5000) }
	judge(t, "postgres", []row{
		{what: "nothing"},
		{what: "one after the other", events: h{run("x", 1, 7, 10, 20, 1000), second(1001)}},
		{what: "names are apart", events: h{run("x", 1, 7, 10, 20, 1000), task{node: "y", op: 1, term: 8, called: 50, start: 500, stop: 1500, name: "b"}.events()}},
		{what: "clean, and too early by a millisecond", events: h{run("x", 1, 7, 10, 20, 1002), second(1001)}, want: []check.Rule{overlap, order}},
		{what: "told by its caller, and another before it has stopped", events: h{caller("x", 1, 7, 10, 20, 800, 1200), second(1001)}, want: []check.Rule{overlap, order}},
		{what: "the process leads beside itself", events: h{run("x", 1, 7, 10, 20, 1000), run("x", 2, 8, 50, 900, 2000)}, want: []check.Rule{beside, order}},
		{what: "load excuses nothing", events: h{hurt(1, load, "x", 0, 500, 1500), run("x", 1, 7, 10, 20, 1002), second(1001)}, want: []check.Rule{overlap, order}},

		{what: "the server ends the session", events: h{hurt(1, session, "x", 0, 900, 901), lost("x", 1, 7, 10, 20, 920, 1300), second(910)}, excuse: "a session"},
		{what: "of the whole place", events: h{hurt(1, cut, "", 1, 900, 901), lost("x", 1, 7, 10, 20, 920, 1300), second(910)}, excuse: "a cut"},
		{what: "of all places", events: h{hurt(1, server, "", 0, 900, 3000), lost("x", 1, 7, 10, 20, 920, 3100), second(3050)}, excuse: "a server"},
		{what: "which it has given up, while its task stops", events: h{hurt(1, session, "x", 0, 900, 901), lost("x", 1, 7, 10, 20, 700, 1300), second(910)}, want: []check.Rule{calmly}, excuse: "a session"},
		{what: "which it has given up, after the other had begun", events: h{hurt(1, session, "x", 0, 915, 916), lost("x", 1, 7, 10, 20, 700, 1300), second(910)}, want: []check.Rule{calmly, overlap, order}},
		{what: "of another process, which has given it up", events: h{hurt(1, session, "y", 0, 900, 901), lost("x", 1, 7, 10, 20, 700, 1300), second(910)}, want: []check.Rule{calmly, overlap, order}},
		{what: "of another process", events: h{hurt(1, session, "y", 0, 900, 901), lost("x", 1, 7, 10, 20, 920, 1300), second(910)}, want: []check.Rule{overlap, order, calmly}},
		{what: "of another place", events: h{hurt(1, session, "", 2, 900, 901), lost("x", 1, 7, 10, 20, 920, 1300), second(910)}, want: []check.Rule{overlap, order, calmly}},
		{what: "before the task had begun", events: h{hurt(1, session, "x", 0, 5, 6), lost("x", 1, 7, 510, 520, 920, 1300), second(910)}, want: []check.Rule{overlap, order}},
		{what: "after the other had begun", events: h{hurt(1, session, "x", 0, 915, 916), lost("x", 1, 7, 10, 20, 920, 1300), second(910)}, want: []check.Rule{overlap, order}},
		{what: "long before", events: h{hurt(1, session, "x", 0, 900, 901), lost("x", 1, 7, 10, 20, 9920, 9990), second(9910)}, want: []check.Rule{overlap, order, calmly, late}},
		{what: "and it is told too late", events: h{hurt(1, session, "x", 0, 900, 901), lost("x", 1, 7, 10, 20, 1950, 2000), second(910)}, want: []check.Rule{overlap, order, late}},
		{what: "while its caller has it stop", events: h{hurt(1, session, "x", 0, 900, 901), caller("x", 1, 7, 10, 20, 800, 1300), second(910)}, excuse: "a session"},
		{what: "and nothing gets through", events: h{hurt(1, network, "", 1, 500, 4000), hurt(2, session, "x", 0, 900, 901), lost("x", 1, 7, 10, 20, 1505, 1600), run("z", 1, 8, 50, 910, 5000)}, excuse: "a session"},
		{what: "and it is frozen", events: h{hurt(1, freeze, "x", 0, 895, 2895), hurt(2, session, "x", 0, 900, 901), lost("x", 1, 7, 10, 20, 2900, 3000), second(910)}, excuse: "a session"},

		{what: "silence, without another", events: h{hurt(1, network, "", 1, 900, 6000), lost("x", 1, 7, 10, 20, 1900, 2300)}},
		{what: "silence, and the server has waited", events: h{hurt(1, network, "x", 0, 900, 6000), lost("x", 1, 7, 10, 20, 1900, 3000), second(3950)}},
		{what: "silence, and the server has waited for a slow task", events: h{hurt(1, network, "x", 0, 900, 6000), lost("x", 1, 7, 10, 20, 1900, 5000), second(3950)}, excuse: "a network"},
		{what: "silence, and the lock was free too early", events: h{hurt(1, network, "x", 0, 900, 6000), lost("x", 1, 7, 10, 20, 1900, 3000), second(2950)}, want: []check.Rule{overlap, order}},
		{what: "silence, and it was told too late", events: h{hurt(1, network, "x", 0, 900, 6000), lost("x", 1, 7, 10, 20, 3500, 3600)}, want: []check.Rule{late}},
		{what: "silence, and it was told after the other", events: h{hurt(1, network, "x", 0, 900, 6000), lost("x", 1, 7, 10, 20, 3960, 4000), second(3950)}, want: []check.Rule{overlap, order, late}},
		{what: "silence of another", events: h{hurt(1, network, "z", 0, 900, 6000), lost("x", 1, 7, 10, 20, 1900, 5000), second(3950)}, want: []check.Rule{calmly, overlap, order}},
		{what: "silence that was over", events: h{hurt(1, network, "x", 0, 900, 1500), lost("x", 1, 7, 10, 20, 9000, 20000), second(12000)}, want: []check.Rule{calmly, overlap, order}},
		{what: "silence for less than a lease", events: h{hurt(1, network, "x", 0, 900, 1500), run("x", 1, 7, 10, 20, 3000)}},
		{what: "read-only, and it was told at the next Check", events: h{hurt(1, writes, "", 0, 900, 6000), lost("x", 1, 7, 10, 20, 1100, 2000)}},
		{what: "read-only, and it was not told", events: h{hurt(1, writes, "", 0, 900, 6000), run("x", 1, 7, 10, 20, 5000)}, want: []check.Rule{late}},
		{what: "read-only for a moment", events: h{hurt(1, writes, "", 0, 900, 1700), run("x", 1, 7, 10, 20, 5000)}},
		{what: "read-only, and the lock was free too early", events: h{hurt(1, writes, "", 0, 900, 6000), lost("x", 1, 7, 10, 20, 1100, 2000), second(1500)}, want: []check.Rule{overlap, order}},

		{what: "frozen, and the server has waited", events: h{hurt(1, freeze, "x", 0, 900, 6000), lost("x", 1, 7, 10, 20, 6010, 6200), second(3950)}, excuse: "a freeze"},
		{what: "frozen, and the lock was free too early", events: h{hurt(1, freeze, "x", 0, 900, 6000), lost("x", 1, 7, 10, 20, 6010, 6200), second(2500)}, want: []check.Rule{overlap, order}},
		{what: "frozen, and told long after it woke", events: h{hurt(1, freeze, "x", 0, 900, 6000), lost("x", 1, 7, 10, 20, 7100, 7200), second(3950)}, want: []check.Rule{overlap, order, late}},
		{what: "another is frozen", events: h{hurt(1, freeze, "z", 0, 900, 6000), lost("x", 1, 7, 10, 20, 6010, 6200), second(3950)}, want: []check.Rule{overlap, order, calmly}},
		{what: "frozen for a moment", events: h{hurt(1, freeze, "x", 0, 900, 1200), run("x", 1, 7, 10, 20, 3000)}},

		{what: "killed", events: h{hurt(1, process, "x", 0, 900, 900), task{node: "x", op: 1, term: 7, called: 10, start: 20}.events(), second(950)}},
		{what: "another was killed", events: h{hurt(1, process, "z", 0, 900, 900), run("x", 1, 7, 10, 20, 1000), second(950)}, want: []check.Rule{overlap, order}},

		{what: "another server", events: h{hurt(1, primary, "", 0, 900, 1500), lost("x", 1, 7, 10, 20, 2100, 2300), second(1600)}, excuse: "a primary"},
		{what: "another server, and told after the lease", events: h{hurt(1, primary, "", 0, 900, 1500), lost("x", 1, 7, 10, 20, 3300, 3400), second(1600)}, want: []check.Rule{overlap, order, calmly, late}},

		{what: "stubborn after it was told that it had lost", events: h{
			hurt(1, session, "x", 0, 900, 901),
			task{node: "x", op: 1, term: 7, called: 10, start: 20, told: 905, cause: history.CauseLost, stop: 9000, stubborn: true}.events(), second(8000),
		}, excuse: "a session"},
		{what: "stubborn, and told by its caller", events: h{
			task{node: "x", op: 1, term: 7, called: 10, start: 20, told: 905, cause: history.CauseCaller, stop: 9000, stubborn: true}.events(), second(8000),
		}, want: []check.Rule{overlap, order}},
		{what: "stubborn, and not told", events: h{
			hurt(1, session, "x", 0, 900, 901),
			task{node: "x", op: 1, term: 7, called: 10, start: 20, stop: 9000, stubborn: true}.events(), second(920),
		}, want: []check.Rule{overlap, late}}, // the lock was free: the order of locks is as it must be
	})
}

// TestOverlapsSQLite: the kernel keeps the lock until the process dies.
func TestOverlapsSQLite(t *testing.T) {
	freeze, process := history.ReachFreeze, history.ReachProcess
	second := run("y", 1, 8, 50, 3950, 8000)
	judge(t, "sqlite", []row{
		{what: "frozen", events: h{hurt(1, freeze, "x", 0, 900, 6000), run("x", 1, 7, 10, 20, 6010), run("y", 1, 8, 50, 6020, 6030)}},
		{what: "frozen and replaced", events: h{hurt(1, freeze, "x", 0, 900, 6000), lost("x", 1, 7, 10, 20, 6010, 6200), second}, want: []check.Rule{check.Overlap, check.Order}},
		{what: "killed", events: h{hurt(1, process, "x", 0, 3900, 3900), task{node: "x", op: 1, term: 7, called: 10, start: 20}.events(), second}},
	})
}
