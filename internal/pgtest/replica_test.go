// SPDX-License-Identifier: MIT

//go:build unix

package pgtest_test

import (
	"testing"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresReplica takes a pair through a promotion and back: both hold what was written on either side.
func TestPostgresReplica(t *testing.T) {
	first := pgtest.Start(t)
	pgtest.Exec(t, first.URL(), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
	second := first.Replica(t)
	count := func(s *pgtest.Server) string { return show(t, s.URL(), "SELECT count(*)::text FROM kept") }
	if count(second) != "1" || !second.InRecovery() || first.InRecovery() {
		t.Fatal("no replica")
	}
	pgtest.Exec(t, first.URL(), "INSERT INTO kept VALUES (2)")
	second.CatchUp(first)
	if got := count(second); got != "2" {
		t.Errorf("%s rows at the replica, want 2", got)
	}

	first.Stop("fast")
	second.Promote()
	pgtest.Exec(t, second.URL(), "INSERT INTO kept VALUES (3)")
	first.Follow(second)
	first.CatchUp(second)
	if got := count(first); got != "3" || !first.InRecovery() {
		t.Errorf("%s rows at the old primary, want 3; in recovery: %t", got, first.InRecovery())
	}

	second.Stop("immediate")
	first.Promote()
	pgtest.Exec(t, pgtest.Hosts(second, first), "INSERT INTO kept VALUES (4)") // the first of them does not answer
	if got := count(first); got != "4" {
		t.Errorf("%s rows, want 4", got)
	}
}
