// SPDX-License-Identifier: MIT

package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/oxygenhub/leader/soak/check"
	"github.com/oxygenhub/leader/soak/history"
)

// How the timeline is laid out, in its own units, which are pixels on a wide screen.
const (
	wide      = 1080.0
	left      = 128.0 // of the names
	right     = 12.0
	rowHeight = 18.0
	colours   = 8
	mostRows  = 60 // names; more are not drawn
)

// timeline draws who led when: names are lanes, and two tasks of a name that overlap are one above the other.
type timeline struct {
	*picture
	ep         *history.Episode
	begin, end time.Duration
	colour     map[string]int
	y          float64
	top        float64 // of the first lane
}

func drawTimeline(file string, e Episode) *picture {
	spans, injuries := check.Spans(e.History)
	t := timeline{
		picture: &picture{File: file, Title: fmt.Sprintf("Who led when in episode %d", e.History.Seed), Width: wide},
		ep:      e.History, colour: make(map[string]int),
	}
	t.begin, t.end = limits(e.History.Events)
	for _, ev := range e.History.Events {
		if _, ok := t.colour[ev.Node]; !ok && ev.Node != "" {
			t.colour[ev.Node] = len(t.colour) % colours
		}
	}
	t.y = 20
	t.faults(injuries)
	t.top = t.y
	byName := make(map[string][]*check.Span)
	for _, s := range spans {
		byName[s.Name] = append(byName[s.Name], s)
	}
	lanes := slices.Clone(e.History.Names)
	for _, s := range spans {
		lanes = append(lanes, s.Name)
	}
	slices.Sort(lanes)
	lanes = slices.Compact(lanes)
	for _, name := range lanes[:min(mostRows, len(lanes))] {
		t.lane(name, byName[name], e.Result.Violations)
	}
	if more := len(lanes) - mostRows; more > 0 {
		t.text("quiet", "start", left, t.y+12, fmt.Sprintf("%d more names", more))
		t.y += rowHeight
	}
	t.marks(injuries)
	t.axis()
	t.Height = t.y
	return t.picture
}

func limits(events []history.Event) (begin, end time.Duration) {
	if len(events) == 0 {
		return 0, time.Second
	}
	at := func(a, b history.Event) int { return cmp.Compare(a.At, b.At) }
	begin, end = slices.MinFunc(events, at).At, slices.MaxFunc(events, at).At
	return begin, max(end, begin+time.Millisecond)
}

func (t *timeline) x(at time.Duration) float64 {
	part := float64(at-t.begin) / float64(t.end-t.begin)
	return left + min(1, max(0, part))*(wide-left-right)
}

// since is a time as the reader counts it.
func (t *timeline) since(at time.Duration) string {
	return fmt.Sprintf("%.3f s", (at - t.begin).Seconds())
}

// faults are bars above the lanes, as few rows of them as it takes.
func (t *timeline) faults(injuries []*check.Injury) {
	t.text("quiet", "end", left-10, t.y+12, "faults")
	var free []float64 // from where on each row is
	for _, i := range injuries {
		from, until := t.x(i.From), t.x(i.Until)
		label := fit(i.Kind, wide-right-from, 5.4)
		until = max(until, from+3)
		taken := max(until, from+6+5.4*float64(len([]rune(label))))
		row := slices.IndexFunc(free, func(x float64) bool { return x <= from })
		if row < 0 {
			row, free = len(free), append(free, 0)
		}
		free[row] = taken + 4
		y := t.y + float64(row)*16
		t.rect("hurt", from, y+2, until-from, 13, t.describe(i))
		t.text("small", "start", from+3, y+12, label)
	}
	t.y += max(1, float64(len(free)))*16 + 8
}

func (t *timeline) describe(i *check.Injury) string {
	return fmt.Sprintf("#%d %s of %s, from %s for %s", i.ID, i.Kind, whom(i.Injury), t.since(i.From), span(i.Until-i.From))
}

