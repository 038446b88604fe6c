// SPDX-License-Identifier: MIT

//go:build unix && noseam

package main

import (
	"time"

	"github.com/oxygenhub/leader"
)

// jump does nothing: the tag noseam is for a version of the library whose clock cannot be moved.
func jump(*leader.Leader, time.Duration) bool { return true }
