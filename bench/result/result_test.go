// SPDX-License-Identifier: MIT

package result_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/bench/result"
)

func TestSummarizeHasAPercentileOfAHundredSamplesOnly(t *testing.T) {
	var samples []float64
	for i := range 100 {
		samples = append(samples, float64(100-i))
	}
	assert.Equal(t, result.Summary{N: 100, Min: 1, Median: 50.5, P99: 99, Max: 100}, result.Summarize(samples))
	assert.True(t, math.IsNaN(result.Summarize(samples[1:]).P99))
	assert.Equal(t, 100.0, samples[0], "they stay in the order in which they were measured")
}

func TestRatioIsTakenRoundByRoundWhereRoundsArePaired(t *testing.T) {
	row := func(work, peer string, samples ...float64) result.Row {
		return result.Row{Work: work, Peer: peer, Samples: samples}
	}
	for name, c := range map[string]struct {
		a, b result.Row
		want float64
		ok   bool
	}{
		"paired":                  {row("handover", "leader", 1, 20, 30), row("handover", "raw", 1, 10, 10), 2, true},
		"one has failed midway":   {row("handover", "leader", 4, 20, 30), row("handover", "raw", 1), 4, true},
		"side by side":            {row("kill", "River", 1, 20, 30), row("kill", "leader", 1, 4, 10), 5, true},
		"not measured":            {row("kill", "River"), row("kill", "leader", 1), 0, false},
		"nothing to be a part of": {row("hole", "etcd", 1), row("hole", "leader", 0), 0, false},
	} {
		got, ok := result.Ratio(c.a, c.b)
		assert.Equal(t, c.ok, ok, name)
		if ok {
			assert.InDelta(t, c.want, got, 1e-9, name)
		}
	}
}

func TestTargetsThatWereNotMeasuredAreNotMet(t *testing.T) {
	targets := result.Targets(nil)
	require.Len(t, targets, 12)
	for _, target := range targets {
		assert.False(t, target.Measured || target.Met, target.Text)
	}
}

// rows are those of a run in which each target is met, at its limit.
func rows() []result.Row {
	row := func(work, measure, peer, setting string, x float64, samples ...float64) result.Row {
		return result.Row{Work: work, Measure: measure, Peer: peer, Setting: setting, X: x, Samples: samples}
	}
	return []result.Row{
		row("handover", "takeover", "leader", "defaults", 0, 2),
		row("handover", "takeover", "raw", "", 0, 1),
		row("handover", "takeover", "River", "defaults", 0, 20),
		row("kill", "takeover", "leader", "defaults", 0, 1),
		row("kill", "takeover", "leader", "Retry 100 ms", 0, 0.08),
		row("kill", "takeover", "client-go", "defaults", 0, 10),
		row("kill", "takeover", "etcd", "defaults", 0, 40),
		row("kill", "takeover", "River", "defaults", 0, 16),
		row("session", "told", "leader", "defaults", 0, 2),
		row("session", "told", "raw", "", 0, 1),
		row("hole", "overlap", "leader", "defaults", 0, 0, 0),
		row("names", "standby statements", "leader", "defaults", 1, 1),
		row("names", "standby statements", "leader", "defaults", 5000, 1.05),
		row("names", "standby cpu", "leader", "defaults", 1, 1.5),
		row("names", "standby cpu", "leader", "defaults", 5000, 3),
		row("names", "standby cpu", "raw", "", 1, 1),
		row("names", "standby cpu", "raw", "", 5000, 2),
		row("names", "standby cpu", "raw prepared", "", 1, 1),
		row("names", "standby cpu", "raw prepared", "", 5000, 2),
		row("herd", "takeover", "leader", "defaults", 100, 0.02),
		row("herd", "tries", "leader", "defaults", 100, 2),
	}
}

func TestTargetsAreMetAtTheirLimitsAndMissedBeyond(t *testing.T) {
	for _, target := range result.Targets(rows()) {
		assert.True(t, target.Met, "%s: %v", target.Text, target.Value)
	}
	worse := rows()
	for i, r := range worse {
		for k := range r.Samples {
			switch {
			case r.Peer == "leader" && r.X == 1 && r.Measure == "standby statements": // the fewest
			case r.Peer == "leader":
				r.Samples[k] = r.Samples[k]*1.1 + 1e-3
			}
		}
		worse[i] = r
	}
	for _, target := range result.Targets(worse) {
		assert.True(t, target.Measured, target.Text)
		assert.False(t, target.Met, "%s: %v", target.Text, target.Value)
	}
}

// An overlap that was measured with short times only says nothing of the others.
func TestTheOverlapIsUnknownWithoutTheDefaults(t *testing.T) {
	for _, of := range []string{"Check 1 s", "defaults"} {
		all := slices.DeleteFunc(rows(), func(r result.Row) bool { return r.Work == "hole" })
		all = append(all, result.Row{Work: "hole", Measure: "overlap", Peer: "leader", Setting: of, Samples: []float64{0}})
		i := slices.IndexFunc(result.Targets(all), func(t result.Target) bool { return strings.Contains(t.Text, "overlap") })
		assert.Equal(t, of == "defaults", result.Targets(all)[i].Met, of)
	}
}

func TestTheFastestPeerIsUnknownWithoutOneOfThem(t *testing.T) {
	all := rows()
	all[5].Samples = nil // client-go
	for i, target := range result.Targets(all) {
		assert.Equal(t, i != 2, target.Measured, target.Text)
	}
}
