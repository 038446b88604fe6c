// SPDX-License-Identifier: MIT

package faults_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/soak/faults"
	"github.com/oxygenhub/leader/soak/history"
)

func timing() history.Timing {
	return history.Timing{Retry: 100 * time.Millisecond, Check: 100 * time.Millisecond, Lease: 600 * time.Millisecond, SessionTimeout: 1500 * time.Millisecond}
}

func TestPlanIsAFunctionOfItsSeed(t *testing.T) {
	const length = time.Minute
	plan := faults.Plan(1, "direct", 3, timing(), length)
	assert.Equal(t, plan, faults.Plan(1, "direct", 3, timing(), length))
	assert.NotEqual(t, plan, faults.Plan(2, "direct", 3, timing(), length))
	require.NotEmpty(t, plan)
	for i, f := range plan {
		assert.Equal(t, i+1, f.ID)
		assert.Less(t, f.At, length)
		assert.LessOrEqual(t, f.Place, 3)
	}
}

// TestPlanKnowsEachKind: in the course of many episodes, everything that an arena has happens, and nothing else.
func TestPlanKnowsEachKind(t *testing.T) {
	for _, arena := range []string{"direct", "sqlite", "pooler", "replica", "remote"} {
		seen := make(map[string]bool)
		for seed := range uint64(200) {
			for _, f := range faults.Plan(seed, arena, 3, timing(), 20*time.Second) {
				seen[f.Kind] = true
			}
		}
		var kinds []string
		for kind := range seen {
			kinds = append(kinds, kind)
		}
		assert.ElementsMatch(t, faults.Kinds(arena), kinds, arena)
	}
}

func TestDeployReplacesEachPlace(t *testing.T) {
	plan := faults.Plan(1, "direct", 3, timing(), 20*time.Second)
	before := len(plan)
	plan = faults.Deploy(plan, 3, 20*time.Second)
	require.Len(t, plan, before+3)
	replaced := make(map[int]bool)
	for i, f := range plan {
		assert.Equal(t, i+1, f.ID)
		if f.Kind == faults.Replace {
			replaced[f.Place] = true
		}
	}
	assert.Len(t, replaced, 3)
}
