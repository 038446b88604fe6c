// SPDX-License-Identifier: MIT

//go:build !(linux || darwin || freebsd || netbsd || dragonfly)

package main

import "os"

// terminal takes all devices for one.
func terminal(file *os.File) (columns, rows int, ok bool) {
	info, err := file.Stat()
	return 0, 0, err == nil && info.Mode()&os.ModeCharDevice != 0
}
