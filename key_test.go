// SPDX-License-Identifier: MIT

package leader

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The vectors were computed with another implementation of BLAKE3 (github.com/zeebo/blake3 v0.2.4). They never change:
// old and new versions, and other languages, run side by side.
func TestKeyVectors(t *testing.T) {
	for _, v := range []struct {
		namespace, name string
		key             int64
	}{
		{"public", "invoices.nightly", -3145500191572354979},
		{"", "", 3559087267786875043},
		{"", "x", -7554996518595888648},
		{"public", "x", -2902498418915267719},
		{"x", "public", -6433572027621055397},
		{"public", "X", 2728456124612282966},
		{"public", "x ", -3240323147231263218},
		{"tenant_7", "é", -2690222266132333226},
		{"tenant_7", "e\u0301", 4748145410703082335},
		{"public", "a\nb\tc", -4535130973138443020},
		{"public", "日本語", -7412880004596638055},
		{"public", strings.Repeat("n", 1024), -1756719640017242182},
	} {
		assert.Equal(t, v.key, Key(v.namespace, v.name), "%q %.20q", v.namespace, v.name)
	}
}

func TestKeySeparates(t *testing.T) {
	texts := []string{"", "a", "A", "b", "ab", "a ", " a", "é", "e\u0301", "\xff", "\n", strings.Repeat("a", 1024), strings.Repeat("a", 64<<10)}
	seen := make(map[int64][2]string)
	for _, namespace := range texts {
		for _, name := range texts {
			key := Key(namespace, name)
			other, taken := seen[key]
			assert.False(t, taken, "%.20q and %.20q", [2]string{namespace, name}, other)
			seen[key] = [2]string{namespace, name}
		}
	}
}

// FuzzKey moves text between the namespace and the name: the key must change. Neither may contain a NUL, which Options
// and Run see to.
func FuzzKey(f *testing.F) {
	f.Add("public", "in", "voices")
	f.Add("", "a", "")
	f.Add("é", "\xff\n", " ")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if strings.ContainsRune(a+b+c, 0) {
			t.Skip()
		}
		whole := Key(a, b+c)
		assert.Equal(t, whole, Key(strings.Clone(a), b+c))
		if b != "" {
			assert.NotEqual(t, whole, Key(a+b, c), "the end of the namespace counts")
			assert.NotEqual(t, whole, Key(a, c))
		}
		if a != b+c {
			assert.NotEqual(t, whole, Key(b+c, a), "the order counts")
		}
	})
}
