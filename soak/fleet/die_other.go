// SPDX-License-Identifier: MIT

//go:build unix && !linux

package fleet

import "syscall"

// dieWithUs: a process leaves when its standard input ends, which one that is stopped does not see.
func dieWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
