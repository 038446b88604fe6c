// SPDX-License-Identifier: MIT

package main

import "syscall"

// adopt has this process reap what the command leaves behind: in a container there may be nobody else who does, and a process
// that nobody reaps keeps its group.
func adopt() {
	const setChildSubreaper = 36                                                      // PR_SET_CHILD_SUBREAPER
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, uintptr(0)) // without it init does
}

// dieTogether has the kernel kill a child when the thread that starts it ends. The guard does so, too, and with its whole group, but
// knows of the child only a moment later.
func dieTogether(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
