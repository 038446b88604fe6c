// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary the program itself: so it is tested with the race detector if the test is.
const asProgram = "LEADER_TEST_LEDGER"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(pgtest.Main(m))
}

const (
	proved = `(?m)^proved: \d+ rows of \d+ terms, and no row of an old term follows a newer one$`
	fails  = `(?m)^ledger: the proof fails: [1-9]\d* rows of an old term follow a newer one`
	back   = `(?m)^  rows: \d+, terms: \d+, rows after a newer term: `
)

var frozen = regexp.MustCompile(`(?m)^\w+ is frozen in the middle of a write`)

func TestLedger(t *testing.T) {
	t.Parallel()
	out, code := ledger(t, "")
	assert.Zero(t, code, out)
	assert.Regexp(t, proved, out)
	assert.Regexp(t, back+`0$`, out)
	if canFreeze {
		assert.Regexp(t, `Fence refused term \d+ of \w+: the newer one is \d+\n`, out)
	}
}

func TestLedgerPostgres(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	out, code := ledger(t, url)
	assert.Zero(t, code, out)
	assert.Regexp(t, proved, out)
	assert.Regexp(t, back+`0$`, out)
	assert.Regexp(t, `(?m)^  pairs: 0$`, out)
	assert.Regexp(t, `ErrFenced: .*is not led under term \d+ any more, but under \d+\n`, out, "the table's word")
	assert.Regexp(t, `Fence refused term \d+ of \w+: the newer one is \d+\n`, out)
	nothingLeft(t, url)
}

// What shows that the proof can fail.
func TestLedgerWithoutFenceFails(t *testing.T) {
	if !canFreeze {
		t.Skip("no SIGSTOP on " + runtime.GOOS)
	}
	t.Parallel()
	out, code := ledger(t, "", unfencedArg)
	assert.Equal(t, 1, code, out)
	assert.Regexp(t, fails, out)
	assert.NotContains(t, out, "proved")
}

func TestLedgerPostgresWithoutFenceFails(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	out, code := ledger(t, url, unfencedArg)
	assert.Equal(t, 1, code, out)
	assert.Regexp(t, fails, out)
	assert.Regexp(t, `(?m)^  pairs: [1-9]\d*$`, out)
	nothingLeft(t, url)
}

// The second statement sees what the first one cannot: an old row that drew its place before the newer one and
// committed after it.
func TestLedgerPostgresProofSeesALateCommit(t *testing.T) {
	t.Setenv("DATABASE_URL", pgtest.URL(t))
	table, err := createTable(t.Context())
	require.NoError(t, err)
	defer func() { assert.NoError(t, table.drop()) }()
	insert := "INSERT INTO " + table.rows + " (term, worker) VALUES ($1, 'x')"
	old, err := table.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = old.ExecContext(t.Context(), insert, 1)
	require.NoError(t, err)
	_, err = table.db.ExecContext(t.Context(), insert, 2)
	require.NoError(t, err)
	require.NoError(t, old.Commit())
	require.EqualError(t, table.prove(t.Context()), "the proof fails: 1 pairs were committed in the wrong order")
}

// Wherever the order to hold a write up comes: a writer held between Fence and its INSERT has the row of the name locked.
func TestLedgerHoldsBeforeFence(t *testing.T) {
	g := &gate{at: "leader_terms", open: make(chan struct{})}
	g.armed.Store(true)
	close(g.open)
	g.TraceQueryStart(t.Context(), nil, pgx.TraceQueryStartData{SQL: "INSERT INTO leader_ledger_x.entries (term, worker) VALUES ($1, $2)"})
	assert.False(t, g.passed, "held with the row locked")
	g.TraceQueryStart(t.Context(), nil, pgx.TraceQueryStartData{SQL: `SELECT 1 FROM "leader_ledger_x"."leader_terms" WHERE true`})
	assert.True(t, g.passed)
}

func TestLedgerEndsWhenInterrupted(t *testing.T) {
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
	require.Eventually(t, func() bool { return frozen.MatchString(said()) }, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait()) // it waits for its workers
	assert.Contains(t, said(), "ledger: interrupted")
	assert.NotContains(t, said(), "kill -9", "it went on")
	assert.Empty(t, names(t, scratch), "left behind")
}

func nothingLeft(t *testing.T, url string) {
	t.Helper()
	var schemas int
	conn := pgtest.Connect(t, url)
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'leader%'").Scan(&schemas))
	assert.Zero(t, schemas, "left behind")
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// ledger runs the program to its end.
func ledger(t *testing.T, url string, args ...string) (out string, code int) {
	t.Helper()
	cmd, scratch := program(t, url, args...)
	text, err := cmd.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		require.NoError(t, err, "%s", text)
	}
	assert.Empty(t, names(t, scratch), "left behind")
	return string(text), cmd.ProcessState.ExitCode()
}

func program(t *testing.T, url string, args ...string) (cmd *exec.Cmd, scratch string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	scratch = t.TempDir()
	cmd = exec.CommandContext(ctx, self, args...)
	cmd.Env = slices.Concat(os.Environ(), []string{asProgram + "=1", "DATABASE_URL=" + url, "TMPDIR=" + scratch, "TMP=" + scratch})
	return cmd, scratch
}
