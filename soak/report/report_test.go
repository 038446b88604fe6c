// SPDX-License-Identifier: MIT

package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/soak/check"
	"github.com/oxygenhub/leader/soak/history"
	"github.com/oxygenhub/leader/soak/internal/sim"
	"github.com/oxygenhub/leader/soak/report"
)

func runOf(episodes ...*history.Episode) report.Run {
	run := report.Run{
		Seed: 4711, Command: "go run ./soak -seed 4711 -for 5m", Began: time.Date(2026, 12, 2, 3, 4, 5, 0, time.UTC), Took: 5 * time.Minute,
		Machine: "two virtual cores, 4 GB, Linux 6.1", Versions: []string{"go1.26.0", "leader v0.9.0", "PostgreSQL 15.14"}, Options: []string{"4 processes"},
	}
	for _, ep := range episodes {
		run.Episodes = append(run.Episodes, report.Episode{History: ep, Result: check.All(ep)})
	}
	return run
}

// write writes a report and returns the files in its folder.
func write(t *testing.T, run report.Run) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "new", "folder")
	if keep := os.Getenv("LEADER_SOAK_REPORT"); keep != "" { // for those who want to look at it
		dir = filepath.Join(keep, t.Name())
	}
	require.NoError(t, report.Write(dir, run))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := make(map[string]string)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		files[e.Name()] = string(data)
	}
	return files
}

// parse reads XML, which the page is too, and returns its text and how often each element is in it.
func parse(t *testing.T, data string) (text string, elements map[string]int) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(data))
	d.Entity = xml.HTMLEntity
	elements = make(map[string]int)
	var all bytes.Buffer
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all.String(), elements
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			elements[token.Name.Local]++
			for _, a := range token.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "src" {
					t.Errorf("%s has %s", token.Name.Local, a.Name.Local)
				}
			}
		case xml.CharData:
			all.Write(token)
		}
	}
}

func TestWrite(t *testing.T) {
	run := runOf(sim.Episode(1, sim.Sound), sim.Episode(2, sim.Sound), sim.Episode(3, sim.Early))
	require.True(t, run.OK())
	files := write(t, run)
	text, elements := parse(t, files["report.html"])
	for _, fact := range []string{
		"Passed. No violations in 2 episodes. Caught 1 of 1 episode whose fleet is deliberately broken.", "4711", run.Command, run.Machine, "go1.26.0", "leader v0.9.0",
		"2026-12-02 03:04:05 UTC", "seed 1", "seed 2", "Retry 200 ms", "billing", "reports", "SIGKILL", "black hole", "calm",
		"takeover", "told", "overlap", string(check.Overlap), string(sim.Early), "Excused", "3 names",
	} {
		assert.Contains(t, text, fact)
	}
	assert.Equal(t, 7, elements["svg"], "a timeline for each episode, and four distributions")
	assert.Zero(t, elements["script"])
	assert.Contains(t, files["report.html"], "prefers-color-scheme: dark")
	assert.NotRegexp(t, `(?:href|src)="(?:http|//)|url\(`, files["report.html"])

	shown := regexp.MustCompile(`!\[[^\]]*\]\(([^)]*)\)`).FindAllStringSubmatch(files["report.md"], -1)
	require.Len(t, shown, 7)
	for _, picture := range shown {
		_, elements = parse(t, files[picture[1]])
		assert.Equal(t, 1, elements["svg"], picture[1])
		assert.Equal(t, 1, elements["style"], picture[1])
	}
	for _, fact := range []string{"**Passed.**", "4711", run.Command, "| terminate backend |", "What was looked at"} {
		assert.Contains(t, files["report.md"], fact)
	}
	bars := regexp.MustCompile(`class="edge n\d"`).FindAllString(files["timeline-1.svg"], -1)
	assert.Len(t, bars, run.Episodes[0].Result.Counts["terms"])
	assert.Equal(t, files, write(t, run), "the same run makes the same report")
}

