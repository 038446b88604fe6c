// SPDX-License-Identifier: MIT

// Package report writes down what was measured: a page for people with its drawings, and the numbers.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oxygenhub/leader/bench/result"
)

// Write makes benchmarks.md, benchmarks.json and the drawings in benchmarks/ in a folder. Drawings of an earlier run go.
func Write(dir string, run result.Run) error {
	run.Targets = result.Targets(run.Rows)
	numbers, err := json.MarshalIndent(run, "", "\t")
	if err != nil {
		return err
	}
	text, drawings, err := page(run)
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "benchmarks", "*.svg"))
	if err != nil {
		return err
	}
	for _, file := range old {
		err = errors.Join(err, os.Remove(file))
	}
	if err := errors.Join(err, os.MkdirAll(filepath.Join(dir, "benchmarks"), 0o755)); err != nil {
		return err
	}
	files := map[string][]byte{"benchmarks.md": []byte(text), "benchmarks.json": append(numbers, '\n')}
	for name, drawing := range drawings {
		files[filepath.Join("benchmarks", name)] = drawing
	}
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	return err
}

// page returns the text, and the drawings by file name.
func page(run result.Run) (string, map[string][]byte, error) {
	var b strings.Builder
	head(&b, run)
	targets(&b, run)
	drawings := make(map[string][]byte)
	notes := distinct(only(run.Rows, func(r result.Row) bool { return r.Note != "" }), func(r result.Row) string { return r.Note })
	for _, work := range distinct(run.Rows, func(r result.Row) string { return r.Work }) {
		if err := section(&b, drawings, notes, work, only(run.Rows, func(r result.Row) bool { return r.Work == work })); err != nil {
			return "", nil, fmt.Errorf("report %s: %w", work, err)
		}
	}
	b.WriteString("## Notes\n\n")
	for i, note := range notes {
		fmt.Fprintf(&b, "%d. %s\n", i+1, note)
	}
	return b.String(), drawings, nil
}

func head(b *strings.Builder, run result.Run) {
	b.WriteString("# Benchmarks\n\nThis library and what a user would pick instead, measured in one run on one machine. " +
		"This page is written by the command:\n\n    make bench\n\n")
	if run.Partial != "" {
		b.WriteString("**This is not a whole run. " + run.Partial + "**\n\n")
	}
	if run.Quick {
		b.WriteString("**This was a quick run, with the fewest repeats: it shows that all works, and measures nothing.**\n\n")
	}
	fmt.Fprintf(b, "Measured on %s in %.0f minutes, on %s. How many rounds there were is n in the tables.\n\n"+
		"| | version |\n|---|---|\n",
		run.Date.UTC().Format("2 January 2006"), run.Took/60, run.Machine)
	for _, v := range run.Versions {
		fmt.Fprintf(b, "| %s | %s |\n", v.Name, v.Version)
	}
	b.WriteString("\n" + reading + "\n## What is fair, and what is not\n\n" + fairness + "\n")
}

func targets(b *strings.Builder, run result.Run) {
	b.WriteString("## Targets\n\nLimits that this library holds itself to. A number with an x is this library's over the other's, the other way round than in the " +
		"tables: less is better.\n\n| target | limit | measured | |\n|---|--:|--:|---|\n")
	for _, t := range run.Targets {
		value, verdict := "–", "not measured"
		switch {
		case t.Measured && run.Quick:
			value, verdict = quantity(t.Value, t.Unit), "not judged"
		case t.Measured && t.Met:
			value, verdict = quantity(t.Value, t.Unit), "met"
		case t.Measured:
			value, verdict = quantity(t.Value, t.Unit), "**missed**"
			if t.Why != "" {
				verdict += ": " + t.Why
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", cell(t.Text), quantity(t.Limit, t.Unit), value, cell(verdict))
	}
	b.WriteString("\n")
}

// section is a work: its story, and for each measure a table and perhaps a drawing.
func section(b *strings.Builder, drawings map[string][]byte, notes []string, work string, rows []result.Row) error {
	s, known := stories()[work]
	if !known {
		s.title = work
	}
	fmt.Fprintf(b, "## %s\n\n", s.title)
	if s.text != "" {
		b.WriteString(s.text + "\n\n")
	}
	for _, measure := range distinct(rows, func(r result.Row) string { return r.Measure }) {
		of := only(rows, func(r result.Row) bool { return r.Measure == measure })
		fmt.Fprintf(b, "### %s: %s\n\n", s.title, measure)
		if slices.Contains(s.plots, measure) {
			drawing, err := draws(s.title+": "+measure, of)
			if err != nil {
				return err
			}
			if drawing != nil {
				name := strings.ReplaceAll(work+"-"+measure, " ", "-") + ".svg"
				drawings[name] = drawing
				fmt.Fprintf(b, "![%s of each contender](benchmarks/%s)\n\n", measure, name)
			}
		}
		table(b, work, s.base, notes, of)
	}
	return nil
}

// table has a line for each row of a measure, with the numbers of its notes.
func table(b *strings.Builder, work string, to base, notes []string, rows []result.Row) {
	overX := slices.ContainsFunc(rows, func(r result.Row) bool { return r.X != 0 })
	if overX {
		fmt.Fprintf(b, "| peer | setting | %s ", cell(work))
	} else {
		b.WriteString("| peer | setting ")
	}
	fmt.Fprintf(b, "| n | min | median | p99 | max | %s | note |\n|---|---|%s", to, strings.Repeat("--:|", 6))
	if overX {
		b.WriteString("--:|")
	}
	b.WriteString("---|\n")
	for _, r := range rows {
		fmt.Fprintf(b, "| %s | %s ", cell(r.Peer), cell(r.Setting))
		if overX {
			fmt.Fprintf(b, "| %s ", quantity(r.X, "1"))
		}
		note := ""
		if r.Note != "" {
			note = fmt.Sprintf("[%d](#notes)", slices.Index(notes, r.Note)+1)
		}
		fmt.Fprintf(b, "%s| %s | %s |\n", statistics(r), to.ratio(r, rows), note)
	}
	b.WriteString("\n")
}

func statistics(r result.Row) string {
	if len(r.Samples) == 0 {
		return "| 0 | – | – | – | – "
	}
	s := result.Summarize(r.Samples)
	return fmt.Sprintf("| %d | %s | %s | %s | %s ", s.N,
		quantity(s.Min, r.Unit), quantity(s.Median, r.Unit), quantity(s.P99, r.Unit), quantity(s.Max, r.Unit))
}

// base is the contender that a ratio is to. The zero value is this library at its defaults.
type base struct {
	peer, setting string
	sameSetting   bool // the one of the row
}

func (to base) String() string {
	switch {
	case to == base{}:
		return "ratio"
	case to.setting != "":
		return "ratio to " + to.peer + ", " + to.setting
	}
	return "ratio to " + to.peer
}

// ratio is that of a row to the one of the base with the same X.
func (to base) ratio(r result.Row, rows []result.Row) string {
	switch {
	case to == base{}:
		to.peer, to.setting = "leader", "defaults"
	case to.sameSetting:
		to.setting = r.Setting
	}
	for _, other := range rows {
		if other.Peer != to.peer || other.Setting != to.setting || other.X != r.X {
			continue
		}
		if ratio, ok := result.Ratio(r, other); ok && ratio >= 0 { // a difference of two measurements can be below zero
			return digits(ratio)
		}
	}
	return "–"
}

// contender is who a row is of.
func contender(r result.Row) string {
	if r.Setting == "" {
		return r.Peer
	}
	return r.Peer + ", " + r.Setting
}

// cell is text that ends no cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// distinct are the values of rows, in the order in which they come.
func distinct(rows []result.Row, of func(result.Row) string) (values []string) {
	for _, r := range rows {
		if v := of(r); !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}

func only(rows []result.Row, keep func(result.Row) bool) (kept []result.Row) {
	for _, r := range rows {
		if keep(r) {
			kept = append(kept, r)
		}
	}
	return kept
}
