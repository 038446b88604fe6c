// SPDX-License-Identifier: MIT

package takeover

import "syscall"

// dieWithUs has a process end with this one, however that ends.
func dieWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
