// SPDX-License-Identifier: MIT

// Command testsum reads the output of go test -json and prints what a person wants of it: the output of tests that
// failed, and each package's closing line. It appends skipped tests to one file and failed ones to another, so that make
// test can say at its end what did not run and what failed, and CI can fail for it. It fails if a test failed or none ran.
//
//	go test -json ./... | testsum [-skips FILE] [-failures FILE] [-allow FILE] [-label WORD]
//
// A line of the allow file is the name of a test that may be skipped, or name@label for runs with that label only.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action, Package, ImportPath, Test, Output string

	Elapsed float64 // s
}

type summary struct {
	allowed map[string]bool
	label   string

	pending  map[string]*strings.Builder // output of tests that have not ended, by package and name
	skips    []string                    // reason, tab, name
	failures []string                    // names
	counts   map[string]int              // tests by the action that ended them
	times    map[string]float64          // of the tests that are no subtests, in seconds
	failed   bool
}

func main() {
	skips := flag.String("skips", "", "append skipped tests to this file")
	failures := flag.String("failures", "", "append the names of failed tests to this file")
	allow := flag.String("allow", "", "names of tests that may be skipped")
	label := flag.String("label", "", "what this run is")
	flag.Parse()
	if err := run(*skips, *failures, *allow, *label); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
}

func run(skips, failures, allow, label string) error {
	allowed, err := readAllowed(allow)
	if err != nil {
		return err
	}
	s := &summary{
		allowed: allowed,
		label:   label,
		pending: map[string]*strings.Builder{},
		counts:  map[string]int{},
		times:   map[string]float64{},
	}
	if err := s.read(os.Stdin); err != nil {
		return err
	}
	err = s.close()
	return errors.Join(appendLines(skips, s.skips), appendLines(failures, s.failures), err)
}

func readAllowed(file string) (map[string]bool, error) {
	allowed := map[string]bool{}
	if file == "" {
		return allowed, nil
	}
	text, err := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if name := strings.TrimSpace(line); name != "" {
			allowed[name] = true
		}
	}
	return allowed, err
}

func appendLines(file string, lines []string) error {
	if file == "" || len(lines) == 0 {
		return nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, strings.Join(lines, "\n")+"\n")
	return errors.Join(err, f.Close())
}

func (s *summary) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			s.line(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// line takes an event, or prints what is none.
func (s *summary) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Action == "" {
		fmt.Printf("%s", line)
		return
	}
	key := e.Package + " " + e.Test
	switch {
	case e.Action == "build-output", e.Action == "output" && e.Test == "":
		if e.Output != "PASS\n" {
			fmt.Print(e.Output)
		}
	case e.Action == "output":
		if s.pending[key] == nil {
			s.pending[key] = &strings.Builder{}
		}
		s.pending[key].WriteString(e.Output)
	case e.Action == "fail", e.Action == "pass", e.Action == "skip":
		s.ended(e, key)
	case e.Action == "build-fail":
		s.failed = true
	}
}

// ended takes the end of a test or of a package.
func (s *summary) ended(e event, key string) {
	if e.Action == "fail" {
		s.failed = true
	}
	if e.Test == "" {
		return
	}
	s.counts[e.Action]++
	if !strings.Contains(e.Test, "/") {
		s.times[e.Test] = e.Elapsed
	}
	var output string
	if b := s.pending[key]; b != nil {
		output = b.String()
		delete(s.pending, key)
	}
	switch {
	case e.Action == "fail":
		fmt.Print(output)
		s.failures = append(s.failures, e.Test)
	case e.Action == "skip" && !s.allowed[e.Test] && !s.allowed[e.Test+"@"+s.label]:
		s.skips = append(s.skips, reason(output)+"\t"+e.Test)
	}
}

// reason finds the message in the output of a skipped test: the last line that is not the test runner's.
func reason(output string) string {
	last := "no reason given"
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		last = line
		// The position in front differs between tests with the same reason.
		if pos, text, ok := strings.Cut(line, ": "); ok && strings.Contains(pos, ".go:") {
			last = text
		}
	}
	return strings.ReplaceAll(last, "\t", " ")
}

// slowest returns the tests that took longest, and more than 5 s.
func (s *summary) slowest() (texts []string) {
	names := slices.SortedFunc(maps.Keys(s.times), func(a, b string) int { return cmp.Compare(s.times[b], s.times[a]) })
	for _, name := range names[:min(len(names), 8)] {
		if s.times[name] > 5 {
			texts = append(texts, fmt.Sprintf("%s %.0f s", name, s.times[name]))
		}
	}
	return texts
}

// close prints what was left open, as a crash of the test binary leaves it, and the totals.
func (s *summary) close() error {
	for key, b := range s.pending {
		if s.failed {
			fmt.Printf("did not end: %s\n%s", key, b)
			_, test, _ := strings.Cut(key, " ")
			s.failures = append(s.failures, test+" (did not end)")
		}
	}
	// A test with subtests fails with one of them, which says more.
	all := slices.Clone(s.failures)
	s.failures = slices.DeleteFunc(s.failures, func(test string) bool {
		return slices.ContainsFunc(all, func(other string) bool { return strings.HasPrefix(other, test+"/") })
	})
	fmt.Printf("%d passed, %d failed, %d skipped\n", s.counts["pass"], s.counts["fail"], s.counts["skip"])
	if slow := s.slowest(); len(slow) > 0 {
		fmt.Printf("slowest: %s\n", strings.Join(slow, ", "))
	}
	switch {
	case s.failed:
		return errors.New("failed")
	case s.counts["pass"] == 0 && s.counts["skip"] == 0:
		return errors.New("no test ran")
	default:
		return nil
	}
}
