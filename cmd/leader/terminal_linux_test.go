// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// console is a terminal, and what was written to it.
type console struct {
	t      *testing.T
	master *os.File
	slave  *os.File
	text   buffer
}

func ioctl(t *testing.T, file *os.File, request uintptr, argument unsafe.Pointer) {
	t.Helper()
	raw, err := file.SyscallConn()
	require.NoError(t, err)
	var errno syscall.Errno
	require.NoError(t, raw.Control(func(fd uintptr) { _, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(argument)) }))
	require.Zero(t, errno)
}

func newConsole(t *testing.T) *console {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	c := &console{t: t, master: master}
	var locked, number int32
	ioctl(t, master, 0x40045431, unsafe.Pointer(&locked)) // TIOCSPTLCK
	ioctl(t, master, 0x80045430, unsafe.Pointer(&number)) // TIOCGPTN
	c.slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	c.size(80, 24)
	read := make(chan struct{})
	go func() { // until the cleanup closes it
		defer close(read)
		for b := make([]byte, 4096); ; {
			n, err := master.Read(b)
			_, _ = c.text.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.slave.Close()
		_ = master.Close()
		<-read
		if t.Failed() {
			t.Logf("on the terminal: %q", c.text.String())
		}
	})
	return c
}

func (c *console) size(columns, rows uint16) {
	size := [4]uint16{rows, columns}
	ioctl(c.t, c.master, syscall.TIOCSWINSZ, unsafe.Pointer(&size))
}

// start runs p at the terminal, as the first of its session.
func (c *console) start(p *tool) *tool {
	c.t.Helper()
	p.cmd.Env = append(p.cmd.Env, "TERM=xterm")
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = c.slave, c.slave, c.slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return p.start()
}

func (c *console) types(text string) {
	c.t.Helper()
	_, err := c.master.WriteString(text)
	require.NoError(c.t, err)
}

func (c *console) shows(text string) {
	c.t.Helper()
	within(c.t, "on the terminal: "+text, func() bool { return strings.Contains(c.text.String(), text) })
}

// settings is the state of the terminal.
func (c *console) settings() (state syscall.Termios) {
	ioctl(c.t, c.slave, syscall.TCGETS, unsafe.Pointer(&state))
	return state
}

func TestTerminatePostgresAsks(t *testing.T) {
	t.Parallel()
	db := pgtest.URL(t)
	p := hold(t, db, "x", "--node", "web-1")
	for _, row := range []struct {
		typed string
		want  string
	}{
		{"n\r", "nothing was ended"},
		{"\r", "nothing was ended"},
		{"\x04", "nothing was ended"}, // the end of the input
		{"\x03", "nothing was ended"}, // Ctrl-C
		{"yesterday\r", "nothing was ended"},
		{"Y\r", "ended; nobody has taken over yet"},
	} {
		c := newConsole(t)
		asked := c.start(command(t, at(db), "terminate", "--name", "x"))
		c.shows("web-1 (server process")
		c.shows("[y/N] ")
		c.types(row.typed)
		status := asked.status()
		c.shows(row.want)
		assert.Equal(t, row.typed == "Y\r", status == 0, "%q", row.typed)
		assert.Equal(t, row.typed != "Y\r", overviewFrom(t, db, "x").Leads[0].Held)
	}
	assert.Equal(t, statusLost, p.status())
}

// TestTerminatePostgresOfAnother: what was shown is not there any more when the answer comes, and somebody else leads.
func TestTerminatePostgresOfAnother(t *testing.T) {
	t.Parallel()
	db := pgtest.URL(t)
	first := hold(t, db, "x", "--node", "web-1")
	c := newConsole(t)
	asked := c.start(command(t, at(db), "terminate", "--name", "x"))
	c.shows("[y/N] ")
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGTERM))
	first.status()
	next := hold(t, db, "x", "--node", "web-2")
	c.types("y\r")
	assert.Equal(t, statusFailed, asked.status())
	c.shows("does not lead it any more: nothing was ended")
	assert.Equal(t, "web-2", overviewFrom(t, db, "x").Leads[0].Node)
	select {
	case <-next.exited:
		t.Error("the next one was ended")
	default:
	}
}

func TestTerminateAsksNobody(t *testing.T) {
	t.Parallel()
	for _, file := range []string{os.DevNull, "/dev/zero"} {
		in, err := os.Open(file)
		require.NoError(t, err)
		defer in.Close()
		p := command(t, at(pgtest.URL(t)), "terminate", "--name", "x")
		hold(t, strings.TrimPrefix(p.cmd.Env[len(p.cmd.Env)-1], "DATABASE_URL="), "x")
		p.cmd.Stdin = in
		p.start()
		assert.Equal(t, statusUsage, p.status(), file)
		assert.Contains(t, p.err.String(), "pass --yes")
	}
}

