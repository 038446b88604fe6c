// SPDX-License-Identifier: MIT

package result

import (
	"math"
	"slices"
)

// Summary is what a table says of samples.
type Summary struct {
	N                int
	Min, Median, Max float64
	P99              float64 // NaN of fewer than 100 samples, of which it would be the largest
}

// Summarize returns the summary of samples, of which there must be one.
func Summarize(samples []float64) Summary {
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted)
	s := Summary{N: n, Min: sorted[0], Median: medianOf(sorted), P99: math.NaN(), Max: sorted[n-1]}
	if n >= 100 {
		s.P99 = sorted[(99*n+99)/100-1] // the nearest rank: the least that 99 % are not above
	}
	return s
}

// Median is the middle one of samples, of which there must be one, or the mean of the two in the middle.
func Median(samples []float64) float64 {
	return medianOf(slices.Sorted(slices.Values(samples)))
}

func medianOf(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// Ratio is how often b goes into a: the median of the ratios of each round where the rows are of the same rounds, else the ratio
// of the medians. It is false if there is none, as for what is nothing.
func Ratio(a, b Row) (float64, bool) {
	if len(a.Samples) == 0 || len(b.Samples) == 0 {
		return 0, false
	}
	if !Paired(a) || !Paired(b) {
		return over(Median(a.Samples), Median(b.Samples))
	}
	var ratios []float64
	for i := range min(len(a.Samples), len(b.Samples)) { // a peer that has failed had no more turns
		ratio, ok := over(a.Samples[i], b.Samples[i])
		if !ok {
			return 0, false
		}
		ratios = append(ratios, ratio)
	}
	return Median(ratios), true
}

func over(a, b float64) (float64, bool) {
	return a / b, b > 0
}

// Paired reports whether a row was measured in turn with the others of its work of which it reports so too. What takes long was
// measured side by side.
func Paired(r Row) bool {
	switch r.Work {
	case "handover":
		return slices.Contains([]string{"leader", "raw", "blocked", "River", "etcd"}, r.Peer)
	case "kill":
		return r.Peer == "leader" || r.Peer == "raw"
	case "session":
		return true
	}
	return false
}
