// SPDX-License-Identifier: MIT

//go:build darwin || dragonfly || freebsd

package leader

import (
	"os"
	"strings"
	"syscall"
)

// sqliteRemote names the file system at path if it is one whose locks may exclude nobody, and is "" otherwise.
func sqliteRemote(path string) (string, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil {
		return "", &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	var name strings.Builder
	for _, c := range stat.Fstypename {
		if c == 0 {
			break
		}
		name.WriteByte(byte(c))
	}
	const local = 0x1000 // MNT_LOCAL
	return sqliteFSName(name.String(), stat.Flags&local != 0), nil
}

// sqliteFSName names a file system that is not local, by its own word or because what is behind it cannot be known.
func sqliteFSName(name string, local bool) string {
	for _, part := range []string{"fuse", "nfs", "smb", "webdav", "afp", "p9fs", "virtiofs"} {
		if strings.Contains(strings.ToLower(name), part) {
			return name
		}
	}
	if local {
		return ""
	}
	return name
}

func sqliteMounted(string) bool { return false }
