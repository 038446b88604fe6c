// SPDX-License-Identifier: MIT

package leader

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRunChecksNames(t *testing.T) { synctest.Test(t, testRunChecksNames) }

func testRunChecksNames(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	for _, row := range []struct{ name, want string }{
		{"", "is empty"},
		{strings.Repeat("x", 1025), "has 1025 bytes: at most 1024"},
		{strings.Repeat("x", 64<<10), "has 65536 bytes"},
		{"a\x00b", "contains a NUL"},
		{"a\xffb", "is not valid UTF-8"},
	} {
		require.ErrorContains(t, l.Run(t.Context(), row.name, obey), row.want)
		_, err := l.Try(t.Context(), row.name, obey)
		require.ErrorContains(t, err, row.want)
		_, err = l.Holder(t.Context(), row.name)
		require.ErrorContains(t, err, row.want)
	}
	require.ErrorContains(t, l.Run(t.Context(), "x", nil), "the task is nil")
	assert.Zero(t, b.dialed())

	// All of these are names, each its own.
	odd := []string{"a", "A", "a ", " a", "é", "e\u0301", "\n", "..", "/etc", "'; --", "\u202e", strings.Repeat("ü", 512)}
	var wg sync.WaitGroup
	for _, name := range odd {
		wg.Go(func() { _ = l.Run(t.Context(), name, obey) })
	}
	synctest.Wait()
	assert.Equal(t, len(odd), st.held())
	assert.Len(t, l.Leading(), len(odd))
	assert.NoError(t, l.Resign(t.Context()))
	wg.Wait()
}

// Two names with one key cannot be told apart at the database, and on one session the second try would stack. 64 bits do
// not collide by chance: the test puts another name at the key.
func TestRunRefusesAKeyCollision(t *testing.T) { synctest.Test(t, testRunRefusesAKeyCollision) }

func testRunRefusesAKeyCollision(t *testing.T) {
	st := newFakeStore()
	l, _ := st.leader(t, Options{})
	goRun(t.Context(), l, "a", obey)
	synctest.Wait()
	l.mu.Lock()
	l.keys[Key("test", "b")] = l.slots["a"]
	l.mu.Unlock()
	require.ErrorContains(t, l.Run(t.Context(), "b", obey), `"b" and "a" have the same key`)
	assert.Equal(t, []string{"a"}, l.Tasks())
	// Nor by way of a call that is on its way out with the same error.
	l.mu.Lock()
	l.slots["b"] = &slot{name: "b"}
	l.mu.Unlock()
	require.ErrorContains(t, l.Run(t.Context(), "b", obey), "have the same key")
	l.mu.Lock()
	delete(l.slots, "b")
	delete(l.keys, Key("test", "b"))
	l.mu.Unlock()
}

// The same before the first connection, when the keys are not known yet: the later Run of the name must not ask for key 0.
func TestRunRefusesAKeyCollisionAtTheFirstConnection(t *testing.T) {
	synctest.Test(t, testRunRefusesAKeyCollisionAtTheFirstConnection)
}

func testRunRefusesAKeyCollisionAtTheFirstConnection(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	b.dialTime = time.Second
	calls := []*call{goRun(t.Context(), l, "b", obey), goRun(t.Context(), l, "b", obey)}
	synctest.Wait()
	l.mu.Lock()
	l.keys[Key("test", "b")] = &slot{name: "a"}
	l.mu.Unlock()
	time.Sleep(time.Second)
	synctest.Wait()
	for _, c := range calls {
		require.True(t, c.returned())
		require.ErrorContains(t, c.err, "have the same key")
	}
	assert.Zero(t, b.count(kindTry))
	l.mu.Lock()
	delete(l.keys, Key("test", "b"))
	l.mu.Unlock()
}
