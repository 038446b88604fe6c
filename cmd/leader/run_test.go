// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// backends runs test on a database of each kind.
func backends(t *testing.T, test func(t *testing.T, db string)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) { test(t, filepath.Join(t.TempDir(), "app.db")) })
	t.Run("Postgres", func(t *testing.T) { test(t, pgtest.URL(t)) })
}

// pid waits until the process has printed name and a process id, and returns that.
func (p *tool) pid(name string) int {
	p.t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + ` (\d+)$`)
	var text string
	within(p.t, name, func() bool {
		if m := found.FindStringSubmatch(p.out.String()); m != nil {
			text = m[1]
		}
		return text != ""
	})
	pid, err := strconv.Atoi(text)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // gone, if the test passes
	return pid
}

// alive reports whether a process runs. One that has ended and that nobody has reaped does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// group is a shell that starts a second process, both of which ignore SIGTERM, and prints their ids.
const group = `trap '' TERM; sh -c 'trap "" TERM; echo child $$; while :; do sleep 0.05; done' & echo shell $$; wait`

func TestRunExitStatus(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "app.db")
	script := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nexit 9\n"), 0o600))
	for _, row := range []struct {
		args []string
		want int
	}{
		{[]string{"true"}, 0},
		{[]string{"sh", "-c", "exit 3"}, 3},
		{[]string{"sh", "-c", "exit 75"}, 75},
		{[]string{"sh", "-c", "kill -KILL $$"}, 137},
		{[]string{"sh", "-c", "kill -TERM $$"}, 143},
		{[]string{"no-such-command-of-ours"}, statusNotFound},
		{[]string{filepath.Join(t.TempDir(), "none")}, statusNotFound},
		{[]string{script}, statusCannotRun},
	} {
		for _, try := range [][]string{nil, {"--try"}} {
			args := append(append([]string{"run", "--name", "x"}, try...), append([]string{"--"}, row.args...)...)
			status, out, errs := call(t, at(file), args...)
			assert.Equal(t, row.want, status, "%q: %s", args, errs)
			assert.Empty(t, out)
			if row.want == statusNotFound || row.want == statusCannotRun {
				assert.Contains(t, errs, "leader: ")
			} else {
				assert.Empty(t, errs, "%q", args)
			}
		}
	}
}

func TestRunPassesInputAndOutput(t *testing.T) {
	t.Parallel()
	p := command(t, at(filepath.Join(t.TempDir(), "app.db")), "run", "--name", "x", "sh", "-c", `cat; echo $MINE "$@" >&2`, "sh", "-x", "a b")
	p.cmd.Env = append(p.cmd.Env, "MINE=set")
	p.cmd.Stdin = strings.NewReader("of the input")
	p.start()
	assert.Zero(t, p.status())
	assert.Equal(t, "of the input", p.out.String())
	assert.Equal(t, "set -x a b\n", p.err.String())
}

func TestRunPostgresAndSQLiteTryWhileHeld(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, db string) {
		t.Helper()
		holder := start(t, at(db), "run", "--name", "x", "--node", "web-1", "--", "sh", "-c", "echo lead; exec sleep 60")
		holder.says("lead")
		status, out, errs := call(t, at(db), "run", "--try", "--name", "x", "--", "echo", "ran")
		assert.Equal(t, statusNotLeader, status)
		assert.Empty(t, out)
		assert.Equal(t, "leader: \"x\" is led by web-1\n", errs)
		began := time.Now()
		status, out, errs = call(t, at(db), "run", "--wait", "1s", "--name", "x", "--", "echo", "ran")
		assert.Equal(t, statusNotLeader, status)
		assert.Empty(t, out)
		assert.Equal(t, "leader: \"x\" is led by web-1 (after 1s)\n", errs)
		assert.GreaterOrEqual(t, time.Since(began), time.Second)
		status, out, _ = call(t, at(db), "run", "--try", "--name", "y", "--", "echo", "ran")
		assert.Zero(t, status)
		assert.Equal(t, "ran\n", out)
	})
}

// TestRunPostgresAndSQLiteHandsOver: a signal is passed on, the command takes its time, and only then another one starts.
func TestRunPostgresAndSQLiteHandsOver(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, db string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "log")
		script := fmt.Sprintf(`echo begin $1 >>%[1]s; trap 'sleep 0.5; echo end $1 >>%[1]s; exit 7' TERM INT; echo lead; while :; do sleep 0.02; done`, file)
		a := start(t, at(db), "run", "--name", "x", "--", "sh", "-c", script, "sh", "a")
		a.says("lead")
		b := start(t, at(db), "run", "--verbose", "--name", "x", "--", "sh", "-c", script, "sh", "b")
		within(t, "b waits", func() bool { return strings.Contains(b.err.String(), "standing by") })
		require.NoError(t, a.cmd.Process.Signal(syscall.SIGTERM))
		assert.Equal(t, 7, a.status())
		b.says("lead")
		require.NoError(t, b.cmd.Process.Signal(syscall.SIGINT))
		assert.Equal(t, 7, b.status())
		log, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, "begin a\nend a\nbegin b\nend b\n", string(log))
		assert.NotContains(t, a.err.String(), "leader: ")
	})
}

