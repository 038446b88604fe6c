// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

const (
	// cliEnv has this test binary be the program.
	cliEnv = "LEADER_TEST_CLI"
	// cliPatience is for what takes as long as it takes.
	cliPatience = 20 * time.Second
)

func TestMain(m *testing.M) {
	if os.Getenv(cliEnv) != "" {
		main()
	}
	os.Exit(pgtest.Main(m))
}

// buffer is written by a process and read by a test.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// tool is a process of the program.
type tool struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    buffer
	err    buffer
	exited chan struct{} // closed when it has been waited for
}

// command prepares a process. env is beside the environment of the test, without what names a database.
func command(t *testing.T, env []string, args ...string) *tool {
	t.Helper()
	p := &tool{t: t, cmd: exec.Command(os.Args[0], args...), exited: make(chan struct{})}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "DATABASE_URL=") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Env = append(append(p.cmd.Env, cliEnv+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	p.cmd.WaitDelay = cliPatience // what the command leaves behind has our pipes
	return p
}

func (p *tool) start() *tool {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Start())
	go func() { // ends with the process, which the cleanup waits for
		defer close(p.exited)
		_ = p.cmd.Wait()
	}()
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if p.t.Failed() {
			p.t.Logf("%q: %v\n%s%s", p.cmd.Args[1:], p.cmd.ProcessState, p.out.String(), p.err.String())
		}
	})
	return p
}

// start runs the program.
func start(t *testing.T, env []string, args ...string) *tool {
	t.Helper()
	return command(t, env, args...).start()
}

// status waits for the end, and returns the exit status.
func (p *tool) status() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(cliPatience):
		p.t.Fatalf("%q does not end:\n%s", p.cmd.Args[1:], p.err.String())
		return -1
	}
}

// call runs the program to its end.
func call(t *testing.T, env []string, args ...string) (status int, out, err string) {
	t.Helper()
	p := start(t, env, args...)
	status = p.status()
	return status, p.out.String(), p.err.String()
}

// at has the program find db in the environment.
func at(db string) []string { return []string{"DATABASE_URL=" + db} }

// within waits until it is true.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(cliPatience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", cliPatience, what)
		}
	}
}

// says waits until the process has written text to its standard output.
func (p *tool) says(text string) {
	p.t.Helper()
	within(p.t, "output "+text, func() bool {
		select {
		case <-p.exited:
			require.Contains(p.t, p.out.String(), text, "it has ended")
		default:
		}
		return strings.Contains(p.out.String(), text)
	})
}

