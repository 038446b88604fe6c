// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// contained is the program as process 1 of a namespace, as it is the entry point of a container.
type contained struct {
	*tool        // of unshare, which ends with the status of process 1
	mark  string // in the environment of all its processes
}

// contain starts one. Without root, or where namespaces are not allowed, it skips the test.
func contain(t *testing.T, db string, args ...string) *contained {
	t.Helper()
	unshare := []string{"--pid", "--fork", "--kill-child", "--mount-proc"}
	if text, err := exec.Command("unshare", append(unshare, "true")...).CombinedOutput(); err != nil {
		t.Skipf("a process 1 needs unshare, and the right to a PID namespace: %v: %s", err, text)
	}
	path, err := exec.LookPath("unshare")
	require.NoError(t, err)
	mark := newMark(t)
	p := command(t, append(at(db), mark))
	p.cmd.Path = path
	p.cmd.Args = append(append([]string{"unshare"}, unshare...), append([]string{os.Args[0]}, args...)...)
	return &contained{p.start(), mark}
}

// first is the number of its process 1 outside.
func (c *contained) first() (pid int) {
	c.t.Helper()
	within(c.t, "a process 1", func() bool {
		for child := range childrenOf(c.cmd.Process.Pid) {
			pid = child
		}
		return pid != 0
	})
	return pid
}

// gone asserts that nothing is left of it, and that its lock is free.
func (c *contained) gone(db string) {
	c.t.Helper()
	within(c.t, "nothing is left", func() bool { return len(marked(c.mark)) == 0 })
	status, out, errs := call(c.t, at(db), "run", "--try", "--name", "x", "--", "echo", "free")
	assert.Zero(c.t, status, errs)
	assert.Equal(c.t, "free\n", out)
}

// TestRunPostgresAndSQLiteAsProcessOne: the kernel keeps signals from a process 1 that does not ask for them, and gives it the
// orphans of all others.
func TestRunPostgresAndSQLiteAsProcessOne(t *testing.T) {
	t.Parallel()
	const lead = `echo lead of $PPID; `
	rows := []struct {
		name   string
		script string
		sig    syscall.Signal // 0 for a command that ends by itself
		status int
	}{
		{"ends", lead + `exit 3`, 0, 3},
		{"leaves a process that left its group", lead + `setsid sh -c 'trap "" TERM; sleep 60' & sleep 0.1; exit 4`, 0, 4},
		{"told", lead + `exec sleep 60`, syscall.SIGTERM, 143},
		{"told, and ends in order", `trap 'sleep 0.3; exit 7' TERM INT; ` + lead + `while :; do sleep 0.02; done`, syscall.SIGTERM, 7},
		{"interrupted", `trap 'exit 8' INT; ` + lead + `while :; do sleep 0.02; done`, syscall.SIGINT, 8},
		{"killed", lead + `setsid sleep 60 & ` + group, syscall.SIGKILL, 0},
	}
	backends(t, func(t *testing.T, db string) {
		t.Helper()
		for _, row := range rows {
			c := contain(t, db, "run", "--name", "x", "--wait", "15s", "--", "sh", "-c", row.script)
			c.says("lead of 1\n")
			if row.sig != 0 {
				require.NoError(t, syscall.Kill(c.first(), row.sig))
			}
			if status := c.status(); row.sig != syscall.SIGKILL { // which unshare has in words of its own
				assert.Equal(t, row.status, status, row.name)
			}
			c.gone(db)
		}
	})
}

func TestRunAsProcessOneEndsWhileItWaits(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "app.db")
	hold(t, db, "x")
	c := contain(t, db, "run", "--verbose", "--name", "x", "--", "echo", "ran")
	within(t, "it waits", func() bool { return strings.Contains(c.err.String(), "standing by") })
	require.NoError(t, syscall.Kill(c.first(), syscall.SIGTERM))
	assert.Equal(t, 143, c.status())
	assert.Empty(t, c.out.String())
}

// TestRunAsProcessOneReaps what its command leaves behind, in its group and outside.
func TestRunAsProcessOneReaps(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "app.db")
	c := contain(t, db, "run", "--name", "x", "--", "sh", "-c",
		`for i in 1 2 3; do (sleep 0.01 &); done; (setsid sh -c 'sleep 0.01 & exit' &); echo lead; exec sleep 60`)
	c.says("lead")
	first := c.first()
	within(t, "they are gone", func() bool { return len(childrenOf(first)) == 2 }) // the guard and the command
	require.NoError(t, syscall.Kill(first, syscall.SIGTERM))
	assert.Equal(t, 143, c.status())
	c.gone(db)
}
