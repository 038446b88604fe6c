// SPDX-License-Identifier: MIT

package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oxygenhub/leader/soak/check"
	"github.com/oxygenhub/leader/soak/history"
)

const (
	mostViolations = 20 // of an episode that are shown
	mostEvents     = 12 // of a violation
	mostFaults     = 200
)

// view is what both reports show.
type view struct {
	Run
	OK       bool
	Verdict  string
	Fleets   []*fleet
	Faults   []count
	Counts   []count
	Cover    []*cover
	Groups   []*group
	Plain    int // episodes of the library as it is
	Controls int // and of one that is deliberately broken
}

// group is what was measured in the same way, and its picture.
type group struct {
	Title, Says string
	Figures     []*figure
	Picture     *picture
}

// count is how often something was.
type count struct {
	What string
	N    int
}

// fleet is an episode.
type fleet struct {
	Number int
	Episode
	OK         bool
	Says       string
	Facts      string
	Faults     []fault
	Violations []violation
	More       int // violations that are not shown
	Rates      []check.Rate
	Picture    *picture
}

// fault is an injury in words.
type fault struct{ At, Kind, Whom, For string }

// violation is one in words.
type violation struct {
	Rule, Name, Text string
	Lines            []string
}

// cover is a check.Coverage of all episodes.
type cover struct {
	Rule             string
	Checked, Skipped int
	Excused          map[string]int
}

// Excuses are in words.
func (c *cover) Excuses() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(c.Excused)) {
		parts = append(parts, fmt.Sprintf("%d by %s", c.Excused[kind], kind))
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

func newView(run Run) *view {
	v := &view{Run: run, OK: run.OK()}
	faults, counts := make(map[string]int), make(map[string]int)
	for n, e := range run.Episodes {
		f := newFleet(n+1, e)
		v.Fleets = append(v.Fleets, f)
		for _, ev := range e.History.Events {
			if ev.Kind == history.Fault && ev.Fault != nil {
				faults[ev.Fault.Kind]++
			}
		}
		if e.History.Broken != "" {
			v.Controls++
			continue
		}
		v.Plain++
		for what, n := range e.Result.Counts {
			counts[what] += n
		}
		v.covered(e.Result.Coverage)
	}
	v.Faults, v.Counts = sorted(faults), sorted(counts)
	v.Verdict = v.verdict()
	v.groups()
	return v
}

func sorted(counts map[string]int) (all []count) {
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, count{what, counts[what]})
	}
	slices.SortStableFunc(all, func(a, b count) int { return cmp.Compare(b.N, a.N) })
	return all
}

func (v *view) covered(of []check.Coverage) {
	for _, c := range of {
		at := slices.IndexFunc(v.Cover, func(o *cover) bool { return o.Rule == string(c.Rule) })
		if at < 0 {
			at, v.Cover = len(v.Cover), append(v.Cover, &cover{Rule: string(c.Rule), Excused: make(map[string]int)})
		}
		sum := v.Cover[at]
		sum.Checked, sum.Skipped = sum.Checked+c.Checked, sum.Skipped+c.Skipped
		for kind, n := range c.Excused {
			sum.Excused[kind] += n
		}
	}
}

func (v *view) verdict() string {
	var violations, ill, missed, troubled int
	for _, f := range v.Fleets {
		switch broken := f.History.Broken != ""; {
		case f.Trouble != "":
			troubled++
		case broken && len(f.Result.Violations) == 0:
			missed++
		case !broken && len(f.Result.Violations) > 0:
			ill++
			violations += len(f.Result.Violations)
		}
	}
	var parts []string
	if v.Plain > 0 || len(v.Fleets) == 0 {
		parts = append(parts, fmt.Sprintf("%s in %s.", plural(violations, "violation"), plural(v.Plain, "episode")))
	}
	if ill > 0 {
		parts = append(parts, fmt.Sprintf("%s of them violated something.", plural(ill, "episode")))
	}
	if v.Controls > 0 {
		parts = append(parts, fmt.Sprintf("Caught %d of %s whose fleet is deliberately broken.", v.Controls-missed, plural(v.Controls, "episode")))
	}
	if troubled > 0 {
		parts = append(parts, fmt.Sprintf("%s could not be carried out.", plural(troubled, "episode")))
	}
	if all, found := v.across(); found {
		parts = append(parts, fmt.Sprintf("On the whole, %s: %s.", all.Rule, all.Text))
	}
	text := strings.Join(parts, " ")
	return strings.ToUpper(text[:min(1, len(text))]) + text[min(1, len(text)):]
}

