// SPDX-License-Identifier: MIT

//go:build !unix

package main

import (
	"errors"
	"os"
)

// canFreeze is false where there is no SIGSTOP, as on Windows.
const canFreeze = false

func signalStop(*os.Process) error     { return errors.ErrUnsupported }
func signalContinue(*os.Process) error { return nil }

// signalLeave does what SIGTERM would.
func signalLeave(n *node) error { return n.stdin.Close() }
