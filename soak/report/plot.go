// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

const (
	plotRow  = 46.0
	plotLeft = 190.0
	plotWide = 760.0
	perTen   = 12 // bars in a power of ten
)

// figure is a distribution over all episodes.
type figure struct {
	What, Cause  string
	Bound, Least time.Duration // the largest and the least of the episodes, whose options may differ; 0 without
	values       []time.Duration
}

// Count is how many values there are.
func (f *figure) Count() int { return len(f.values) }

// At returns the value that a part of all do not exceed, 1 being all.
func (f *figure) At(part float64) time.Duration {
	n := int(math.Ceil(part*float64(len(f.values)))) - 1
	return f.values[min(len(f.values)-1, max(0, n))]
}

// Median, Most of them, and Worst are for the tables.
func (f *figure) Median() string { return span(f.At(0.5)) }

// Most is what 99 of 100 do not exceed.
func (f *figure) Most() string { return span(f.At(0.99)) }

// Worst is the largest one.
func (f *figure) Worst() string { return span(f.At(1)) }

// Limit is the bound in words.
func (f *figure) Limit() string {
	switch f.Bound {
	case 0:
		return "–"
	case f.Least:
		return span(f.Bound)
	default:
		return span(f.Least) + " to " + span(f.Bound)
	}
}

// drawPlot draws a row for each cause, as bars over a logarithmic axis, with the median and the bound.
func drawPlot(file, title string, figures []*figure) *picture {
	p := &picture{File: file, Title: title, Width: plotWide, Height: 34 + plotRow*float64(len(figures)) + 22}
	least, most := math.Inf(1), math.Inf(-1)
	for _, f := range figures {
		for _, d := range []time.Duration{f.values[0], f.At(1), f.Bound} {
			if d > 0 {
				least, most = min(least, math.Log10(d.Seconds())), max(most, math.Log10(d.Seconds()))
			}
		}
	}
	if math.IsInf(least, 0) {
		least, most = -3, 0
	}
	least, most = max(-5, math.Floor(least)), math.Ceil(most+0.05)
	most = max(most, least+1)
	x := func(d time.Duration) float64 {
		at := least
		if d > 0 {
			at = min(most, max(least, math.Log10(d.Seconds())))
		}
		return plotLeft + (at-least)/(most-least)*(plotWide-plotLeft-24)
	}
	bottom := p.Height - 22
	for e := least; e <= most; e++ {
		d := time.Duration(math.Pow(10, e) * float64(time.Second))
		p.line("grid", x(d), 22, x(d), bottom, "")
		p.text("quiet", "middle", x(d), bottom+15, tick(int(e)))
	}
	for n, f := range figures {
		drawRow(p, f, 30+plotRow*float64(n), least, x)
	}
	return p
}

func tick(power int) string {
	return map[int]string{
		-5: "10 µs", -4: "0.1 ms", -3: "1 ms", -2: "10 ms", -1: "100 ms", 0: "1 s", 1: "10 s", 2: "100 s", 3: "1000 s",
	}[power]
}

func drawRow(p *picture, f *figure, y, least float64, x func(time.Duration) float64) {
	bins := make(map[int]int)
	most := 0
	for _, d := range f.values {
		b := 0
		if d > 0 {
			b = int(max(0, (math.Log10(d.Seconds())-least)*perTen))
		}
		bins[b]++
		most = max(most, bins[b])
	}
	base, height := y+plotRow-10, plotRow-18
	p.line("grid", plotLeft, base, plotWide-24, base, "")
	edge := func(b int) float64 {
		return x(time.Duration(math.Pow(10, least+float64(b)/perTen) * float64(time.Second)))
	}
	for _, b := range slices.Sorted(maps.Keys(bins)) {
		n := bins[b]
		h := max(1.5, height*float64(n)/float64(most))
		p.rect("bar", edge(b)+0.5, base-h, edge(b+1)-edge(b)-1, h, fmt.Sprintf("%d of %d", n, f.Count()))
	}
	p.line("median", x(f.At(0.5)), base-height-4, x(f.At(0.5)), base+4, "median "+f.Median())
	if f.Bound > 0 {
		p.line("bound", x(f.Bound), base-height-6, x(f.Bound), base+6, "bound "+f.Limit())
	}
	p.text("name", "end", plotLeft-12, y+plotRow/2, fit(f.Cause, plotLeft-16, 6.4))
	p.text("quiet", "end", plotLeft-12, y+plotRow/2+14, fmt.Sprintf("%d, worst %s", f.Count(), f.Worst()))
}

// merge puts the figures of all episodes together, and sorts them.
func merge(episodes []Episode) (all []*figure) {
	for _, e := range episodes {
		if e.History.Broken != "" {
			continue // it says nothing of the library
		}
		for _, s := range e.Result.Series {
			at := slices.IndexFunc(all, func(f *figure) bool { return f.What == s.What && f.Cause == s.Cause })
			if at < 0 {
				at, all = len(all), append(all, &figure{What: s.What, Cause: s.Cause, Bound: s.Bound, Least: s.Bound})
			}
			f := all[at]
			f.Bound, f.Least = max(f.Bound, s.Bound), min(f.Least, s.Bound)
			f.values = append(f.values, s.Values...)
		}
	}
	all = slices.DeleteFunc(all, func(f *figure) bool { return len(f.values) == 0 })
	for _, f := range all {
		slices.Sort(f.values)
	}
	return all
}
