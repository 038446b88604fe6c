// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary the program itself: so it is tested with the race detector if the test is.
const asProgram = "LEADER_TEST_CLUSTER"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(pgtest.Main(m))
}

func TestCluster(t *testing.T) {
	t.Parallel()
	testProgram(t, "")
}

func TestClusterPostgres(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	testProgram(t, url)
	nothingLeft(t, url)
}

func testProgram(t *testing.T, url string) {
	t.Helper()
	cmd, scratch := program(t, url)
	text, err := cmd.CombinedOutput()
	out := string(text)
	require.NoError(t, err, out)
	t.Log(out)
	assert.Regexp(t, `(?m)^proved: all [1-9]\d+ acknowledged writes are there, `, out)
	assert.Regexp(t, `/leader at \w+: 503\n.* a write there: 503 the leader recovers, Retry-After: 1\n`, out, "not ready")
	assert.Regexp(t, `a write at \w+, which stands by: 503 NOT_LEADER, Leader-Addr: 127\.0\.0\.1:\d+, Retry-After: 1\n`, out)
	assert.Regexp(t, `a write at \w+, which stands by: 307.*Location: http://127\.0\.0\.1:\d+/kv/hello`, out)
	assert.Regexp(t, `a write at \w+, which stands by: 204, Served-By: \w+\n`, out)
	assert.Regexp(t, `a read there: 200 \d+, Served-By: \w+, Served-From: table, may be stale\n`, out)
	assert.Regexp(t, `(?m)leads no more: .*the disk is broken`, out)
	assert.Empty(t, files(t, scratch), "left behind")
}

func TestClusterEndsWhenInterrupted(t *testing.T) {
	if !canFreeze {
		t.Skip("no signals to send on " + runtime.GOOS)
	}
	t.Parallel()
	cmd, scratch := program(t, "")
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	said := func() string {
		text, err := os.ReadFile(out.Name())
		require.NoError(t, err)
		return string(text)
	}
	require.Eventually(t, func() bool { return strings.Contains(said(), "the client: ") }, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait()) // it waits for its processes
	assert.Contains(t, said(), "cluster: interrupted")
	assert.NotContains(t, said(), "kill -9", "it went on")
	assert.Empty(t, files(t, scratch), "left behind")
}

func nothingLeft(t *testing.T, url string) {
	t.Helper()
	var schemas int
	conn := pgtest.Connect(t, url)
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'leader%'").Scan(&schemas))
	assert.Zero(t, schemas, "left behind")
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func program(t *testing.T, url string) (cmd *exec.Cmd, scratch string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	scratch = t.TempDir()
	cmd = exec.CommandContext(ctx, self)
	cmd.Env = slices.Concat(os.Environ(), []string{asProgram + "=1", "DATABASE_URL=" + url, "TMPDIR=" + scratch, "TMP=" + scratch})
	return cmd, scratch
}
