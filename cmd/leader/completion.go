// SPDX-License-Identifier: MIT

package main

import _ "embed"

//go:embed completion/leader.bash
var bashCompletion string

//go:embed completion/leader.zsh
var zshCompletion string

//go:embed completion/leader.fish
var fishCompletion string

func (a *app) completion(args []string) (int, error) {
	fs := a.flags("completion", completionHelp)
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	scripts := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
	script, ok := scripts[fs.Arg(0)]
	if !ok || fs.NArg() != 1 {
		return 0, usagef("completion: name the shell: bash, zsh or fish")
	}
	a.print("%s", script)
	return 0, nil
}
