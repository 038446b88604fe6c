// SPDX-License-Identifier: MIT

package leaderhttp_test

import (
	"os"
	"testing"

	"github.com/oxygenhub/leader/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
