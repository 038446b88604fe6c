// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCompletion has each shell that is here read its script.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for shell, argument := range map[string]string{"bash": "-n", "zsh": "-n", "fish": "--no-execute"} {
		status, out, errs := call(t, nil, "completion", shell)
		assert.Zero(t, status, errs)
		for _, sub := range subcommands() {
			if sub.line != "" {
				assert.Contains(t, out, sub.name, shell)
			}
		}
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("there is no %s here", shell)
			continue
		}
		check := exec.Command(shell, argument)
		check.Stdin = strings.NewReader(out)
		text, err := check.CombinedOutput()
		assert.NoError(t, err, "%s: %s", shell, text)
	}
	status, _, errs := call(t, nil, "completion", "csh")
	assert.Equal(t, statusUsage, status)
	assert.Contains(t, errs, "name the shell")
}

// completions are lines, of which the last word is to be completed, and that word afterwards, each in every shell.
func completions() map[string]string {
	return map[string]string{
		"leader sta":                    "status",
		"leader ver":                    "version",
		"leader help ver":               "version",
		"leader run --term":             "--term-env",
		"leader run --try --verb":       "--verbose",
		"leader status --wa":            "--watch",
		"leader terminate --name x --y": "--yes",
		"leader completion f":           "fish",
		"leader key --js":               "--json",
		"leader run --name x -- our-te": "our-test-command",
	}
}

// shell returns the path of one, and the folder of a home that has a command to complete. It skips the test if there is none.
func shell(t *testing.T, name string) (path, home string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("there is no %s here", name)
	}
	home = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(home, "our-test-command"), []byte("#!/bin/sh\n"), 0o755))
	return path, home
}

func TestCompletionOfBash(t *testing.T) {
	t.Parallel()
	path, home := shell(t, "bash")
	complete := func(line string) string {
		bash := exec.Command(path, "--norc", "-c", bashCompletion+`
COMP_WORDS=(`+line+`)
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_leader
echo "${COMPREPLY[*]}"`)
		bash.Env = append(os.Environ(), "PATH="+home+":"+os.Getenv("PATH"))
		out, err := bash.CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.TrimSpace(string(out))
	}
	for line, want := range completions() {
		assert.Equal(t, want, complete(line), line)
	}
	assert.Equal(t, "--name --namespace", complete("leader run --na"))
	assert.Empty(t, complete("leader run -- leader_"))
}

func TestCompletionOfFish(t *testing.T) {
	t.Parallel()
	path, home := shell(t, "fish")
	script := filepath.Join(home, "leader.fish")
	require.NoError(t, os.WriteFile(script, []byte(fishCompletion), 0o600))
	complete := func(line string) (found []string) {
		fish := exec.Command(path, "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", script, line)
		fish.Env = append(os.Environ(), "HOME="+home, "PATH="+home+":"+os.Getenv("PATH"))
		out, err := fish.CombinedOutput()
		require.NoError(t, err, string(out))
		for line := range strings.Lines(string(out)) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			found = append(found, word)
		}
		return found
	}
	for line, want := range completions() {
		assert.Equal(t, []string{want}, complete(line), line)
	}
	assert.ElementsMatch(t, []string{"--name", "--namespace"}, complete("leader run --na"))
	assert.NotContains(t, complete("leader run -- test --"), "--name", "these are flags of the command")
}