// whom says who has an injury.
func whom(i history.Injury) string {
	switch {
	case i.Node != "":
		return i.Node
	case i.Place != 0:
		return fmt.Sprintf("place %d", i.Place)
	}
	return "all"
}

func (t *timeline) lane(name string, spans []*check.Span, violations []check.Violation) {
	var until []time.Duration // of each row
	rows := make([]int, len(spans))
	for n, s := range spans {
		row := slices.IndexFunc(until, func(end time.Duration) bool { return end <= s.Start })
		if row < 0 {
			row, until = len(until), append(until, 0)
		}
		rows[n], until[row] = row, s.End
	}
	height := max(1, float64(len(until))) * rowHeight
	t.rect("lane", left, t.y, wide-left-right, height, "")
	t.text("name", "end", left-10, t.y+13, fit(name, left-14, 6.6))
	for n, s := range spans {
		t.span(s, t.y+float64(rows[n])*rowHeight)
	}
	for _, v := range violations {
		if v.Name == name && v.At > 0 {
			x := t.x(v.At)
			t.path("bad", fmt.Sprintf("M%.2f %.2fl5 -8h-10z", x, t.y+6), string(v.Rule)+": "+v.Text)
		}
	}
	t.y += height + 4
}

// span is a task: what it did after it was told is marked, and the end of a lost term too.
func (t *timeline) span(s *check.Span, y float64) {
	from, until := t.x(s.Start), t.x(s.End)
	title := fmt.Sprintf("%s led %s, term %d, from %s to %s", s.Node, s.Name, s.Term, t.since(s.Start), t.since(s.End))
	if s.WasTold {
		title += fmt.Sprintf("; told at %s (%s)", t.since(s.Told), s.Cause)
	}
	if s.Died {
		title += "; died"
	}
	t.rect(fmt.Sprintf("edge n%d", t.colour[s.Node]), from, y+2, until-from, rowHeight-4, title)
	if s.Lost() {
		told := t.x(min(s.Told, s.End))
		t.rect("after", told, y+2, until-told, rowHeight-4, title)
		t.line("lost", told, y, told, y+rowHeight, title)
	}
	if s.Died {
		m := y + rowHeight/2
		t.path("lost", fmt.Sprintf("M%.2f %.2fl6 6m0 -6l-6 6", until-3, m-3), title)
	}
	if label := fit(s.Node, until-from-6, 5.6); label != "" {
		t.text("small", "start", from+3, y+rowHeight-6, label)
	}
}

// marks are what goes through all lanes.
func (t *timeline) marks(injuries []*check.Injury) {
	for _, i := range injuries {
		t.rect("shade", t.x(i.From), t.top, t.x(i.Until)-t.x(i.From), t.y-t.top, t.describe(i))
	}
	for _, e := range t.ep.Events {
		if e.Kind == history.Calm || e.Kind == history.Close {
			t.line("calm", t.x(e.At), t.top-4, t.x(e.At), t.y, "")
			anchor, at := "start", t.x(e.At)+3
			if at > wide-right-30 { // it would end outside
				anchor, at = "end", t.x(e.At)-3
			}
			t.text("small good", anchor, at, t.y+9, string(e.Kind))
		}
	}
	t.y += 12
}

func (t *timeline) axis() {
	step := nice((t.end - t.begin).Seconds() / 8)
	for s := 0.0; s <= (t.end - t.begin).Seconds(); s += step {
		x := t.x(t.begin + time.Duration(s*float64(time.Second)))
		t.line("grid", x, 14, x, t.y, "")
		t.text("quiet", "middle", x, 10, fmt.Sprintf("%g s", math.Round(s*1e3)/1e3))
	}
	t.y += 4
}

// nice is the next larger step of 1, 2 or 5.
func nice(step float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(max(step, 1e-9))))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= step {
			return n * power
		}
	}
	return 10 * power
}
