// SPDX-License-Identifier: MIT

//go:build illumos || netbsd || openbsd

package leader

// sqliteRemote knows no file systems here.
func sqliteRemote(string) (string, error) { return "", nil }

func sqliteMounted(string) bool { return false }
