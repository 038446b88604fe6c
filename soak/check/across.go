// SPDX-License-Identifier: MIT

package check

import (
	"fmt"
	"slices"
	"time"
)

const (
	prompt = 25 * time.Millisecond // far less than who only asks every Check needs to hear of something
	enough = 20                    // losses, for a median
)

// Across judges what one episode has too few of: that most losses are heard of as soon as the connection says so (G3). A single one
// may be late on a busy machine, and within an episode only what is later than that is found. It looks at the faults that end a
// session and nothing else, and needs twenty of them.
func Across(results []Result) (Violation, bool) {
	var told []time.Duration
	for _, r := range results {
		for _, s := range r.Series {
			if s.What == "told" && (s.Cause == "terminate" || s.Cause == "reset") {
				told = append(told, s.Values...)
			}
		}
	}
	if len(told) < enough {
		return Violation{}, false
	}
	slices.Sort(told)
	if median := told[len(told)/2]; median > prompt {
		text := fmt.Sprintf("of %d tasks whose session was ended, half were told after %v or later", len(told), median.Round(time.Microsecond))
		return Violation{Rule: Late, Text: text}, true
	}
	return Violation{}, false
}
