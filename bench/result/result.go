// SPDX-License-Identifier: MIT

// Package result is what was measured.
package result

// Row is what one contender needed for one work: samples in the order in which they were measured. Sample i of each row of a
// work is of the same round, in which all contenders were measured in turn: ratios are taken round by round.
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
