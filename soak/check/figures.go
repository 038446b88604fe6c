// SPDX-License-Identifier: MIT

package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/oxygenhub/leader/soak/history"
)

// What a process may grow by between two moments in which it does the same. A collection leaves some more or less, and
// the runtime keeps a goroutine or a file for later; a leak grows on.
const (
	moreGoroutines = 10
	moreFiles      = 5
	moreHeap       = 8 << 20
	enoughSamples  = 12 // in which it does the same
)

// What a statement more may cost.
const (
	connectStatements = 30 // to look at the server, and to prove that it is one that locks
	leadStatements    = 10 // for the one whose task begins or ends
	hearStatements    = 2  // for each of the others, who hear of it
	countPatience     = 3  // loads in a row in which a session holds a snapshot or is in a transaction
)

// leaks compares each process with itself: the samples in which it had as many calls and tasks, early and late. The least of
// the late ones being more than the most of the early ones is what only growth does.
func leaks(v *view) {
	cover := v.cover(Leak)
	for _, n := range v.sorted() {
		groups := make(map[[2]int][]history.Event)
		calls := make(map[int64]bool) // Resign has an Op and a Done too
		var tasks int
		for _, e := range n.events {
			switch e.Kind {
			case history.Contend:
				calls[e.Op] = true
			case history.Done:
				delete(calls, e.Op)
			case history.Start:
				tasks++
			case history.Stop:
				tasks--
			case history.Sample:
				same := [2]int{len(calls), tasks}
				groups[same] = append(groups[same], e)
			}
		}
		for same, samples := range groups {
			if len(samples) < enoughSamples {
				cover.Skipped += len(samples)
				continue
			}
			cover.Checked += len(samples)
			v.grows(n, same, samples, "goroutines", moreGoroutines, func(e history.Event) int64 { return int64(e.Goroutines) })
			v.grows(n, same, samples, "files", moreFiles, func(e history.Event) int64 { return int64(e.Files) })
			v.grows(n, same, samples, "bytes of heap", moreHeap, func(e history.Event) int64 { return e.Heap })
		}
	}
}

func (v *view) grows(n *node, same [2]int, samples []history.Event, what string, more int64, of func(history.Event) int64) {
	third := len(samples) / 3
	early, late := samples[:third], samples[len(samples)-third:]
	less := func(a, b history.Event) int { return int(of(a) - of(b)) }
	most, least := slices.MaxFunc(early, less), slices.MinFunc(late, less)
	if of(least) > of(most)+more {
		v.violate(Leak, "", least.At, fmt.Sprintf("%s with %d calls and %d tasks: at most %d %s until %v, and no less than %d after %v",
			n.name, same[0], same[1], of(most), what, v.since(early[len(early)-1].At), of(least), v.since(late[0].At)), most, least)
	}
}

// left checks what is there when all processes are gone, and that each has left as it was told, or was killed.
func left(v *view) {
	cover := v.cover(Left)
	end := time.Duration(-1)
	var last *history.Event
	for i, e := range v.ep.Events {
		switch {
		case e.Kind == history.End:
			end = e.At
		case e.Kind == history.Load && (last == nil || e.At >= last.At):
			last = &v.ep.Events[i]
		}
	}
	if end < 0 {
		cover.Skipped++
		return
	}
	for _, n := range v.sorted() {
		cover.Checked++
		if final := n.events[len(n.events)-1]; final.Kind != history.Down && !n.killed {
			v.violate(Left, "", final.At, fmt.Sprintf("%s has not said that it leaves, and nobody has killed it", n.name), final)
		}
	}
	if last == nil || last.At < end || v.sqlite { // which has no sessions
		cover.Skipped++
		return
	}
	cover.Checked++
	if last.Backends > 0 || last.Locks > 0 || last.Open > 0 {
		v.violate(Left, "", last.At, fmt.Sprintf("%v after the last process was gone: %d sessions, %d locks, %d transactions",
			last.At-end, last.Backends, last.Locks, last.Open), *last)
	}
}

