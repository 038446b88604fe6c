// SPDX-License-Identifier: MIT

package fleet

import "syscall"

// mountSmall mounts a file system of few bytes, which takes root.
func mountSmall(dir string) error { return syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=32m") }

// unmount also takes one that a process still uses: it is gone when that one is.
func unmount(dir string) { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }
