// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// hold has a process lead name until the test ends.
func hold(t *testing.T, db, name string, args ...string) *tool {
	t.Helper()
	args = append(append([]string{"run", "--name", name}, args...), "--", "sh", "-c", "echo lead; exec sleep 60")
	p := start(t, at(db), args...)
	p.says("lead")
	return p
}

// overviewFrom is what status --json says.
func overviewFrom(t *testing.T, db string, args ...string) overviewOf {
	t.Helper()
	status, out, errs := call(t, at(db), append([]string{"status", "--json"}, args...)...)
	require.Zero(t, status, errs)
	var o overviewOf
	require.NoError(t, json.Unmarshal([]byte(out), &o), out)
	return o
}

func TestStatusPostgresAndSQLite(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, db string) {
		t.Helper()
		hold(t, db, "fenced", "--node", "web-1", "--term-env", "T")
		hold(t, db, "plain", "--node", "web-2")
		namespace := "main"
		if strings.HasPrefix(db, "postgres") {
			namespace = "public"
			p := start(t, at(db), "run", "--verbose", "--node", "web-3", "--name", "plain", "--", "true")
			within(t, "web-3 waits", func() bool { return strings.Contains(p.err.String(), "standing by") })
		}
		o := overviewFrom(t, db)
		assert.Equal(t, namespace, o.Namespace)
		require.Len(t, o.Leads, 2)
		fenced, plain := o.Leads[0], o.Leads[1]
		assert.Equal(t, "fenced", fenced.Name, "the table has it")
		assert.Equal(t, "web-1", fenced.Node)
		assert.True(t, fenced.Held)
		assert.NotZero(t, fenced.Term)
		assert.NotZero(t, fenced.PID)
		require.NotNil(t, fenced.Since)
		assert.Empty(t, plain.Name)
		assert.Equal(t, leader.Key(namespace, "plain"), plain.Key)
		assert.Equal(t, "web-2", plain.Node)
		if namespace == "public" {
			require.Len(t, o.Standbys, 1)
			assert.Equal(t, "web-3", o.Standbys[0].Node)
			assert.NotZero(t, o.Standbys[0].PID)
		}

		o = overviewFrom(t, db, "plain", "nobody's")
		require.Len(t, o.Leads, 2)
		assert.Equal(t, "nobody's", o.Leads[0].Name)
		assert.False(t, o.Leads[0].Held)
		assert.Equal(t, "plain", o.Leads[1].Name)
		assert.Equal(t, "web-2", o.Leads[1].Node)

		status, out, errs := call(t, at(db), "status")
		assert.Zero(t, status)
		assert.Empty(t, errs)
		assert.Regexp(t, `(?m)^NAME +LED BY +FROM +SERVER PID +SINCE +TERM +ADDRESS$`, out)
		assert.Regexp(t, `(?m)^fenced +web-1 .* \d{13} +-$`, out)
		assert.Regexp(t, `(?m)^key [0-9a-f]{16} +web-2 .* - +-$`, out)
	})
}

func TestStatusPostgresAndSQLiteShowsHowATermEnded(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, db string) {
		t.Helper()
		status, _, errs := call(t, at(db), "run", "--name", "a", "--term-env", "T", "--", "false")
		require.Equal(t, 1, status, errs)
		p := hold(t, db, "b", "--term-env", "T")
		require.NoError(t, p.cmd.Process.Kill())
		p.status()
		within(t, "b is free", func() bool {
			o := overviewFrom(t, db)
			return len(o.Leads) == 2 && !o.Leads[1].Held
		})
		o := overviewFrom(t, db)
		assert.Equal(t, "error", o.Leads[0].Ended)
		assert.Equal(t, "died", o.Leads[1].Ended)
		_, out, _ := call(t, at(db), "status")
		assert.Regexp(t, `(?m)^a +nobody \(last: error\) `, out)
	})
}

// TestStatusMakesNoFile: a mistyped path is an error.
func TestStatusMakesNoFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "none.db")
	for _, sub := range []string{"status", "check"} {
		status, _, errs := call(t, at(file), sub)
		assert.Equal(t, statusUnavailable, status)
		assert.Contains(t, errs, "there is no SQLite file "+file)
		assert.NoFileExists(t, file)
	}
}

func TestStatusPostgresOfAReplica(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t)
	replica := primary.Replica(t)
	hold(t, primary.URL(), "x")
	o := overviewFrom(t, replica.URL(), "x")
	assert.False(t, o.Leads[0].Held)
	require.Len(t, o.Notes, 1)
	assert.Contains(t, o.Notes[0], "replica")
}

// TestStatusShowsNoControlCharacters: whoever may lead chooses the text of a node.
func TestStatusShowsNoControlCharacters(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "app.db")
	hold(t, db, "x", "--node", "evil\x1b[2Jnode")
	_, out, _ := call(t, at(db), "status", "x")
	assert.NotContains(t, out, "\x1b")
	assert.Contains(t, out, "evil?[2Jnode")
}