func plural(n int, what string) string {
	many := what + "s"
	if strings.HasSuffix(what, "s") {
		many = what + "es"
	}
	switch n {
	case 0:
		return "no " + many
	case 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %s", n, many)
}

// groups sorts what was measured under what the reader asks.
func (v *view) groups() {
	all := merge(v.Episodes)
	for _, g := range []*group{
		{Title: "takeover", Says: "From what ended a leadership to the next task of the name, for those who waited all the time."},
		{Title: "without a leader", Says: "From the end of a task to the next one, for those who waited all the time."},
		{Title: "told", Says: "From a fault that costs the lock to the moment in which the task's context ended, without the time for which the process was frozen."},
		{Title: "overlap", Says: "For how long two tasks of a name ran at a time, where the guarantees allow it."},
	} {
		for _, f := range all {
			if f.What == g.Title {
				g.Figures = append(g.Figures, f)
			}
		}
		if len(g.Figures) > 0 {
			g.Picture = drawPlot(strings.ReplaceAll(g.Title, " ", "-")+".svg", "Distribution: "+g.Title, g.Figures)
			v.Groups = append(v.Groups, g)
		}
	}
}

// pictures are all of them.
func (v *view) pictures() (all []*picture) {
	for _, g := range v.Groups {
		all = append(all, g.Picture)
	}
	for _, f := range v.Fleets {
		all = append(all, f.Picture)
	}
	return all
}

func newFleet(number int, e Episode) *fleet {
	h := e.History
	f := &fleet{Number: number, Episode: e, OK: e.ok(), Rates: e.Result.Rates}
	f.Picture = drawTimeline(fmt.Sprintf("timeline-%d.svg", number), e)
	begin, end := limits(h.Events)
	processes := make(map[string]bool)
	for _, ev := range h.Events {
		if ev.Node != "" {
			processes[ev.Node] = true
		}
		if ev.Kind == history.Fault && ev.Fault != nil && len(f.Faults) < mostFaults {
			f.Faults = append(f.Faults, fault{fmt.Sprintf("%.3f s", (ev.At - begin).Seconds()), ev.Fault.Kind, whom(*ev.Fault), span(ev.Fault.For)})
		}
	}
	switch n := len(e.Result.Violations); {
	case e.Trouble != "":
		f.Says = "not carried out"
	case h.Broken != "" && n > 0:
		f.Says = "caught"
	case h.Broken != "":
		f.Says = "not caught"
	default:
		f.Says = plural(n, "violation")
	}
	t := h.Options
	f.Facts = fmt.Sprintf("%s %s, %s, %s over %s, %s of %s; Retry %s, Check %s, Lease %s, SessionTimeout %s, tasks stop within %s",
		h.Backend, h.Server, h.Arena, span(end-begin), plural(h.Places, "place"), plural(len(processes), "process"), plural(len(h.Names), "name"),
		span(t.Retry), span(t.Check), span(t.Lease), span(t.SessionTimeout), span(h.StopTime))
	most := mostViolations
	if h.Broken != "" { // which has as many as it likes
		most = 3
	}
	for _, found := range e.Result.Violations[:min(most, len(e.Result.Violations))] {
		f.Violations = append(f.Violations, inWords(found))
	}
	f.More = len(e.Result.Violations) - len(f.Violations)
	return f
}

func inWords(found check.Violation) violation {
	v := violation{Rule: string(found.Rule), Name: found.Name, Text: found.Text}
	for _, e := range found.Events[:min(mostEvents, len(found.Events))] {
		if line, err := json.Marshal(e); err == nil {
			v.Lines = append(v.Lines, string(line))
		}
	}
	for _, c := range found.Commits {
		if line, err := json.Marshal(c); err == nil {
			v.Lines = append(v.Lines, string(line))
		}
	}
	return v
}
