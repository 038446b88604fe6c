// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// lookAgain is how often a process group is looked at whose leader is gone: nothing tells of the others' end.
const lookAgain = 5 * time.Millisecond

// Signals that end this process are passed on to the command, and so are the others of passedOn, which mean something to it only.
func endingSignals() []os.Signal {
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
}

func passedOn() []os.Signal { return []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2} }

// terminate is the signal for a command that is to end.
var terminate os.Signal = syscall.SIGTERM //nolint:gochecknoglobals // a constant that Go cannot express

func signalNumber(sig os.Signal) int {
	if n, ok := sig.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}

// child is the command that runs, the first process of a group of its own.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the command itself has ended
}

func startChild(cmd *exec.Cmd) (*child, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	adopt()
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

// signal reaches the whole group.
func (c *child) signal(sig os.Signal) {
	if sig, ok := sig.(syscall.Signal); ok {
		_ = syscall.Kill(-c.cmd.Process.Pid, sig)
	}
}

// end has the group end, the hard way after grace, and returns when nothing of it is left. It reports whether it had to kill.
func (c *child) end(sig os.Signal, grace time.Duration) (killed bool) {
	if c.gone() { // its number may be another's soon
		return false
	}
	c.signal(sig)
	c.signal(syscall.SIGCONT) // one that is stopped does not hear
	patience := time.NewTimer(grace)
	defer patience.Stop()
	for !c.gone() {
		select {
		case <-patience.C:
			killed = true
			c.signal(syscall.SIGKILL)
		case <-time.After(lookAgain):
		}
	}
	return killed
}

// gone reports whether no process of the group is left. Those that the command has left behind are ours to reap where the system
// has it so; elsewhere init does.
func (c *child) gone() bool {
	select {
	case <-c.exited:
	default:
		return false
	}
	group := -c.cmd.Process.Pid
	for {
		pid, err := syscall.Wait4(group, nil, syscall.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	return errors.Is(syscall.Kill(group, 0), syscall.ESRCH)
}

// status is the exit status of a command that has ended, as a shell has it.
func (c *child) status() int {
	if ws, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return statusSignal + int(ws.Signal())
	}
	return c.cmd.ProcessState.ExitCode()
}

// become replaces this process. It returns only where that does not work.
func become(argv, env []string) {
	if self, err := os.Executable(); err == nil {
		_ = syscall.Exec(self, argv, env)
	}
}
