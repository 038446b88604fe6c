package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary the program itself: so it is tested with the race detector if the test is.
const asProgram = "LEADER_TEST_QUICKSTART"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(pgtest.Main(m))
}

func TestQuickstart(t *testing.T) { testQuickstart(t, "") }

func TestQuickstartPostgres(t *testing.T) { testQuickstart(t, pgtest.URL(t)) }

func testQuickstart(t *testing.T, url string) {
	t.Helper()
	t.Parallel()
	scratch := t.TempDir()
	out, err := program(t, "DATABASE_URL="+url, "TMPDIR="+scratch, "TMP="+scratch).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Regexp(t, `(?m)^task +from +to +how +ms$`, string(out))
	assert.Regexp(t, `(?m)^\S+ +\w+ +\w+ +killed +\d+\.\d$`, string(out))
	assert.Regexp(t, `(?m)^\S+ +\w+ +\w+ +resigned +\d+\.\d$`, string(out))
	assert.Regexp(t, `(?m)^no overlap: \d+ runs checked$`, string(out))
	assert.NotContains(t, string(out), "\x1b", "escape sequences without a terminal")
	left, err := os.ReadDir(scratch)
	require.NoError(t, err)
	assert.Empty(t, left, "left behind")
}

func TestQuickstartSaysWhatIsWrongWithTheDatabase(t *testing.T) {
	t.Parallel()
	out, err := program(t, "DATABASE_URL=postgres://nobody@127.0.0.1:1/nothing").CombinedOutput()
	require.Error(t, err)
	assert.Regexp(t, `quickstart: .*connect`, string(out))
}

func program(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = slices.Concat(os.Environ(), []string{asProgram + "=1"}, env)
	return cmd
}

// at is a time of the made-up records: seconds after their beginning.
func at(seconds int) time.Time { return time.Unix(int64(seconds), 0) }

func TestOverlapsAreFound(t *testing.T) {
	for _, row := range []struct {
		name string
		runs []span
		want int
	}{
		{"one after the other", []span{{task: "x", start: at(1), end: at(3)}, {task: "x", start: at(3), end: at(4)}}, 0},
		{"two tasks", []span{{task: "x", start: at(1), end: at(3)}, {task: "y", start: at(2), end: at(4)}}, 0},
		{"crossed", []span{{task: "x", start: at(1), end: at(3)}, {task: "x", start: at(2), end: at(4)}}, 1},
		{"within", []span{{task: "x", start: at(1), end: at(9)}, {task: "x", start: at(2), end: at(3)}, {task: "x", start: at(5), end: at(6)}}, 2},
	} {
		assert.Len(t, overlaps(row.runs), row.want, row.name)
	}
}

func TestRunsOfKilledWorkersEndWithTheKill(t *testing.T) {
	left := []departure{{"ada", killed, at(5)}, {"bob", resigned, at(5)}}
	runs := []span{
		{worker: "ada", start: at(1), end: at(4)},
		{worker: "ada", start: at(1), end: at(6)},
		{worker: "ada", start: at(1), end: at(2), ended: true},
	}
	require.Empty(t, closeRuns(runs, left))
	assert.Equal(t, []time.Time{at(5), at(6), at(2)}, []time.Time{runs[0].end, runs[1].end, runs[2].end})
	assert.Len(t, closeRuns([]span{{worker: "bob"}, {worker: "cyd"}}, left), 2, "runs without an end")
}

func TestTakeovers(t *testing.T) {
	left := []departure{{"ada", killed, at(5)}}
	runs := []span{
		{task: "x", worker: "ada", start: at(1), end: at(2)}, // over before
		{task: "x", worker: "ada", start: at(3), end: at(5)},
		{task: "x", worker: "bob", start: at(7), end: at(9)},
		{task: "y", worker: "ada", start: at(3), end: at(5)}, // nobody
	}
	moves, missed := takeovers(runs, left)
	assert.Equal(t, []takeover{{"x", "ada", "bob", killed, 2 * time.Second}}, moves)
	assert.Len(t, missed, 1)
}

func TestRecordsAreRead(t *testing.T) {
	line := func(run, kind string) string {
		return `{"worker":"ada","task":"x","run":` + run + `,"kind":"` + kind + `","at":"2026-01-02T03:04:05Z"}` + "\n"
	}
	dir := t.TempDir()
	write := func(lines ...string) {
		require.NoError(t, os.WriteFile(dir+"/ada.jsonl", []byte(strings.Join(lines, "")), 0o600))
	}
	write(line("1", markStart), line("2", markStart), line("1", markTick), line("1", markEnd), line("2", markTick)[:20])
	runs, err := readRuns(dir)
	require.NoError(t, err)
	require.Len(t, runs, 2)
	assert.True(t, runs[0].ended)
	assert.False(t, runs[1].ended)

	write(line("1", markTick))
	_, err = readRuns(dir)
	require.Error(t, err, "a tick without a start")
}

func TestTableFitsATerminal(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out, live: true, colour: true}
	w := func(name, how string) *worker {
		return &worker{name: name, how: how, cmd: &exec.Cmd{Process: &os.Process{Pid: 4194304}}, runs: map[string]time.Time{tasks[0]: time.Now()}}
	}
	s.draw([]*worker{w("ada", killed), w("bob", resigned), w("cyd", "")})
	plain := regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(out.String(), "")
	lines := strings.Split(strings.TrimSuffix(plain, "\n"), "\n")
	assert.Len(t, lines, s.height)
	for _, line := range lines {
		assert.Less(t, len(line), 80, line)
	}
}
