// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
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

// survivePipes has this process go on when nobody reads its messages any more: it has a lock to give back. The command has SIGPIPE
// as ever.
func survivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

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
	pid    int                // and that of the group
	exited chan struct{}      // closed when the command itself has ended
	result syscall.WaitStatus // then
}

func (r *reaper) startChild(cmd *exec.Cmd) (*child, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieTogether(cmd.SysProcAttr)
	c := &child{exited: make(chan struct{})}
	started := make(chan error)
	go func() { // ends with the command, which end waits for
		runtime.LockOSThread() // see dieTogether
		defer runtime.UnlockOSThread()
		var err error
		c.pid, err = r.start(cmd, func(ws syscall.WaitStatus) {
			c.result = ws
			close(c.exited)
		})
		started <- err
		if err == nil {
			<-c.exited
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// signal reaches the whole group.
func (c *child) signal(sig os.Signal) {
	if sig, ok := sig.(syscall.Signal); ok {
		_ = syscall.Kill(-c.pid, sig)
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

// gone reports whether no process of the group is left.
func (c *child) gone() bool {
	select {
	case <-c.exited:
		return errors.Is(syscall.Kill(-c.pid, 0), syscall.ESRCH)
	default:
		return false
	}
}

// status is the exit status of a command that has ended, as a shell has it.
func (c *child) status() int {
	if c.result.Signaled() {
		return statusSignal + int(c.result.Signal())
	}
	return c.result.ExitStatus()
}

// killed reports whether a command that has ended was killed, as the guard does.
func (c *child) killed() bool { return c.result.Signaled() && c.result.Signal() == syscall.SIGKILL }

// self is the file of this program. Linux knows it also when another version has been put into its place.
func self() string {
	const here = "/proc/self/exe"
	if _, err := os.Stat(here); err == nil {
		return here
	}
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// become replaces this process. It returns only where that does not work.
func become(argv, env []string) {
	if path, err := os.Executable(); err == nil {
		_ = syscall.Exec(path, argv, env)
	}
}
