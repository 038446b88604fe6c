// SPDX-License-Identifier: MIT

//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package leader

import (
	"io/fs"
	"os"
	"syscall"
)

const (
	// sqliteRecordExt is where the record of a holder is: in the lock file, which goes with it if it is replaced.
	sqliteRecordExt = ".lock"
	// sqliteNoFollow keeps whoever can write to the lock directory from having us lock and write files elsewhere.
	sqliteNoFollow = syscall.O_NOFOLLOW
)

// sqliteLinked tells whether the file of info has several hard links.
func sqliteLinked(_ string, info fs.FileInfo) (bool, error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink > 1, nil
}

// sqliteOwn gives path, of which info is known, the owner of the database file: what root makes must not lock out the
// service. Others can at most give it the group.
func sqliteOwn(path string, info, database fs.FileInfo) {
	have, ok := info.Sys().(*syscall.Stat_t)
	want, known := database.Sys().(*syscall.Stat_t)
	if !ok || !known {
		return
	}
	switch {
	case os.Geteuid() == 0 && (have.Uid != want.Uid || have.Gid != want.Gid):
		_ = os.Lchown(path, int(want.Uid), int(want.Gid))
	case have.Gid != want.Gid:
		_ = os.Lchown(path, -1, int(want.Gid))
	}
}
