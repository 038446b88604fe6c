// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"fmt"
	"strings"
)

// mark makes text that Markdown shows as it is, in a line or a cell.
func mark(s string) string {
	var out strings.Builder
	for _, r := range plain(s) {
		switch {
		case r == '&':
			out.WriteString("&amp;")
		case r == '<':
			out.WriteString("&lt;")
		case strings.ContainsRune("\\`*_{}[]()#+!|~>@:$", r):
			fmt.Fprintf(&out, "&#%d;", r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// code is for commands, which a reader copies: a fence that is longer than any row of backticks in it.
func code(s string) string {
	fence := "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	return fence + "\n" + plain(s) + "\n" + fence + "\n"
}

// markdown makes report.md.
func (v *view) markdown() []byte {
	var out bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	word := "Passed."
	if !v.OK {
		word = "Failed."
	}
	p("# A fleet under faults\n\n**%s** %s\n", word, v.Verdict)
	p("Seed %d, %s, for %s. To repeat it:\n\n%s", v.Seed, v.Began.UTC().Format("2006-01-02 15:04:05 UTC"), span(v.Took), code(v.Command))
	p("- Machine: %s\n- Versions: %s\n- Options: %s", mark(v.Machine), marks(v.Versions), marks(v.Options))
	p("- What happened: %s\n- Faults: %s", counted(v.Counts), counted(v.Faults))
	p("\n## Who led when\n")
	p("Lanes are names, bars are tasks with the name of their process. Red is what a task did after it was told that its lock\nmay be gone; a cross is the death of its process; a triangle is a violation.")
	for _, f := range v.Fleets {
		f.markdown(p)
	}
	if len(v.Groups) > 0 {
		p("\n## What was measured\n\nThe axis is logarithmic. The solid line is the median, the dashed one the bound without the slack of a busy machine.")
	}
	for _, g := range v.Groups {
		p("\n### %s\n\n%s\n\n![%s](%s)\n", strings.ToUpper(g.Title[:1])+g.Title[1:], g.Says, g.Picture.Title, g.Picture.File)
		p("| cause | number | median | 99 of 100 | worst | bound |\n|---|---:|---:|---:|---:|---:|")
		for _, f := range g.Figures {
			p("| %s | %d | %s | %s | %s | %s |", mark(f.Cause), f.Count(), f.Median(), f.Most(), f.Worst(), f.Limit())
		}
	}
	if len(v.Cover) > 0 {
		p("\n## What was looked at\n\nWhat was excused would be a violation without the fault.\n")
		p("| what must not be | looked at | excused | not judged |\n|---|---:|---|---:|")
		for _, c := range v.Cover {
			p("| %s | %d | %s | %d |", mark(c.Rule), c.Checked, mark(c.Excuses()), c.Skipped)
		}
	}
	return out.Bytes()
}

func (f *fleet) markdown(p func(string, ...any)) {
	p("\n### Episode %d: %s\n\nSeed %d: %s.\n", f.Number, f.Says, f.History.Seed, mark(f.Facts))
	if f.History.Broken != "" {
		p("Its fleet is deliberately broken: %s.\n", mark(f.History.Broken))
	}
	if f.Trouble != "" {
		p("It was not carried out: %s\n", mark(f.Trouble))
	}
	p("![%s](%s)", f.Picture.Title, f.Picture.File)
	for _, v := range f.Violations {
		p("\n- **%s** %s: %s", mark(v.Rule), mark(v.Name), mark(v.Text))
	}
	if f.More > 0 {
		p("\n%d more violations are not shown.", f.More)
	}
	for _, r := range f.Rates {
		p("\n%s: %.1f of at most %.1f %s", mark(r.What), r.Value, r.Bound, mark(r.Unit))
	}
	if len(f.Faults) > 0 {
		p("\n<details><summary>Its faults</summary>\n\n| at | fault | of | for |\n|---:|---|---|---:|")
		for _, x := range f.Faults {
			p("| %s | %s | %s | %s |", x.At, mark(x.Kind), mark(x.Whom), x.For)
		}
		p("\n</details>")
	}
}

func marks(all []string) string {
	var parts []string
	for _, s := range all {
		parts = append(parts, mark(s))
	}
	return strings.Join(parts, ", ")
}

func counted(all []count) string {
	var parts []string
	for _, c := range all {
		parts = append(parts, fmt.Sprintf("%d %s", c.N, mark(c.What)))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
