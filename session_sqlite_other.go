// SPDX-License-Identifier: MIT

//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package leader

import (
	"fmt"
	"io/fs"
	"runtime"
)

const (
	sqliteRecordExt = ".holder"
	sqliteNoFollow  = 0
)

// sqliteLinked is where a system is refused that has no locks of files, or only such as belong to the process and go when it
// closes any of its handles.
func sqliteLinked(string, fs.FileInfo) (bool, error) {
	return false, fmt.Errorf("%w: no usable file locks on %s: use PostgreSQL", ErrUnsupported, runtime.GOOS)
}

func sqliteOwn(string, fs.FileInfo, fs.FileInfo) {}

func sqliteMounted(string) bool { return false }

func sqliteRemote(string) (string, error) { return "", nil }