func TestHelp(t *testing.T) {
	t.Parallel()
	status, out, errs := call(t, nil)
	assert.Zero(t, status)
	assert.Empty(t, errs)
	for _, sub := range subcommands() {
		if sub.line == "" {
			assert.NotContains(t, out, sub.name)
			continue
		}
		assert.Contains(t, out, "\n  "+sub.name+" ")
		for _, args := range [][]string{{sub.name, "--help"}, {sub.name, "-h"}, {"help", sub.name}} {
			status, help, errs := call(t, nil, args...)
			assert.Zero(t, status, "%q", args)
			assert.Empty(t, errs, "%q", args)
			assert.Contains(t, help, "\n  leader "+sub.name, "%q", args)
			assert.NotContains(t, help, "%!", "%q", args)
			for line := range strings.Lines(help) {
				assert.LessOrEqual(t, len(line), 82, "%s", line)
			}
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	none := []string{"TERM=dumb"}
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"fly"}, `unknown command "fly"`},
		{[]string{"help", "fly"}, `unknown command "fly"`},
		{[]string{"run"}, "--name is missing"},
		{[]string{"run", "--name", "x"}, "the command is missing"},
		{[]string{"run", "--nme", "x"}, "not defined: --nme"},
		{[]string{"run", "--wait", "5", "--name", "x", "true"}, `invalid value "5" for flag --wait`},
		{[]string{"run", "--wait", "5s", "--try", "--name", "x", "true"}, "--try does not wait"},
		{[]string{"run", "--restart", "--try", "--name", "x", "true"}, "--try does not contend again"},
		{[]string{"run", "--wait", "-5s", "--name", "x", "true"}, "--wait must not be negative"},
		{[]string{"run", "--kill-after", "24h", "--name", "x", "true"}, "--kill-after must be between"},
		{[]string{"run", "--schema", "s", "--name", "x", "true"}, "--schema is for --term-env"},
		{[]string{"run", "--term-env", "A=B", "--name", "x", "true"}, "--term-env must be the name"},
		{[]string{"run", "--name", "x", "true"}, "no database: set DATABASE_URL"},
		{[]string{"run", "--db", ":memory:", "--name", "x", "true"}, "in memory excludes nobody"},
		{[]string{"run", "--db", "mysql://root:geheim@h/d", "--name", "x", "true"}, `begins with "mysql:"`},
		{[]string{"run", "--db", "postgres://root:geheim@h:port/d", "--name", "x", "true"}, "connection string"},
		{[]string{"run", "--db", "app.db", "--name", "", "true"}, "--name is missing"},
		{[]string{"key", "x"}, "give a namespace and a name"},
		{[]string{"version", "x"}, "it takes no arguments"},
	} {
		status, out, errs := call(t, none, row.args...)
		assert.Equal(t, statusUsage, status, "%q", row.args)
		assert.Empty(t, out)
		assert.Contains(t, errs, row.want, "%q", row.args)
		assert.Contains(t, errs, "see: leader help", "%q", row.args)
		assert.NotContains(t, errs, "geheim", "%q", row.args)
	}
}

func TestVersion(t *testing.T) {
	status, out, errs := call(t, nil, "version")
	assert.Zero(t, status)
	assert.Empty(t, errs)
	assert.Regexp(t, `^leader \S+ `+runtime.GOOS+"/"+runtime.GOARCH+` go1\.\S+\n$`, out)
}

// TestKey prints the vectors of docs/protocol.md, all of which other languages are told to test.
func TestKey(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.FromSlash("../../docs/protocol.md"))
	require.NoError(t, err)
	page := string(text)
	rows := regexp.MustCompile("(?m)^\\| `([^`]*)` \\| `([^`]+)` \\| `([0-9a-f]{16})` \\| (-?\\d+) \\| (\\d+) \\| (\\d+) \\|$").FindAllStringSubmatch(page, -1)
	require.Len(t, rows, strings.Count(page, "\n| `public` | ")+2, "all rows of the table")
	for _, row := range rows {
		status, out, errs := call(t, nil, "key", row[1], row[2])
		assert.Zero(t, status)
		assert.Empty(t, errs)
		assert.Contains(t, out, fmt.Sprintf("key      %s\nhex      %s\nclassid  %s\nobjid    %s\n", row[4], row[3], row[5], row[6]), "%q", row[1:3])
		status, out, _ = call(t, nil, "key", "--json", row[1], row[2])
		assert.Zero(t, status)
		var k keyOf
		require.NoError(t, json.Unmarshal([]byte(out), &k))
		assert.Equal(t, row[1:], []string{k.Namespace, k.Name, k.Hex, fmt.Sprint(k.Key), fmt.Sprint(k.ClassID), fmt.Sprint(k.ObjID)})
	}
	for _, row := range []struct{ namespace, name, shown, want string }{
		{"tenant_7", "e\u0301", "key      %s\n", "4748145410703082335"},
		{"public", strings.Repeat("n", 1024), "key      %s\n", "-1756719640017242182"},
		{"public", "x", "channel  %s\n", "leader_6fa913313c0ae94a"},
	} {
		assert.Contains(t, page, row.want)
		_, out, _ := call(t, nil, "key", row.namespace, row.name)
		assert.Contains(t, out, fmt.Sprintf(row.shown, row.want))
	}
}