// TestRunPassesSignalsOn that mean something to the command only, and an end that the command ignores at first.
func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	script := `trap 'echo usr1' USR1; trap 'echo int; trap "echo again; exit 5" INT' INT; echo lead; while :; do sleep 0.02; done`
	p := start(t, at(filepath.Join(t.TempDir(), "app.db")), "run", "--name", "x", "--kill-after", "20s", "--", "sh", "-c", script)
	p.says("lead")
	for _, step := range []struct {
		sig  syscall.Signal
		want string
	}{{syscall.SIGUSR1, "usr1"}, {syscall.SIGINT, "int"}, {syscall.SIGUSR1, "usr1\nint\nusr1"}, {syscall.SIGINT, "again"}} {
		require.NoError(t, p.cmd.Process.Signal(step.sig))
		p.says(step.want)
	}
	assert.Equal(t, 5, p.status())
	assert.Equal(t, "lead\nusr1\nint\nusr1\nagain\n", p.out.String())
}

func TestRunEndsWhileItWaits(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "app.db")
	a := start(t, at(file), "run", "--name", "x", "--", "sh", "-c", "echo lead; exec sleep 60")
	a.says("lead")
	for _, sig := range endingSignals() {
		if signal.Ignored(sig) {
			continue // under nohup, which holds for the program, too
		}
		b := start(t, at(file), "run", "--verbose", "--name", "x", "--", "echo", "ran")
		within(t, "b waits", func() bool { return strings.Contains(b.err.String(), "standing by") })
		require.NoError(t, b.cmd.Process.Signal(sig))
		assert.Equal(t, statusSignal+signalNumber(sig), b.status())
		assert.Empty(t, b.out.String())
	}
}

// TestRunKillsTheGroup: nothing of a command that ignores SIGTERM is left when the next one starts, nor of what it has started.
func TestRunPostgresAndSQLiteKillsTheGroup(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, db string) {
		t.Helper()
		a := start(t, at(db), "run", "--kill-after", "700ms", "--name", "x", "--", "sh", "-c", group)
		shell, child := a.pid("shell"), a.pid("child")
		b := start(t, at(db), "run", "--verbose", "--name", "x", "--", "sh", "-c", fmt.Sprintf("kill -0 %d; kill -0 %d; echo lead", shell, child))
		within(t, "b waits", func() bool { return strings.Contains(b.err.String(), "standing by") })
		told := time.Now()
		require.NoError(t, a.cmd.Process.Signal(syscall.SIGTERM))
		assert.Equal(t, statusSignal+9, a.status())
		assert.GreaterOrEqual(t, time.Since(told), 700*time.Millisecond)
		assert.Contains(t, a.err.String(), "was killed")
		assert.False(t, alive(shell))
		assert.False(t, alive(child))
		assert.Zero(t, b.status())
		assert.Equal(t, "lead\n", b.out.String())
		assert.Equal(t, 2, strings.Count(strings.ToLower(b.err.String()), "no such process"), b.err.String())
	})
}

// TestRunEndsWhatTheCommandLeaves: a command that ends by itself may have left others of its group behind.
func TestRunEndsWhatTheCommandLeaves(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "app.db")
	a := start(t, at(file), "run", "--name", "x", "--", "sh", "-c", "sleep 60 & echo child $!; exit 4")
	child := a.pid("child")
	assert.Equal(t, 4, a.status())
	assert.False(t, alive(child))
}

// TestRunKilled: the command does not outlive the program, whose lock is free at once, and neither does what it has started.
func TestRunPostgresAndSQLiteKilled(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, db string) {
		t.Helper()
		a := start(t, at(db), "run", "--name", "x", "--", "sh", "-c", group)
		shell, child := a.pid("shell"), a.pid("child")
		b := start(t, at(db), "run", "--verbose", "--name", "x", "--", "echo", "lead")
		within(t, "b waits", func() bool { return strings.Contains(b.err.String(), "standing by") })
		killed := time.Now()
		require.NoError(t, a.cmd.Process.Kill())
		within(t, "the group is gone", func() bool { return !alive(shell) && !alive(child) })
		t.Logf("gone %v after the kill", time.Since(killed))
		assert.Less(t, time.Since(killed), 2*time.Second)
		assert.Zero(t, b.status())
		assert.Equal(t, "lead\n", b.out.String())
	})
}
