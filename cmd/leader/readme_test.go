// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresReadme runs what README.md says about shell scripts, with a database of this test.
func TestPostgresReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```sh\n(export DATABASE_URL=.*?)```").FindSubmatch(readme)
	require.NotNil(t, found, "README.md shows no shell script")
	lines := regexp.MustCompile(`(?m)^export DATABASE_URL=\S+`).ReplaceAllString(string(found[1]), fmt.Sprintf("export DATABASE_URL='%s'", pgtest.URL(t)))

	dir := t.TempDir()
	program, err := filepath.Abs(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.Symlink(program, filepath.Join(dir, "leader")))
	for _, name := range []string{"feed", "nightly"} {
		script := fmt.Sprintf("#!/bin/sh\nleader status\necho %s done\n", name)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".sh"), []byte(script), 0o755))
	}
	shell := exec.CommandContext(t.Context(), "sh", "-e", "-x", "-c", lines)
	shell.Dir = dir
	shell.Env = append(os.Environ(), cliEnv+"=1", "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	require.NoError(t, err, "%s", out)
	text := string(out)
	assert.Regexp(t, `(?m)^ok +locks `, text, "check")
	assert.NotRegexp(t, `(?m)^fail `, text, "check")
	assert.Contains(t, text, "feed done")
	assert.Contains(t, text, "nightly done")
	host, err := os.Hostname()
	require.NoError(t, err)
	assert.Equal(t, 2, strings.Count(text, " "+host), "status in each script names this machine")
	assert.Contains(t, text, "nothing is led", "status at the end")
}
