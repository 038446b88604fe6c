// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/bench/peer"
)

// TestMain is a process of a peer, too: the benchmark starts its own program.
func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv(peer.JobEnv); ok {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestPostgresQuick does each work with the fewest repeats, and leaves nothing behind but its results.
func TestPostgresQuick(t *testing.T) {
	temp := t.TempDir()
	require.NoError(t, os.Chmod(temp, 0o755)) // for the server's user
	t.Setenv("TMPDIR", temp)
	out := t.TempDir()
	var text strings.Builder
	err := run(t.Context(), options{quick: true, out: out}, &text)
	t.Log(text.String())
	require.NoError(t, err)
	if strings.Contains(text.String(), "NOT RUN HERE") {
		t.Skip("this machine lacks something")
	}
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.FileExists(t, filepath.Join(out, "benchmarks.json"))
}
