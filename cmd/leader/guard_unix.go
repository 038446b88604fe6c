// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// deaf is how many lines a guard may leave unanswered before another one takes its place: some seconds.
const deaf = 4

// guard is the other end: it sees to it that there is always a guard that hears, as somebody may kill or stop one. Its methods
// are not called at the same time.
type guard struct {
	app    *app
	reaper *reaper
	group  int // of the command, 0 while none runs
	now    *guardProcess
	warned bool
}

// guardProcess is one process.
type guardProcess struct {
	pid      int
	lines    *os.File
	told     int64
	answered atomic.Int64
	exited   chan struct{}
}

func newGuard(a *app, r *reaper) *guard {
	g := &guard{app: a, reaper: r}
	g.renew()
	return g
}

// began tells of a command that runs.
func (g *guard) began(c *child) {
	g.group = c.pid
	if !g.now.tell(fmt.Sprintf("run %d", c.pid)) {
		g.renew()
	}
}

// expire has the command killed after d, unless it is called again before.
func (g *guard) expire(d time.Duration) { g.insist(fmt.Sprintf("for %d", max(d.Milliseconds(), 1))) }

// wake finds out whether the guard hears.
func (g *guard) wake() { g.insist("wake") }

func (g *guard) insist(line string) {
	if !g.now.tell(line) {
		g.renew()
		g.now.tell(line)
	}
}

// ended tells that nothing of the command is left.
func (g *guard) ended() {
	g.group = 0
	if !g.now.tell("end") {
		g.renew()
	}
}

// dismiss ends the guard, whatever it does.
func (g *guard) dismiss() { g.now.end() }

// renew puts a new process into the place of one that does not hear.
func (g *guard) renew() {
	g.now.end()
	var err error
	if g.now, err = startGuard(g.reaper); err != nil && !g.warned {
		g.warned = true
		g.app.note("warning: the command would go on without a lock if this process were killed: %v", err)
	}
	if g.group != 0 {
		g.now.tell(fmt.Sprintf("run %d", g.group))
	}
}

func startGuard(r *reaper) (*guardProcess, error) {
	in, lines, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	answers, out, err := os.Pipe()
	if err != nil {
		_, _ = in.Close(), lines.Close()
		return nil, err
	}
	p := &guardProcess{lines: lines, exited: make(chan struct{})}
	cmd := &exec.Cmd{Path: self(), Args: []string{os.Args[0], guardName}}
	cmd.Stdin, cmd.Stdout = in, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of the signals of a terminal
	p.pid, err = r.start(cmd, func(syscall.WaitStatus) { close(p.exited) })
	_, _ = in.Close(), out.Close()
	if err != nil {
		_, _ = lines.Close(), answers.Close()
		return nil, err
	}
	go func() { // until the end of the process, which end waits for
		defer func() { _ = answers.Close() }()
		for in := bufio.NewReader(answers); ; p.answered.Add(1) {
			if _, err := in.ReadByte(); err != nil {
				return
			}
		}
	}()
	return p, nil
}

// tell reports whether p hears. A pipe takes a line as a whole, or not at all.
func (p *guardProcess) tell(line string) bool {
	if p == nil || p.told-p.answered.Load() >= deaf {
		return false
	}
	p.told++
	_ = p.lines.SetWriteDeadline(time.Now().Add(time.Second))
	_, err := p.lines.WriteString(line + "\n")
	return err == nil
}

// end kills p: at the end of its input it would kill a command that is still there.
func (p *guardProcess) end() {
	if p == nil {
		return
	}
	select {
	case <-p.exited: // its number may be another's
	default:
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
		<-p.exited
	}
	_ = p.lines.Close()
}
