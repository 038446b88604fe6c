// SPDX-License-Identifier: MIT

package leader

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSQLiteKnowsFileSystems(t *testing.T) {
	for _, row := range []struct {
		volume string
		kind   uintptr
		want   string
	}{
		{`C:`, 3, ""},
		{`Z:`, 4, "a network drive"},
		{`\\server\share`, 1, "a network share"},
		{`\\?\UNC\server\share`, 0, "a network share"},
		{`\\?\C:`, 3, ""},
		{`\\.\C:`, 3, ""},
	} {
		assert.Equal(t, row.want, sqliteVolume(row.volume, row.kind), row.volume)
	}
	kind, err := sqliteRemote(t.TempDir())
	require.NoError(t, err)
	assert.Empty(t, kind)
}
