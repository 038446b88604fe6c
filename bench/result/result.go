// SPDX-License-Identifier: MIT

// Package result is what was measured.
package result

import "time"

// Row is what one contender needed for one work: samples in the order in which they were measured. Sample i of each row of a
// work is of the same round, in which all contenders were measured in turn, where [Paired] says so.
type Row struct {
	Work    string    `json:"work"`              // "handover"
	Peer    string    `json:"peer"`              // "leader", "raw", "client-go", ...
	Setting string    `json:"setting,omitempty"` // "defaults", "Retry 100 ms", ...
	Measure string    `json:"measure"`           // "takeover", "told", "overlap", "statements", "cpu", ...
	Unit    string    `json:"unit"`              // "s", "ns", "B", "1/s", "1", "B/op", ...
	X       float64   `json:"x,omitempty"`       // names or processes, of a work that is measured over them
	Samples []float64 `json:"samples"`
	Note    string    `json:"note,omitempty"` // what a reader has to know, a sentence
}

// Run is all that was measured in one go, and where.
type Run struct {
	Date     time.Time `json:"date"`
	Took     float64   `json:"took_seconds"`
	Machine  string    `json:"machine"`
	Versions []Version `json:"versions"`
	Quick    bool      `json:"quick,omitempty"`   // with the fewest repeats: no measurement
	Partial  string    `json:"partial,omitempty"` // why some works are not in it, a sentence
	Rows     []Row     `json:"rows"`
	Targets  []Target  `json:"targets"`
}

// Version is that of a program or a module that took part.
type Version struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Target is a promise about a ratio or a number of this run: at most Limit.
type Target struct {
	Text     string  `json:"text"`
	Limit    float64 `json:"limit"`
	Value    float64 `json:"value"` // 0 unless Measured
	Unit     string  `json:"unit"`  // "x" for a ratio
	Measured bool    `json:"measured"`
	Met      bool    `json:"met"`           // never without Measured
	Why      string  `json:"why,omitempty"` // of a miss: what was tried
}
