// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

func TestStatusWatch(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		db := filepath.Join(t.TempDir(), "app.db")
		p := hold(t, db, "x", "--node", "web-1")
		w := start(t, at(db), "status", "--watch", "--json", "x")
		w.says(`"node":"web-1"`)
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		p.status()
		w.says(`"held":false`)
		require.NoError(t, w.cmd.Process.Signal(sig))
		assert.Zero(t, w.status())
		lines := strings.Split(strings.TrimSpace(w.out.String()), "\n")
		assert.Len(t, lines, 2, "only what changes")
		assert.Empty(t, w.err.String())
	}
}

// TestStatusPostgresWatchJSON: each line is an object by itself, also while there is no server.
func TestStatusPostgresWatchJSON(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	hold(t, server.URL(), "x", "--restart")
	w := start(t, at(server.URL()), "status", "--watch", "--json", "x")
	w.says(`"held":true`)
	server.Stop("fast")
	w.says(`{"error":`)
	server.Start()
	last := func() string {
		lines := strings.SplitAfter(w.out.String(), "\n")
		return lines[max(len(lines)-2, 0)] // the last that is complete
	}
	within(t, "it is back", func() bool { return strings.Contains(last(), `"held":true`) })
	require.NoError(t, w.cmd.Process.Signal(syscall.SIGTERM))
	assert.Zero(t, w.status())
	assert.Empty(t, w.err.String())
	before := ""
	for line := range strings.Lines(w.out.String()) {
		assert.NotEqual(t, before, line, "only what changes")
		before = line
		var object map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(line), &object), line)
		if object["error"] == nil {
			assert.Contains(t, object, "leads", line)
		} else {
			assert.Len(t, object, 1, line)
		}
	}
}

// TestStatusWatchIntoAPipe: it ends, as all do, when it has something to say and nobody reads.
func TestStatusWatchIntoAPipe(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--json"}, nil} {
		db := filepath.Join(t.TempDir(), "app.db")
		p := hold(t, db, "x", "--node", "web-1")
		r, w, err := os.Pipe()
		require.NoError(t, err)
		watch := command(t, at(db), append(append([]string{"status", "--watch"}, args...), "x")...)
		watch.cmd.Stdout = w
		watch.start()
		require.NoError(t, w.Close())
		lines := bufio.NewReader(r)
		for text := ""; !strings.Contains(text, "web-1"); {
			text, err = lines.ReadString('\n')
			require.NoError(t, err)
			assert.NotContains(t, text, "\x1b")
		}
		require.NoError(t, r.Close())
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		watch.status()
		ws, ok := watch.cmd.ProcessState.Sys().(syscall.WaitStatus)
		require.True(t, ok)
		assert.Equal(t, syscall.SIGPIPE, ws.Signal(), "%v", watch.cmd.ProcessState)
		assert.Empty(t, watch.err.String())
	}
}
