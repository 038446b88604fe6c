// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUnitOfTheDocs has systemd read the unit of docs/cli.md.
func TestUnitOfTheDocs(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	page, err := os.ReadFile(filepath.FromSlash("../../docs/cli.md"))
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```ini\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, found, "there is no unit")
	dir := t.TempDir()
	here := regexp.MustCompile(`/usr/local/bin/\w+`).ReplaceAll(found[1], []byte(os.Args[0])) // what is not there is an error, too
	unit := filepath.Join(dir, "billing.service")
	require.NoError(t, os.WriteFile(unit, here, 0o600))
	out, err := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput()
	assert.NoError(t, err, "%s", out)
	assert.NotContains(t, string(out), filepath.Base(unit)+":", "it warns of lines")
}
