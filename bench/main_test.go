// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/bench/cost"
	"github.com/oxygenhub/leader/bench/peer"
)

// TestMain is a process of a peer, too: the benchmark starts its own program.
func TestMain(m *testing.M) {
	_, works := os.LookupEnv(peer.JobEnv)
	if _, starts := os.LookupEnv(cost.StartEnv); works || starts {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestPostgresQuick does each work of the takeovers, and one that starts processes, with the fewest repeats, and leaves nothing behind
// but its results. Package cost tests the others.
func TestPostgresQuick(t *testing.T) {
	out := t.TempDir()
	temp, err := os.MkdirTemp("", "b") // where the server's user can enter, and with a short name, for its socket
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(temp)) })
	require.NoError(t, os.Chmod(temp, 0o755))
	t.Setenv("TMPDIR", temp)
	var text strings.Builder
	rows, err := run(t.Context(), options{quick: true, out: out, only: "handover,kill,session,hole,start"}, &text)
	t.Log(text.String())
	require.NoError(t, err)
	if strings.Contains(text.String(), "NOT RUN HERE") {
		t.Skip("this machine lacks something")
	}
	measured := make(map[string]bool)
	for _, r := range rows {
		what := strings.Join([]string{r.Work, r.Peer, r.Measure}, " ")
		measured[what] = measured[what] || len(r.Samples) > 0
		if len(r.Samples) == 0 {
			assert.NotEmpty(t, r.Note, "%s: why is there none", what)
		} else {
			assert.GreaterOrEqual(t, slices.Min(r.Samples), 0.0, what)
		}
	}
	for _, what := range []string{
		"handover leader takeover", "handover raw takeover", "handover blocked takeover", "handover River takeover",
		"handover etcd takeover", "handover client-go takeover", "handover gocron takeover",
		"kill leader takeover", "kill raw takeover", "kill etcd takeover",
		"session leader told", "session raw told", "session leader takeover", "session raw takeover",
		"start leader from the start of a process", "hole leader told", "hole leader overlap", "hole etcd told",
	} {
		assert.True(t, measured[what], what)
	}
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	assert.Empty(t, left)
	page, err := os.ReadFile(filepath.Join(out, "benchmarks.md"))
	require.NoError(t, err)
	assert.Contains(t, string(page), "not a whole run")
	numbers := filepath.Join(out, "benchmarks.json")
	require.ErrorContains(t, again(numbers, ""), "-out")
	require.NoError(t, again(numbers, filepath.Join(out, "again")))
	anew, err := os.ReadFile(filepath.Join(out, "again", "benchmarks.md"))
	require.NoError(t, err)
	assert.Equal(t, string(page), string(anew))
}

// TestBadArgumentsAreRefused before anything is measured.
func TestBadArgumentsAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a file")
	require.NoError(t, os.WriteFile(file, []byte("{}"), 0o600))
	var text strings.Builder
	_, err := run(t.Context(), options{quick: true, out: file, only: "hot"}, &text)
	require.ErrorContains(t, err, "-out: ")
	_, err = run(t.Context(), options{quick: true, only: "hot,nonsense"}, &text)
	require.ErrorContains(t, err, `work "nonsense": there are handover, `)
	assert.Empty(t, text.String(), "nothing was begun")
	require.ErrorContains(t, again(file, t.TempDir()), "there are no rows in it")
	chosen, err := choose("size, hot")
	require.NoError(t, err)
	require.Len(t, chosen, 2)
	assert.Equal(t, "hot", chosen[0].name)
}
