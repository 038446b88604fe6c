// SPDX-License-Identifier: MIT

//go:build unix && !linux

package takeover

import "syscall"

// dieWithUs: a process ends when its standard input does.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
