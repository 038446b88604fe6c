// SPDX-License-Identifier: MIT

//go:build unix && !noseam

package main

import (
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/seam"
)

// jump moves the wall clock of l.
func jump(l *leader.Leader, d time.Duration) bool {
	seam.Skew(l, d)
	return true
}