func TestVerdict(t *testing.T) {
	late := report.Episode{History: sim.Episode(1, sim.Sound), Result: check.Result{
		Series: []check.Series{{What: "told", Cause: "terminate", Values: slices.Repeat([]time.Duration{70 * time.Millisecond}, 30)}},
	}}
	for _, c := range []struct {
		what string
		run  report.Run
		ok   bool
		says string
	}{
		{"nothing", runOf(), false, "Failed. No violations in no episodes."},
		{"a violation", runOf(sim.Episode(1, sim.Sound), broken(sim.Early, "")), false, "1 episode of them violated something."},
		{"a fault that is caught", runOf(sim.Episode(1, sim.Early)), true, "Passed. Caught 1 of 1 episode"},
		{"a fault that is not caught", runOf(broken(sim.Sound, "nothing at all")), false, "Caught 0 of 1 episode"},
		{"losses that are heard of late", report.Run{Episodes: []report.Episode{late}}, false, "Failed. No violations in 1 episode. On the whole, a task was told too late: of 30 tasks"},
		{"an episode that failed", report.Run{Episodes: []report.Episode{{History: sim.Episode(1, sim.Sound), Trouble: "the server does not start"}}}, false, "1 episode could not be carried out."},
	} {
		assert.Equal(t, c.ok, c.run.OK(), c.what)
		text, _ := parse(t, write(t, c.run)["report.html"])
		assert.Contains(t, text, c.says, c.what)
	}
}

// broken is a fleet that says another fault of itself than it has.
func broken(by sim.Broken, says string) *history.Episode {
	ep := sim.Episode(1, by)
	ep.Broken = says
	return ep
}

// TestWriteHostileText: what a fleet, a database or a user calls something does not become a part of the report.
func TestWriteHostileText(t *testing.T) {
	const evil = "</title></text></svg><script>alert(1)</script>\"' onload='x' | a [b](c) `d` \x00\xff\u202e ]]> &amp;\n# e"
	ep := sim.Episode(1, sim.Sound)
	ep.Names, ep.Server, ep.Arena, ep.Backend = []string{evil}, evil, evil, evil
	for i := range ep.Events {
		e := &ep.Events[i]
		if e.Name != "" {
			e.Name = evil
		}
		if e.Node != "" {
			e.Node += evil
		}
		e.Text = evil
		if e.Fault != nil {
			fault := *e.Fault
			fault.Kind = evil
			e.Fault = &fault
		}
	}
	run := runOf(ep)
	run.Command, run.Machine, run.Versions, run.Options = evil, evil, []string{evil}, []string{evil}
	run.Episodes[0].Trouble = evil
	run.Episodes[0].Result.Violations = append(run.Episodes[0].Result.Violations, check.Violation{Rule: evil, Name: evil, At: 1, Text: evil, Events: ep.Events[:3]})
	files := write(t, run)
	for name, data := range files {
		if name == "report.md" { // the command stands in a fence, where text is text
			data = regexp.MustCompile("(?s)```\n.*?\n```\n").ReplaceAllString(data, "")
		}
		assert.NotContains(t, data, "<script", name)
		assert.NotContains(t, data, "\u202e", name)
		assert.NotContains(t, data, "\x00", name)
		if !strings.HasSuffix(name, ".md") {
			_, elements := parse(t, data)
			assert.Zero(t, elements["script"], name)
		}
	}
	text, _ := parse(t, files["report.html"])
	assert.Contains(t, text, `\u{202e}`)
	table := false
	for line := range strings.Lines(files["report.md"]) {
		assert.False(t, strings.HasPrefix(line, "# e"), "a heading of its own")
		if strings.HasPrefix(line, "| ") && strings.Contains(line, "alert") {
			table = true
			assert.Contains(t, []int{5, 7}, strings.Count(line, "|"), "cells: %s", line)
		}
	}
	assert.True(t, table)
}

// TestWriteOddEpisodes: an episode with nothing in it, or with things that cannot be, is written all the same.
func TestWriteOddEpisodes(t *testing.T) {
	fault := &history.Injury{ID: 1, Kind: "reset", Reach: history.ReachCut}
	files := write(t, runOf(
		&history.Episode{},
		&history.Episode{Events: []history.Event{{At: 5, Kind: history.Fault}, {At: 7, Kind: history.Heal, Fault: fault}, {At: 9, Kind: history.Stop, Node: "x"}}},
		&history.Episode{Events: []history.Event{{At: 5, Kind: history.Calm}, {At: 5, Kind: history.Fault, Fault: fault}, {At: 5, Kind: history.Load}}},
	))
	for name, data := range files {
		if !strings.HasSuffix(name, ".md") {
			parse(t, data)
		}
		assert.NotContains(t, data, "NaN", name)
		assert.NotContains(t, data, "Inf", name)
	}
}
