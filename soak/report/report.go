// SPDX-License-Identifier: MIT

// Package report writes down what a run of the laboratory has found: report.html, a page of its own, and report.md with
// its pictures beside it. Both say how to repeat the run, what was done to the fleet, who led when, what was measured
// against which bound, what was excused, and the verdict.
package report

import (
	"os"
	"path/filepath"
	"time"

	"github.com/oxygenhub/leader/soak/check"
	"github.com/oxygenhub/leader/soak/history"
)

// Run is what a report is about.
type Run struct {
	Seed     uint64
	Command  string // repeats it
	Began    time.Time
	Took     time.Duration
	Machine  string   // processors, memory, kernel
	Versions []string // of Go, of the library, of what else took part
	Options  []string // other choices of the run, each in a few words
	Episodes []Episode
}

// Episode is one of a run, and what the checkers said.
type Episode struct {
	History *history.Episode
	Result  check.Result
	Trouble string // why it could not be carried out or judged; "" if it was
}

// OK says whether the run is as it must be: no episode has a violation or failed, but for those whose fleet is deliberately
// broken, each of which has one; nor have all of them together.
func (r Run) OK() bool {
	if _, found := r.across(); found {
		return false
	}
	for _, e := range r.Episodes {
		if !e.ok() {
			return false
		}
	}
	return len(r.Episodes) > 0
}

// across judges all episodes of the library as it is.
func (r Run) across() (check.Violation, bool) {
	var results []check.Result
	for _, e := range r.Episodes {
		if e.History.Broken == "" {
			results = append(results, e.Result)
		}
	}
	return check.Across(results)
}

func (e Episode) ok() bool {
	return e.Trouble == "" && (e.History.Broken != "") == (len(e.Result.Violations) > 0)
}

// Write makes report.html, and report.md with the SVG files that it shows, in a folder, which it makes if it is not there.
// What is there under these names is replaced. It reads the run and keeps nothing of it.
func Write(dir string, run Run) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	v := newView(run)
	page, err := v.html()
	if err != nil {
		return err
	}
	files := map[string][]byte{"report.html": page, "report.md": v.markdown()}
	for _, p := range v.pictures() {
		files[p.File] = p.file()
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