func TestStatusPostgresWatchOnTerminal(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	db := server.URL()
	hold(t, db, "x", "--node", "web-1", "--restart")
	c := newConsole(t)
	before := c.settings()
	w := c.start(command(t, at(db), "status", "--watch", "x"))
	c.shows("LED BY")
	c.shows("web-1")
	c.shows("\x1b[H")
	c.size(20, 6) // the next picture fits
	within(t, "a smaller picture", func() bool {
		pictures := strings.Split(c.text.String(), "\x1b[H")
		last := pictures[len(pictures)-1]
		if !strings.HasSuffix(last, "\x1b[J") || strings.Contains(last, "ADDRESS") {
			return false
		}
		for line := range strings.SplitSeq(last, "\x1b[K\r\n") {
			assert.LessOrEqual(t, len(line), 20, "%q", line)
		}
		return assert.LessOrEqual(t, strings.Count(last, "\n"), 5)
	})
	c.size(80, 24)
	server.Stop("fast")
	c.shows("not known: ")
	server.Start()
	seen := len(c.text.String())
	within(t, "it is back", func() bool { return strings.Contains(c.text.String()[seen:], "web-1") })
	c.types("\x03")
	assert.Zero(t, w.status())
	assert.Equal(t, before, c.settings())
	assert.NotContains(t, c.text.String(), "\x1b[?", "no mode is left behind")
}

// TestRunAtATerminal: in the foreground of an interactive shell that has job control.
func TestRunAtATerminal(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash here")
	}
	db := filepath.Join(t.TempDir(), "app.db")
	c := newConsole(t)
	before := c.settings()
	shell := command(t, append(at(db), "PS1=", "LEADER="+os.Args[0]))
	shell.cmd.Path, shell.cmd.Args = "/bin/bash", []string{"bash", "--norc", "--noprofile", "--noediting", "-i"}
	c.start(shell)
	c.types("stty -echo; echo re''ady\r")
	c.shows("ready")

	c.types(`"$LEADER" run --name x -- sh -c 'cat; echo has read; exit 3'; echo first $?` + "\r")
	c.shows("first 3") // the command reads nothing, and is not stopped by that
	c.shows("has read")

	c.types(`"$LEADER" run --name x -- sh -c 'trap "echo told; exit 4" INT; echo lead; while :; do sleep 0.02; done'; echo second $?` + "\r")
	c.shows("lead")
	c.types("\x03")
	c.shows("told")

	c.types(`"$LEADER" run --name x --kill-after 20s -- sh -c 'trap "echo once; trap \"echo twice; exit 5\" INT" INT; echo again; while :; do sleep 0.02; done'; echo third $?` + "\r")
	c.shows("again")
	c.types("\x03")
	c.shows("once")
	c.types("\x03")
	c.shows("twice")

	c.types(`"$LEADER" run --name x -- sh -c 'echo stoppable; sleep 0.5; echo went on; exit 6'` + "\r")
	c.shows("stoppable")
	c.types("\x1a")
	c.shows("Stopped")
	c.shows("\r\nwent on\r\n") // Ctrl-Z does not reach the command
	assert.True(t, overviewFrom(t, db, "x").Leads[0].Held)
	c.types("fg; echo fourth $?\r")
	c.shows("fourth 6")

	c.types(`"$LEADER" run --name x -- sh -c 'echo hang up; exec sleep 60'` + "\r")
	c.shows("hang up")
	c.types("\x1a")
	c.types("stty -a >/dev/null; fg\r")
	after := c.settings()
	before.Lflag &^= syscall.ECHO // as was asked for
	assert.Equal(t, before.Lflag, after.Lflag)
	pid := int32(overviewFrom(t, db, "x").Leads[0].PID)
	within(t, "in the foreground again", func() bool { // the shell says so before it is
		var group int32
		ioctl(t, c.master, syscall.TIOCGPGRP, unsafe.Pointer(&group))
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && group == pid && !strings.Contains(string(stat), ") T ")
	})
	require.NoError(t, c.slave.Close())
	require.NoError(t, c.master.Close())
	shell.status()
	within(t, "nobody is left", func() bool { return !overviewFrom(t, db, "x").Leads[0].Held })
}

func TestCompletionOfZsh(t *testing.T) {
	t.Parallel()
	path, home := shell(t, "zsh")
	script := filepath.Join(home, "leader.zsh")
	require.NoError(t, os.WriteFile(script, []byte(zshCompletion), 0o600))
	c := newConsole(t)
	zsh := command(t, []string{"HOME=" + home, "PATH=" + home + ":" + os.Getenv("PATH"), "SCRIPT=" + script})
	zsh.cmd.Path, zsh.cmd.Args = path, []string{"zsh", "-f", "-i"}
	c.start(zsh)
	c.types(`autoload -Uz compinit; compinit -D -u; source $SCRIPT; leader() { print -r -- "<${@[-1]}>" }; print re""ady` + "\r")
	c.shows("ready")
	for line, want := range completions() {
		seen := len(c.text.String())
		c.types(line + "\t\r") // it runs the line as it was completed
		within(t, line+" is completed", func() bool { return strings.Contains(c.text.String()[seen:], "<"+want+">") })
	}
	c.types("exit\r")
	assert.Zero(t, zsh.status())
}
