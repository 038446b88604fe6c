// SPDX-License-Identifier: MIT

package result

import (
	"math"
	"slices"
)

// Targets are those of this library, as rows have them.
func Targets(rows []Row) []Target {
	var targets []Target
	for _, p := range promises() {
		t := Target{Text: p.text, Limit: p.limit, Unit: p.unit}
		if value, ok := p.value(rows); ok {
			t.Value, t.Measured, t.Met = value, true, value <= p.limit
		}
		if t.Measured && !t.Met {
			t.Why = reasons()[p.text]
		}
		targets = append(targets, t)
	}
	return targets
}

// reasons are what was tried where a target was missed, by the text of the target.
func reasons() map[string]string {
	return map[string]string{
		cpuPrepared: "It is that of up to a hundred names, where a proof of the session every two seconds costs as much as the tries. Tried: " +
			"prepared statements, and no count of the locks of a session that has none, which brought it down from 2.7 times the query that is " +
			"*not* prepared. Not taken: a simpler proof (5 % less), and fewer of them, which would notice a session that lost its settings later.",
	}
}

const cpuPrepared = "server CPU of a standby at any number of names, against the same query if it is prepared"

// promise is how a target is judged.
type promise struct {
	text, unit string
	limit      float64
	value      func([]Row) (float64, bool) // false if it was not measured
}

func promises() []promise {
	handover, kill, told := of("handover", "takeover"), of("kill", "takeover"), of("session", "told")
	herd, tries := of("herd", "takeover"), of("herd", "tries")
	return []promise{
		{"a clean handover, against the raw NOTIFY loop", "x", 2, ratio(handover("leader", "defaults"), handover("raw", ""))},
		{"a clean handover, against River's", "x", 0.1, ratio(handover("leader", "defaults"), handover("River", "defaults"))},
		{
			"a takeover after SIGKILL at the defaults, against the fastest peer's at its defaults", "x", 0.1,
			fastest(kill("leader", "defaults"), kill("client-go", "defaults"), kill("etcd", "defaults"), kill("River", "defaults")),
		},
		{"a takeover after SIGKILL with Retry 100 ms", "s", 0.08, median(kill("leader", "Retry 100 ms"))},
		{"the news of a session that was killed, against a raw read of its socket", "x", 2, ratio(told("leader", "defaults"), told("raw", ""))},
		{"the longest overlap in a black hole, at any setting", "s", 0, overlap},
		{"statements of a standby from 1 to 5,000 names: the most against the fewest", "x", 1.05, flat},
		{"server CPU of a standby at any number of names, against one batched raw query a second", "x", 1.5, dearest("raw")},
		{cpuPrepared, "x", 1.5, dearest("raw prepared")},
		{"server CPU of a standby for each name more, against the same query if it is prepared", "x", 1.5, slope},
		{"100 standbys after a release: until one leads", "s", 0.02, median(herd("leader", "defaults"))},
		{"100 standbys after a release: statements of a standby", "1", 2, median(tries("leader", "defaults"))},
	}
}

// cell says which row is meant.
type cell struct{ work, measure, peer, setting string }

func of(work, measure string) func(peer, setting string) cell {
	return func(peer, setting string) cell { return cell{work, measure, peer, setting} }
}

// in returns the row that is meant, if it has samples.
func (c cell) in(rows []Row) (Row, bool) {
	i := slices.IndexFunc(rows, func(r Row) bool {
		return len(r.Samples) > 0 && c == cell{r.Work, r.Measure, r.Peer, r.Setting}
	})
	if i < 0 {
		return Row{}, false
	}
	return rows[i], true
}

func ratio(a, b cell) func([]Row) (float64, bool) {
	return func(rows []Row) (float64, bool) {
		x, found := a.in(rows)
		y, foundToo := b.in(rows)
		if !found || !foundToo {
			return 0, false
		}
		return Ratio(x, y)
	}
}

func median(c cell) func([]Row) (float64, bool) {
	return func(rows []Row) (float64, bool) {
		r, ok := c.in(rows)
		if !ok {
			return 0, false
		}
		return Median(r.Samples), true
	}
}

// fastest is the ratio to the fastest of peers, which is only known if all were measured: the largest of the ratios.
func fastest(a cell, peers ...cell) func([]Row) (float64, bool) {
	return func(rows []Row) (most float64, ok bool) {
		for _, p := range peers {
			r, ok := ratio(a, p)(rows)
			if !ok {
				return 0, false
			}
			most = max(most, r)
		}
		return most, true
	}
}

// overlap is the longest of this library, which must have been measured at its defaults. A setting that was not measured spoils it,
// too: it is the one that matters.
func overlap(rows []Row) (longest float64, ok bool) {
	if _, ok := of("hole", "overlap")("leader", "defaults").in(rows); !ok {
		return 0, false
	}
	for _, r := range rows {
		if r.Work != "hole" || r.Measure != "overlap" || r.Peer != "leader" {
			continue
		}
		if len(r.Samples) == 0 {
			return 0, false
		}
		longest, ok = max(longest, slices.Max(r.Samples)), true
	}
	return longest, ok
}

// byNames returns the rows of a standby by the number of names, which must be there for 1 and 5,000.
func byNames(rows []Row, peer, measure string) (map[float64]Row, bool) {
	found := make(map[float64]Row)
	for _, r := range rows {
		if r.Work == "names" && r.Peer == peer && r.Measure == measure && len(r.Samples) > 0 {
			found[r.X] = r
		}
	}
	_, first := found[1]
	_, last := found[5000]
	return found, first && last
}

// flat is how many statements a standby sends where it sends the most, against where the fewest.
func flat(rows []Row) (float64, bool) {
	found, ok := byNames(rows, "leader", "standby statements")
	least, most := math.Inf(1), 0.0
	for _, r := range found {
		m := Median(r.Samples)
		least, most = min(least, m), max(most, m)
	}
	if !ok {
		return 0, false
	}
	return over(most, least)
}

// dearest is the ratio of the server's CPU to that of a contender at the number of names where it is the largest.
func dearest(peer string) func([]Row) (float64, bool) {
	return func(rows []Row) (most float64, ok bool) {
		found, ok := byNames(rows, "leader", "standby cpu")
		others, okToo := byNames(rows, peer, "standby cpu")
		if !ok || !okToo {
			return 0, false
		}
		for x, r := range found {
			ratio, ok := Ratio(r, others[x])
			if !ok {
				return 0, false
			}
			most = max(most, ratio)
		}
		return most, true
	}
}

// slope is the ratio of what the names from the first to the last add to the server's CPU.
func slope(rows []Row) (float64, bool) {
	added := func(peer string) (float64, bool) {
		found, ok := byNames(rows, peer, "standby cpu")
		if !ok {
			return 0, false
		}
		return Median(found[5000].Samples) - Median(found[1].Samples), true
	}
	ours, ok := added("leader")
	theirs, okToo := added("raw prepared")
	if !ok || !okToo {
		return 0, false
	}
	return over(ours, theirs)
}
