// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/oxygenhub/leader/soak/history"
	"github.com/oxygenhub/leader/soak/report"
)

// TestArenasTakeTurns: what cannot be run here is left out, and what had no turn is said.
func TestArenasTakeTurns(t *testing.T) {
	r := &soak{next: []string{"direct", "remote", "sqlite"}}
	var ran []string
	for range 4 {
		arena := r.next[0]
		if arena == "remote" {
			r.skipped = append(r.skipped, arena)
		} else {
			ran = append(ran, arena)
			r.run.Episodes = append(r.run.Episodes, report.Episode{History: &history.Episode{Arena: arena}})
		}
		r.turn()
	}
	assert.Equal(t, []string{"direct", "sqlite", "direct"}, ran)
	assert.Equal(t, []string{"remote"}, r.skipped)
	assert.Empty(t, r.unreached())
	r.run.Episodes = r.run.Episodes[:1]
	assert.Equal(t, []string{"sqlite"}, r.unreached())
	r = &soak{next: []string{"remote"}, skipped: []string{"remote"}}
	r.turn()
	assert.Empty(t, r.next, "nothing is left to run")
}

func TestRunsThatSayNothingAreRefused(t *testing.T) {
	assert.NoError(t, options{calm: 12 * time.Second, broken: "early"}.validate())
	assert.ErrorContains(t, options{calm: 12 * time.Second, broken: "erly"}.validate(), "erly")
	assert.ErrorContains(t, options{calm: 8 * time.Second}.validate(), "not judged")
}