// loads are what was seen of the sessions of a database; SQLite has none.
func (v *view) loads() (loads []history.Event) {
	for _, e := range v.ep.Events {
		if e.Kind == history.Load && !v.sqlite {
			loads = append(loads, e)
		}
	}
	return loads
}

// costs checks G7: what the fleet asks the database while all is well.
func costs(v *view) {
	cover, loads := v.cover(Cost), v.loads()
	if v.sqlite {
		return
	}
	for _, calm := range v.calm {
		within := slices.DeleteFunc(slices.Clone(loads), func(e history.Event) bool { return e.At < calm[0]+v.grace() || e.At > calm[1] })
		if len(within) < 2 || within[len(within)-1].Statements == 0 { // nobody counts them where there is no proxy
			cover.Skipped++
			continue
		}
		cover.Checked += len(within)
		first, last := within[0], within[len(within)-1]
		bound := v.allowed(first.At, last.At)
		seconds := (last.At - first.At).Seconds()
		got := float64(last.Statements - first.Statements)
		v.out.Rates = append(v.out.Rates, Rate{What: "statements of lock sessions in calm times", Value: got / seconds, Bound: bound / seconds, Unit: "per second"})
		if got > bound {
			v.violate(Cost, "", last.At, fmt.Sprintf("%.0f statements from %v to %v, of at most %.0f", got, v.since(first.At), v.since(last.At), bound), first, last)
		}
	}
}

// allowed is the number of statements that the fleet may need between two times: one each Retry and one each Check for each
// process, which Retry may move forward by a fifth, and those of what happens.
func (v *view) allowed(from, until time.Duration) float64 {
	opt := v.ep.Options
	var sum float64
	var there int
	for _, n := range v.nodes {
		d := min(until, n.gone) - max(from, n.up)
		if d <= 0 {
			continue
		}
		there++
		if opt.Retry > 0 {
			sum += d.Seconds()/(opt.Retry.Seconds()*4/5) + 1
		}
		if opt.Check > 0 {
			sum += d.Seconds()/opt.Check.Seconds() + 1
		}
	}
	for _, e := range v.ep.Events {
		if e.At < from-Statement || e.At > until { // what happened right before is still talked about
			continue
		}
		switch e.Kind {
		case history.Start, history.Stop, history.Contend, history.Done, history.Resign:
			sum += leadStatements + float64(hearStatements*there)
		case history.Sessions, history.Up:
			sum += connectStatements
		}
	}
	return sum
}

// holds finds sessions that hold up others: a snapshot or a transaction that is there each time when one looks. One look may
// meet a statement that goes on; a frozen process may have been frozen in one.
func holds(v *view) {
	cover, loads := v.cover(Holds), v.loads()
	for _, of := range []struct {
		what  string
		count func(history.Event) int
	}{
		{"hold a snapshot while they wait", func(e history.Event) int { return e.Snapshots }},
		{"are idle in a transaction", func(e history.Event) int { return e.Open }},
	} {
		var row []history.Event
		for _, e := range loads {
			cover.Checked++
			if of.count(e) == 0 {
				row = nil
				continue
			}
			if kind, ok := v.anywhere(e.At); ok {
				cover.Excused[kind]++
				row = nil
				continue
			}
			if row = append(row, e); len(row) == countPatience {
				v.violate(Holds, "", e.At, fmt.Sprintf("%d lock sessions %s, for %v", of.count(e), of.what, e.At-row[0].At), row...)
			}
		}
	}
}

// anywhere says whether a process was frozen or cut off.
func (v *view) anywhere(at time.Duration) (string, bool) {
	for _, i := range v.injuries {
		if k := classOf(i.Reach); (k == frozen || k == quiet) && i.From <= at && at <= i.Until+v.ep.Options.SessionTimeout {
			return i.Kind, true
		}
	}
	return "", false
}

// sorted are the processes by name.
func (v *view) sorted() []*node {
	all := make([]*node, 0, len(v.nodes))
	for _, n := range v.nodes {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b *node) int { return int(a.up - b.up) })
	return all
}
