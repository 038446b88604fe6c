package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestJobRunsOncePerSlot(t *testing.T) {
	t.Setenv("DATABASE_URL", "")
	scratch := t.TempDir()
	t.Setenv("TMPDIR", scratch)
	t.Setenv("TMP", scratch)
	for _, row := range []struct {
		slot int64
		want bool
	}{{60, true}, {60, false}, {120, true}, {60, false}} {
		ran, err := run(t.Context(), row.slot)
		require.NoError(t, err)
		assert.Equal(t, row.want, ran, "slot %d", row.slot)
	}
}
