// SPDX-License-Identifier: MIT

//go:build darwin || dragonfly || freebsd

package leader

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSQLiteKnowsFileSystems(t *testing.T) {
	for _, row := range []struct {
		name  string
		local bool
		want  string
	}{
		{"apfs", true, ""},
		{"hfs", true, ""},
		{"ufs", true, ""},
		{"zfs", true, ""},
		{"nullfs", true, ""},
		{"nfs", false, "nfs"},
		{"smbfs", false, "smbfs"},
		{"webdav", false, "webdav"},
		{"afpfs", false, "afpfs"},
		{"macfuse", true, "macfuse"},
		{"osxfuse", false, "osxfuse"},
		{"fusefs", true, "fusefs"},
		{"virtiofs", true, "virtiofs"},
		{"unheard", false, "unheard"},
	} {
		assert.Equal(t, row.want, sqliteFSName(row.name, row.local), row.name)
	}
	kind, err := sqliteRemote(t.TempDir())
	require.NoError(t, err)
	assert.Empty(t, kind)
}
