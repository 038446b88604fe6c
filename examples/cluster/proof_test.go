// SPDX-License-Identifier: MIT

package main

import (
	"testing"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What shows that the proof can fail.
func TestClusterProofFails(t *testing.T) { testProof(t, "") }

func TestClusterPostgresProofFails(t *testing.T) { testProof(t, pgtest.URL(t)) }

func testProof(t *testing.T, url string) {
	t.Helper()
	t.Setenv("DATABASE_URL", url)
	db, err := createDatabase(t.Context())
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.drop()) }()
	leads := func(term leader.Term, node string) {
		_, err := db.ExecContext(t.Context(), "DELETE FROM leader_terms")
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), `INSERT INTO leader_terms (key, namespace, name, term, node, addr, pid, taken_at)
			VALUES (1, 'x', 'kv', $1, $2, '', 1, CURRENT_TIMESTAMP)`, int64(term), node)
		require.NoError(t, err)
	}
	put := func(a ack) {
		_, err := db.ExecContext(t.Context(), upsert, a.key, a.value, int64(a.term), a.node)
		require.NoError(t, err)
	}
	first, second := ack{"k", "1", "ada", 1}, ack{"k", "2", "bob", 2}
	led := map[leader.Term]string{1: "ada", 2: "bob"}
	leads(1, "ada")
	put(first)
	leads(2, "bob")
	put(second)
	sees := func(want proof) {
		t.Helper()
		got, err := prove(t.Context(), db.DB, []ack{first, second}, led)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	sees(proof{rows: 2, terms: 2})
	put(ack{"k", "3", "ada", 1}) // late
	sees(proof{rows: 3, terms: 2, backwards: 1, foreign: 1})
	put(ack{"k", "4", "cyd", 2}) // does not lead
	sees(proof{rows: 4, terms: 2, backwards: 1, foreign: 2, strange: 1})
	_, err = db.ExecContext(t.Context(), "UPDATE leader_terms SET released_at = CURRENT_TIMESTAMP")
	require.NoError(t, err)
	put(ack{"k", "5", "bob", 2}) // leads no more
	sees(proof{rows: 5, terms: 2, backwards: 1, foreign: 3, strange: 1})
	_, err = db.ExecContext(t.Context(), "DELETE FROM journal WHERE value IN ('1', '5')")
	require.NoError(t, err)
	sees(proof{rows: 3, terms: 2, backwards: 1, foreign: 2, strange: 1, stale: 1, missing: 1})
	require.NoError(t, proof{rows: 2, terms: 2}.faults())
	for _, p := range []proof{{terms: 1}, {terms: 2, backwards: 1}, {terms: 2, foreign: 1}, {terms: 2, strange: 1}, {terms: 2, stale: 1}, {terms: 2, missing: 1}} {
		require.ErrorContains(t, p.faults(), "the proof fails: 1 ")
	}
}
