// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"os"
	"syscall"
)

const canFreeze = true

func signalStop(p *os.Process) error     { return p.Signal(syscall.SIGSTOP) }
func signalContinue(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// signalLeave is what tells a service to stop on most platforms.
func signalLeave(n *node) error { return n.cmd.Process.Signal(syscall.SIGTERM) }
