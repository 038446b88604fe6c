// SPDX-License-Identifier: MIT

package main

// guardName is the subcommand of the guard: a process of this program that outlives it, to kill the command if this one dies, or
// stands still for so long that its lock is gone. It is told, line by line, and answers each with an empty line:
//
//	run GROUP   a command runs, in that process group
//	for MS      kill it after that many milliseconds, unless it is told so again before
//	wake        nothing
//	end         it has ended
const guardName = "__guard"
