// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSQLiteHolders(t *testing.T) {
	path, db := sqliteNewFile(t)
	s := sqliteOpen(t, db, "here")
	other := sqliteStart(t, path)
	other.do(t, "open there")
	start := time.Now()
	require.Equal(t, "[1 2] <nil>", other.do(t, "try 1 2"))
	require.Equal(t, []int64{3}, sqliteTake(t, s, 3))

	there, here := sqliteHolder(t, s, 1), sqliteHolder(t, s, 3)
	assert.Equal(t, "there", there.Node)
	assert.True(t, there.Held)
	assert.Equal(t, uint32(other.cmd.Process.Pid), there.PID)
	assert.WithinRange(t, there.Since, start.Add(-time.Second), time.Now())
	assert.Equal(t, "here", here.Node)
	assert.Equal(t, uint32(os.Getpid()), here.PID)
	assert.Equal(t, "here true", other.do(t, "holder 3"))
	assert.Equal(t, Holder{}, sqliteHolder(t, s, 4))

	other.do(t, "unlock 2")
	assert.Equal(t, Holder{}, sqliteHolder(t, s, 2), "given back")
	sqliteGive(t, s, 3)
	assert.Equal(t, " false", other.do(t, "holder 3"))
	require.Equal(t, []int64{2}, sqliteTake(t, s, 2))
	assert.Equal(t, "here true", other.do(t, "holder 2"), "a shorter record over a longer one")

	other.kill()
	assert.Equal(t, Holder{}, sqliteHolder(t, s, 1), "a dead process holds nothing")
	marks, err := os.ReadDir(filepath.Join(path+".leader", "sessions"))
	require.NoError(t, err)
	assert.Len(t, marks, 2)
	sqliteOpen(t, db, "next").close()
	marks, err = os.ReadDir(filepath.Join(path+".leader", "sessions"))
	require.NoError(t, err)
	assert.Len(t, marks, 1, "the next session clears up")
}

func TestSQLiteRecordIsNoConditionOfTheLock(t *testing.T) {
	path, db := sqliteNewFile(t)
	require.NoError(t, os.Mkdir(path+".leader", 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(path+".leader", "sessions"), nil, 0o600))
	a, b := sqliteOpen(t, db, "a"), sqliteOpen(t, db, "b")
	require.Equal(t, []int64{1}, sqliteTake(t, a, 1))
	require.Empty(t, sqliteTake(t, b, 1))
	assert.Equal(t, "a", sqliteHolder(t, a, 1).Node)
	assert.Equal(t, Holder{}, sqliteHolder(t, b, 1))
	for _, text := range []string{"", "{", "7", `{"node":"x"}`, `{"node":"x","session":"../../app.db"}`, strings.Repeat("a", 1<<20)} {
		require.NoError(t, os.WriteFile(filepath.Join(path+".leader", "0000000000000002"+sqliteRecordExt), []byte(text), 0o600))
		assert.Equal(t, Holder{}, sqliteHolder(t, b, 2), text[:min(len(text), 40)])
	}
	sqliteGive(t, a, 1)
	require.Equal(t, []int64{1}, sqliteTake(t, b, 1))
}

// TestSQLiteHoldersTakesNoLock: a question must not make a lock look taken to a third process.
func TestSQLiteHoldersTakesNoLock(t *testing.T) {
	_, db := sqliteNewFile(t)
	a, b := sqliteOpen(t, db, "a"), sqliteOpen(t, db, "b")
	sqliteTake(t, a, 1)
	sqliteGive(t, a, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			_, err := b.holders([]int64{1})
			assert.NoError(t, err)
		}
	})
	for range 500 {
		require.Equal(t, []int64{1}, sqliteTake(t, a, 1))
		sqliteGive(t, a, 1)
	}
	cancel()
	asking.Wait()
}
