// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// guardName is the subcommand of the guard: a process of this program that outlives it, to kill the command if this one dies, or
// stands still for so long that its lock is gone. It is told, line by line:
//
//	run GROUP   a command runs, in that process group
//	for MS      kill it after that many milliseconds, unless another line comes before; 0 for never
//	end         it has ended
const guardName = "__guard"

// guard is the other end.
type guard struct {
	cmd   *exec.Cmd
	lines io.WriteCloser
}

// startGuard returns nil where there is none.
func startGuard() (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, guardName) //nolint:noctx // it ends when its input does
	if !guarded(cmd) {
		return nil, nil //nolint:nilnil // as said
	}
	lines, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &guard{cmd, lines}, nil
}

// tell goes unheard if somebody has killed the guard.
func (g *guard) tell(format string, args ...any) {
	if g != nil {
		_, _ = fmt.Fprintf(g.lines, format+"\n", args...)
	}
}

// expire has the command killed after d, unless it is called again before.
func (g *guard) expire(d time.Duration) { g.tell("for %d", max(d.Milliseconds(), 1)) }

// dismiss ends the guard.
func (g *guard) dismiss() {
	if g != nil {
		_ = g.lines.Close()
		_ = g.cmd.Wait()
	}
}
