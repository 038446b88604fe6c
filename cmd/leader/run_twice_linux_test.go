// SPDX-License-Identifier: MIT

package main

import (
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// exclusive is a command of two processes that ignore SIGTERM and hold a lock of the kernel on the file $1 as long as one of them
// lives: evidence that no two of it run.
const exclusive = `exec 9>>$1; flock -n 9 || echo TWICE; ` + group

// pair is two machines that contend for one name.
type pair struct {
	mark  string // in the environment of all its processes
	proxy *pgtest.Proxy
	a, b  *tool
	group []int // of the first command of a
}

// newPair returns one of which a leads, through a proxy, and b waits.
func newPair(t *testing.T, db string, args ...string) *pair {
	t.Helper()
	u, err := hostOf(db)
	require.NoError(t, err)
	p := &pair{mark: newMark(t), proxy: pgtest.NewProxy(t, u)}
	args = append([]string{"run", "--name", p.mark, "--kill-after", "3s"}, args...)
	args = append(args, "--", "sh", "-c", exclusive, "sh", filepath.Join(t.TempDir(), "evidence"))
	p.a = start(t, append(at(p.proxy.URL(db)), p.mark), args...)
	p.group = []int{p.a.pid("shell"), p.a.pid("child")}
	p.b = start(t, append(at(db), p.mark), append([]string{args[0], "--verbose"}, args[1:]...)...)
	within(t, "b waits", func() bool { return strings.Contains(p.b.err.String(), "standing by") })
	return p
}

// newMark is a variable for the environment of processes, none of which outlives the test.
func newMark(t *testing.T) (mark string) {
	t.Helper()
	mark = "LEADER_TEST_MARK=" + strings.ReplaceAll(t.TempDir(), "/", "-")
	t.Cleanup(func() { tell(mark, syscall.SIGKILL) })
	return mark
}

// tell sends a signal to all processes with mark, as is done to those of a control group.
func tell(mark string, sig syscall.Signal) {
	for _, pid := range marked(mark) {
		_ = syscall.Kill(pid, sig)
	}
}

// processes returns all that live and have the mark in their environment.
func (p *pair) processes() []int { return marked(p.mark) }

// marked returns the processes that live and have mark in their environment.
func marked(mark string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(environ), mark) {
			pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

// gone reports whether the first command of a is.
func (p *pair) gone() bool { return !alive(p.group[0]) && !alive(p.group[1]) }

// childrenOf returns the children of a process, with their command line, which is "" for a zombie.
func childrenOf(parent int) map[int]string { return processesWith(1, parent) }

// sessionOf returns the processes of the session that a process has begun.
func sessionOf(first int) map[int]string { return processesWith(3, first) }

// processesWith returns those that have value in a field of /proc/PID/stat, counted from behind the name.
func processesWith(field, value int) (found map[int]string) {
	found = make(map[int]string)
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, _ := os.ReadFile(file)
		line, _ := os.ReadFile(filepath.Dir(file) + "/cmdline")
		fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
		if len(fields) > field && fields[field] == strconv.Itoa(value) {
			pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
			found[pid] = string(line)
		}
	}
	return found
}

// guardOf returns the guard of a process, once there is one that is not old.
func guardOf(t *testing.T, p *tool, old int) (guard int) {
	t.Helper()
	within(t, "a guard", func() bool {
		for pid, line := range childrenOf(p.cmd.Process.Pid) {
			if strings.Contains(line, guardName) && pid != old {
				guard = pid
			}
		}
		return guard != 0
	})
	return guard
}

// silenceEnds returns a database whose server ends a session that is silent.
func silenceEnds(t *testing.T) (db string) {
	t.Helper()
	db = pgtest.URL(t)
	if versionOf(t, db) < 140000 {
		t.Skip("before 14 nothing ends a session that is silent behind a proxy, or of a process that is stopped")
	}
	return db
}

// TestRunPostgresNeverTwice: whatever happens to one machine, the other one starts the command when that of the first is gone.
func TestRunPostgresNeverTwice(t *testing.T) {
	t.Parallel()
	db := silenceEnds(t)
	stop := func(pid int) { require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP)) }
	resume := func(p *pair) { require.NoError(t, p.a.cmd.Process.Signal(syscall.SIGCONT)) }
	rows := []struct {
		name   string
		args   []string
		fault  func(p *pair)
		mend   func(p *pair)
		status int // of a; -1 if it goes on
	}{
		{"killed", nil, func(p *pair) { _ = p.a.cmd.Process.Kill() }, nil, -1},
		{"frozen", nil, func(p *pair) { stop(p.a.cmd.Process.Pid) }, resume, statusLost},
		{"frozen, to start again", []string{"--restart"}, func(p *pair) { stop(p.a.cmd.Process.Pid) }, resume, -1},
		{"cut off", nil, func(p *pair) { p.proxy.Swallow(true, true) }, nil, statusLost},
		{"frozen, and its guard before", nil, func(p *pair) {
			old := guardOf(t, p.a, 0)
			stop(old)
			guardOf(t, p.a, old)
			stop(p.a.cmd.Process.Pid)
		}, resume, statusLost},
		{"killed, and its guard before", nil, func(p *pair) {
			old := guardOf(t, p.a, 0)
			require.NoError(t, syscall.Kill(old, syscall.SIGKILL))
			guardOf(t, p.a, old)
			_ = p.a.cmd.Process.Kill()
		}, nil, -1},
		{"cut off, and told to end", nil, func(p *pair) {
			p.proxy.Swallow(true, true)
			require.NoError(t, p.a.cmd.Process.Signal(syscall.SIGTERM))
		}, nil, statusSignal + 9},
	}
	pairs := make([]*pair, len(rows))
	for i, row := range rows {
		pairs[i] = newPair(t, db, row.args...)
	}
	for i, row := range rows { // all at once, as it takes ten seconds
		row.fault(pairs[i])
	}
	for i, row := range rows {
		p := pairs[i]
		p.b.says("shell")
		assert.NotContains(t, p.b.out.String(), "TWICE", row.name)
		assert.True(t, p.gone(), row.name)
		if row.mend != nil {
			row.mend(p)
		}
		switch {
		case row.status >= 0:
			assert.Equal(t, row.status, p.a.status(), row.name)
		case row.args != nil:
			within(t, "a stands by again", func() bool { return strings.Contains(p.a.err.String(), "is started again") })
			_ = p.a.cmd.Process.Signal(syscall.SIGTERM)
			assert.Equal(t, 143, p.a.status(), row.name)
		}
		require.NoError(t, p.b.cmd.Process.Kill())
		p.b.status()
		within(t, "nobody is left of "+row.name, func() bool { return len(p.processes()) == 0 })
	}
	held := overviewFrom(t, db)
	assert.Empty(t, held.Leads)
}

