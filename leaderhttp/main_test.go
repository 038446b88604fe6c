// SPDX-License-Identifier: MIT

package leaderhttp_test

import (
	"os"
	"testing"

	"github.com/oxygenhub/leader/internal/pgtest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(asLeader); path != "" {
		leadAsProcess(path)
		return
	}
	os.Exit(pgtest.Main(m))
}
