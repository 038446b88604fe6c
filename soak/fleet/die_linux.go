// SPDX-License-Identifier: MIT

package fleet

import "syscall"

// dieWithUs has a process end with this one, however that ends, also while it is stopped.
func dieWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
