// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func summarize(t *testing.T, events ...event) (*summary, error) {
	t.Helper()
	var in strings.Builder
	for _, e := range events {
		e.Package = "p"
		if err := json.NewEncoder(&in).Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	s := &summary{
		allowed: map[string]bool{"TestAllowed": true, "TestOld@13": true},
		label:   "13",
		pending: map[string]*strings.Builder{},
		counts:  map[string]int{},
		times:   map[string]float64{},
	}
	if err := s.read(strings.NewReader(in.String())); err != nil {
		t.Fatal(err)
	}
	return s, s.close()
}

func TestSkipsAreCollectedWithTheirReason(t *testing.T) {
	s, err := summarize(t,
		event{Action: "output", Test: "TestA", Output: "=== RUN   TestA\n"},
		event{Action: "output", Test: "TestA", Output: "    a_test.go:7: no server: none found\n"},
		event{Action: "output", Test: "TestA", Output: "--- SKIP: TestA (0.00s)\n"},
		event{Action: "skip", Test: "TestA"},
		event{Action: "skip", Test: "TestB"},
		event{Action: "skip", Test: "TestAllowed"},
		event{Action: "skip", Test: "TestOld"},
		event{Action: "pass"},
	)
	want := []string{"no server: none found\tTestA", "no reason given\tTestB"}
	if err != nil || !slices.Equal(s.skips, want) {
		t.Errorf("skips %q, %v; want %q", s.skips, err, want)
	}
}

func TestFailureOfATestAPackageOrABuildIsOne(t *testing.T) {
	for _, e := range []event{{Action: "fail", Test: "TestA"}, {Action: "fail"}, {Action: "build-fail"}} {
		if _, err := summarize(t, event{Action: "pass", Test: "TestB"}, e); err == nil {
			t.Errorf("no failure: %+v", e)
		}
	}
	if _, err := summarize(t, event{Action: "pass"}); err == nil {
		t.Error("no failure: no test")
	}
}

func TestFailuresAreNamedByTheirInnermostTest(t *testing.T) {
	s, err := summarize(t,
		event{Action: "pass", Test: "TestA/one"},
		event{Action: "fail", Test: "TestA/two"},
		event{Action: "fail", Test: "TestA"},
		event{Action: "fail", Test: "TestAB"},
		event{Action: "output", Test: "TestC", Output: "=== RUN   TestC\n"},
		event{Action: "fail"},
	)
	want := []string{"TestA/two", "TestAB", "TestC (did not end)"}
	if err == nil || !slices.Equal(s.failures, want) {
		t.Errorf("failures %q, %v; want %q", s.failures, err, want)
	}
}

func TestSlowestAreNamed(t *testing.T) {
	s, err := summarize(t,
		event{Action: "pass", Test: "TestQuick", Elapsed: 1},
		event{Action: "pass", Test: "TestSlow", Elapsed: 6},
		event{Action: "pass", Test: "TestSlower/Part", Elapsed: 70},
		event{Action: "pass", Test: "TestSlower", Elapsed: 70.4},
	)
	if want := []string{"TestSlower 70 s", "TestSlow 6 s"}; err != nil || !slices.Equal(s.slowest(), want) {
		t.Errorf("slowest %q, %v; want %q", s.slowest(), err, want)
	}
}
