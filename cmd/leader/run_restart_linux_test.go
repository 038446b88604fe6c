// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// one is a command that holds a lock of the kernel on the file $1 while it runs: evidence that no two of it run.
const one = `exec 9>>$1; flock -n 9 || echo TWICE; echo lead; exec sleep 60`

// twins is two processes that contend for a name, and the file of their command's lock.
type twins struct {
	t    *testing.T
	file string
	a, b *tool
}

// newTwins returns two of which a leads, and b waits.
func newTwins(t *testing.T, db string, args ...string) *twins {
	t.Helper()
	w := &twins{t: t, file: filepath.Join(t.TempDir(), "evidence")}
	args = append(append([]string{"run", "--verbose", "--name", "x"}, args...), "--", "sh", "-c", one, "sh", w.file)
	w.a = start(t, at(db), args...)
	w.a.says("lead")
	w.b = start(t, at(db), args...)
	within(t, "b waits", func() bool { return strings.Contains(w.b.err.String(), "standing by") })
	return w
}

// runs reports whether the command runs.
func (w *twins) runs() bool {
	w.t.Helper()
	f, err := os.Open(w.file)
	require.NoError(w.t, err)
	defer func() { _ = f.Close() }()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

// hasRun waits until the command has been started so many times by both, never beside itself, and runs.
func (w *twins) hasRun(times int) {
	w.t.Helper()
	said := func() string { return w.a.out.String() + w.b.out.String() }
	within(w.t, "it runs again", func() bool { return strings.Count(said(), "lead") >= times })
	assert.Equal(w.t, times, strings.Count(said(), "lead"))
	assert.NotContains(w.t, said(), "TWICE")
	assert.True(w.t, w.runs())
}

// TestRunPostgresOverRestarts: the command is stopped while there is no server, and one process of two runs it afterwards.
func TestRunPostgresOverRestarts(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	w := newTwins(t, server.URL(), "--restart")
	for i, mode := range []string{"fast", "immediate", "fast"} {
		server.Stop(mode)
		within(t, "the command is stopped", func() bool { return !w.runs() })
		server.Start()
		w.hasRun(i + 2)
	}
	assert.True(t, overviewFrom(t, server.URL(), "x").Leads[0].Held)
	for _, p := range []*tool{w.a, w.b} {
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		assert.Equal(t, 143, p.status())
	}
	assert.False(t, w.runs())
}

// TestRunPostgresLostByARestart: without --restart who leads ends, and who waits goes on to wait.
func TestRunPostgresLostByARestart(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	w := newTwins(t, server.URL())
	server.Stop("immediate")
	assert.Equal(t, statusLost, w.a.status())
	assert.Contains(t, w.a.err.String(), "the command was stopped")
	assert.False(t, w.runs())
	server.Start()
	w.hasRun(2)
	server.Stop("fast")
	assert.Equal(t, statusLost, w.b.status())
	assert.False(t, w.runs())
}
