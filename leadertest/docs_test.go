// SPDX-License-Identifier: MIT

package leadertest

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocsListThePromises: docs/drivers.md has a row for each subtest, in their order.
func TestDocsListThePromises(t *testing.T) {
	text, err := os.ReadFile("../docs/drivers.md")
	require.NoError(t, err)
	var listed, tests []string
	for _, row := range regexp.MustCompile("(?m)^\\| [^|]* \\| [^|]* \\| `(\\w+)` \\|\r?$").FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, row[1])
	}
	for _, test := range driverTests {
		tests = append(tests, test.name)
	}
	assert.Equal(t, tests, listed)
}
