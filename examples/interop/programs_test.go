// SPDX-License-Identifier: MIT

package interop

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// absent ends a test that lacks a program.
func absent(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") != "" && runtime.GOOS == "linux" {
		t.Fatal(what + ", and CI is set")
	}
	t.Skip(what)
}

func needB3sum(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("b3sum"); err != nil {
		absent(t, "there is no b3sum")
	}
}

// findPython returns the first Python that has psycopg2.
func findPython(t *testing.T) string {
	t.Helper()
	needB3sum(t)
	names := []string{"python3", "/usr/bin/python3"} // Debian's packages are for Debian's Python
	if named := os.Getenv("LEADER_TEST_PYTHON"); named != "" {
		names = []string{named}
	}
	for _, name := range names {
		if exec.CommandContext(t.Context(), name, "-c", "import psycopg2").Run() == nil {
			return name
		}
	}
	absent(t, "there is no Python with psycopg2")
	return ""
}

// findPsql returns the PATH with psql on it: that beside the server, or the one that is there.
func findPsql(t *testing.T) (path string) {
	t.Helper()
	needB3sum(t)
	path = os.Getenv("PATH")
	if bin := os.Getenv("LEADER_TEST_POSTGRES_BIN"); bin != "" {
		path += string(os.PathListSeparator) + bin
	}
	t.Setenv("PATH", path)
	if _, err := exec.LookPath("psql"); err != nil {
		absent(t, "there is no psql")
	}
	return path
}

// python is a process of leader.py.
type python struct {
	t    *testing.T
	cmd  *exec.Cmd
	said bytes.Buffer
	over chan struct{} // closed when its output has ended

	mu    sync.Mutex
	steps []time.Time // when it began to work, each time
}

// startPython runs leader.py until stop, or the end of the test.
func startPython(t *testing.T, program, retry string, args ...string) *python {
	t.Helper()
	p := &python{t: t, cmd: exec.Command(program, append([]string{"leader.py"}, args...)...), over: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "RETRY="+retry)
	p.cmd.Stderr = &p.said
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() { // until the process has ended
		defer close(p.over)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			text, ok := strings.CutPrefix(lines.Text(), "leading ")
			if seconds, err := strconv.ParseFloat(text, 64); ok && err == nil {
				p.mu.Lock()
				p.steps = append(p.steps, time.UnixMicro(int64(seconds*1e6)))
				p.mu.Unlock()
			}
		}
	}()
	t.Cleanup(p.stop)
	return p
}

// stop tells it to end, and waits for that.
func (p *python) stop() {
	if p.cmd.ProcessState != nil {
		return
	}
	assert.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	<-p.over
	assert.NoError(p.t, p.cmd.Wait(), "%s", &p.said)
}

// workedAfter reports whether it has begun a step after a time.
func (p *python) workedAfter(since time.Time) bool {
	steps := p.worked()
	return len(steps) > 0 && steps[len(steps)-1].After(since)
}

func (p *python) worked() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]time.Time(nil), p.steps...)
}
