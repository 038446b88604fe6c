// SPDX-License-Identifier: MIT

package check_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/oxygenhub/leader/soak/check"
	"github.com/oxygenhub/leader/soak/internal/sim"
)

// TestInventedHistories: a fleet that does all that it may, and nothing else, under random faults, is left alone, and each
// fault of the fleet itself is found, by its own rule.
func TestInventedHistories(t *testing.T) {
	terms, excused := 0, make(map[string]int)
	for seed := range uint64(100) {
		got := check.All(sim.Episode(seed, sim.Sound))
		for _, v := range got.Violations {
			t.Errorf("seed %d: %s: %s", seed, v.Rule, v.Text)
		}
		terms += got.Counts["terms"]
		for _, c := range got.Coverage {
			if c.Rule == check.Overlap {
				for kind, n := range c.Excused {
					excused[kind] += n
				}
			}
		}
	}
	assert.Greater(t, terms, 1000)
	for _, kind := range []string{"SIGSTOP", "terminate backend", "reset"} {
		assert.NotZero(t, excused[kind], kind)
	}
	assert.Zero(t, excused["black hole"], "tasks stop in time")
	for broken, rules := range map[sim.Broken][]check.Rule{
		sim.Early:   {check.Overlap, check.Order},
		sim.Eager:   {check.Overlap, check.Order},
		sim.Deaf:    {check.Overlap, check.Late},
		sim.Asleep:  {check.Unled},
		sim.Repeats: {check.TermTwice},
	} {
		found := make(map[check.Rule]int)
		for seed := range uint64(20) {
			for _, v := range check.All(sim.Episode(seed, broken)).Violations {
				found[v.Rule]++
			}
		}
		for _, rule := range rules {
			assert.NotZero(t, found[rule], "%s: %s: %v", broken, rule, found)
		}
	}
}
