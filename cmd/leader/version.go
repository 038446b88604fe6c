// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

func (a *app) version(args []string) (int, error) {
	fs := a.flags("version", versionHelp)
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	if fs.NArg() > 0 {
		return 0, usagef("version: it takes no arguments")
	}
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(info.Main.Version, version)
	}
	a.print("leader %s %s/%s %s\n", version, runtime.GOOS, runtime.GOARCH, runtime.Version())
	return 0, nil
}
