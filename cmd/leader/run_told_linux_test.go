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
)

// TestRunPostgresAndSQLiteTold: whichever of its processes somebody tells to end, the command has its time, its status is passed
// on, nothing is left, and only then the next one starts.
func TestRunPostgresAndSQLiteTold(t *testing.T) {
	t.Parallel()
	const (
		graceful = `trap 'trap "" TERM; sleep 0.5; echo end $1 >>$2; exit 7' TERM; echo lead; while :; do sleep 0.02; done`
		sudden   = `echo lead; exec sleep 60`
	)
	rows := []struct {
		name   string
		script string
		tell   func(a *tool, mark string)
		status int
		log    string
	}{
		{"it alone, as KillMode=mixed", graceful, func(a *tool, _ string) {
			_ = a.cmd.Process.Signal(syscall.SIGTERM)
		}, 7, "begin a\nend a\nbegin b\n"},
		{"its process group", graceful, func(a *tool, _ string) {
			_ = syscall.Kill(-a.cmd.Process.Pid, syscall.SIGTERM)
		}, 7, "begin a\nend a\nbegin b\n"},
		{"its session", graceful, func(a *tool, _ string) {
			for pid := range sessionOf(a.cmd.Process.Pid) {
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}, 7, "begin a\nend a\nbegin b\n"},
		{"its control group", graceful, func(_ *tool, mark string) { tell(mark, syscall.SIGTERM) }, 7, "begin a\nend a\nbegin b\n"},
		{"its control group, and the command ends at once", sudden, func(_ *tool, mark string) { tell(mark, syscall.SIGTERM) }, 143, "begin a\nbegin b\n"},
	}
	backends(t, func(t *testing.T, db string) {
		t.Helper()
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				t.Parallel()
				file, mark := filepath.Join(t.TempDir(), "log"), newMark(t)
				run := func(node string, env ...string) *tool {
					p := command(t, append(env, at(db)...), "run", "--verbose", "--kill-after", "15s", "--name", row.name, "--",
						"sh", "-c", "echo begin $1 >>$2; "+row.script, "sh", node, file)
					p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
					return p.start()
				}
				a := run("a", mark)
				a.says("lead")
				b := run("b")
				within(t, "b waits", func() bool { return strings.Contains(b.err.String(), "standing by") })
				row.tell(a, mark)
				assert.Equal(t, row.status, a.status())
				assert.Empty(t, marked(mark), "nothing is left for others to kill")
				b.says("lead")
				log, err := os.ReadFile(file)
				require.NoError(t, err)
				assert.Equal(t, row.log, string(log))
				assert.NotContains(t, a.err.String(), "was killed")
				require.NoError(t, b.cmd.Process.Signal(syscall.SIGTERM))
				assert.Equal(t, row.status, b.status())
			})
		}
	})
}
