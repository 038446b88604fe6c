// SPDX-License-Identifier: MIT

//go:build !unix

package main

import (
	"os"
	"os/exec"
	"time"
)

// Where there are no process groups, a command is told nothing: a Ctrl-C reaches it by itself, and otherwise it is ended.
func endingSignals() []os.Signal { return []os.Signal{os.Interrupt} }

func passedOn() []os.Signal { return nil }

func survivePipes() {}

var terminate = os.Kill //nolint:gochecknoglobals // a constant that Go cannot express

func signalNumber(os.Signal) int { return 2 }

// reaper is of use only elsewhere.
type reaper struct{}

func newReaper() (r *reaper, stop func()) { return &reaper{}, func() {} }

type child struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

func (*reaper) startChild(cmd *exec.Cmd) (*child, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, exited: make(chan struct{})}
	go func() { // ends with the command, which end waits for
		defer close(c.exited)
		_ = cmd.Wait() // ProcessState has it
	}()
	return c, nil
}

func (c *child) signal(sig os.Signal) {
	if sig == os.Kill {
		_ = c.cmd.Process.Kill()
	}
}

func (c *child) end(sig os.Signal, grace time.Duration) (killed bool) {
	c.signal(sig)
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case <-c.exited:
		return false
	case <-patience.C:
		c.signal(os.Kill)
		<-c.exited
		return true
	}
}

func (c *child) status() int { return c.cmd.ProcessState.ExitCode() }

func (c *child) killed() bool { return false } // there is no guard

func become([]string, []string) {}
