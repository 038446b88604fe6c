// SPDX-License-Identifier: MIT

package pgtest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestStageTurnsEndsOfATestIntoErrors: what ends a test ends Try, and what fails one is an error of End as well.
func TestStageTurnsEndsOfATestIntoErrors(t *testing.T) {
	t.Parallel()
	var lines []string
	stage := pgtest.NewStage(t.Context(), "play", t.TempDir(), func(line string) { lines = append(lines, line) })
	assert.Equal(t, "play", stage.Name())
	assert.Equal(t, t.Context(), stage.Context())
	stage.Logf("act %d", 1)
	assert.Equal(t, []string{"act 1"}, lines)

	require.NoError(t, stage.Try(func() {}))
	require.ErrorIs(t, stage.Try(func() { stage.Skipf("no %s", "server") }), pgtest.ErrSkipped)
	assert.False(t, stage.Failed(), "a skip is no failure")
	require.EqualError(t, stage.Try(func() { stage.Fatalf("lost %d", 2) }), "lost 2")
	stage.Error("and again")
	assert.True(t, stage.Failed())
	assert.EqualError(t, stage.End(), "lost 2\nand again")
	assert.PanicsWithValue(t, "a bug", func() { _ = stage.Try(func() { panic("a bug") }) })
}

// TestStageEndsInTheOrderOfATest: cleanups run backwards, those of a cleanup too, and one that fails keeps none of the others.
func TestStageEndsInTheOrderOfATest(t *testing.T) {
	t.Parallel()
	stage := pgtest.NewStage(t.Context(), "play", t.TempDir(), func(string) {})
	var dir string
	require.NoError(t, stage.Try(func() { dir = stage.TempDir() }))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	var order []string
	stage.Cleanup(func() { order = append(order, "first made") })
	stage.Cleanup(func() {
		stage.Cleanup(func() { order = append(order, "made by a cleanup") })
		stage.Fatal("broken")
	})
	require.EqualError(t, stage.End(), "broken")
	assert.Equal(t, []string{"made by a cleanup", "first made"}, order)
	assert.NoDirExists(t, dir)
}