// TestRunPostgresWakesUpLate: this process and its guard were frozen, as when the machine sleeps, and the command was not. When
// they wake, the time that it may still go on has passed long ago.
func TestRunPostgresWakesUpLate(t *testing.T) {
	t.Parallel()
	p := newPair(t, silenceEnds(t))
	guard := guardOf(t, p.a, 0)
	require.NoError(t, syscall.Kill(guard, syscall.SIGSTOP))
	require.NoError(t, p.a.cmd.Process.Signal(syscall.SIGSTOP))
	p.b.says("shell")
	assert.Contains(t, p.b.out.String(), "TWICE", "else this test shows nothing")
	woken := time.Now()
	require.NoError(t, p.a.cmd.Process.Signal(syscall.SIGCONT))
	within(t, "the group is gone", p.gone)
	assert.Less(t, time.Since(woken), 2*time.Second, "not the 3 s of --kill-after")
	assert.Equal(t, statusLost, p.a.status())
	assert.False(t, alive(guard), "it was stopped, and does not keep anybody from ending")
}

// TestRunReapsWhatTheCommandLeaves: a service that leaves processes behind leaves no zombies, and nor do those that leave its group.
func TestRunReapsWhatTheCommandLeaves(t *testing.T) {
	t.Parallel()
	p := start(t, at(filepath.Join(t.TempDir(), "app.db")), "run", "--name", "x", "--", "sh", "-c",
		`for i in 1 2 3; do (sleep 0.01 &); done; (setsid sh -c 'sleep 0.01 &'); echo lead; exec sleep 60`)
	p.says("lead")
	within(t, "they are gone", func() bool { return len(childrenOf(p.cmd.Process.Pid)) == 2 }) // the guard and the command
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 143, p.status())
}

// TestRunKilledWithItsGuard at once: the kernel kills the command.
func TestRunKilledWithItsGuard(t *testing.T) {
	t.Parallel()
	p := hold(t, filepath.Join(t.TempDir(), "app.db"), "x")
	var pids []int
	for pid := range childrenOf(p.cmd.Process.Pid) {
		pids = append(pids, pid)
	}
	require.Len(t, pids, 2)
	require.NoError(t, syscall.Kill(guardOf(t, p, 0), syscall.SIGKILL))
	require.NoError(t, p.cmd.Process.Kill())
	within(t, "nobody is left", func() bool { return !alive(pids[0]) && !alive(pids[1]) })
}

// TestRunGoesOnUnread: messages that nobody reads end nothing.
func TestRunGoesOnUnread(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	p := command(t, at(filepath.Join(t.TempDir(), "app.db")), "run", "--verbose", "--name", "x", "--", "sh", "-c", "trap '' PIPE; echo ran; exit 3")
	p.cmd.Stderr = w
	p.start()
	assert.Equal(t, 3, p.status())
	assert.Equal(t, "ran\n", p.out.String())
}

// hostOf is the host and port of a URL.
func hostOf(db string) (string, error) {
	u, err := url.Parse(db)
	if err != nil {
		return "", err
	}
	return u.Host, nil
}
