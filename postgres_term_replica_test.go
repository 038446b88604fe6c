// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresTermsOverPromotion is C34 (e): the replica that is promoted has missed the last term, as an asynchronous one may. The
// next term is higher all the same, and the term that the replica has not got passes no fence there.
func TestPostgresTermsOverPromotion(t *testing.T) {
	first := pgtest.Start(t)
	pgtest.Exec(t, first.URL(), leader.TermsSQL)
	second := first.Replica(t)
	a := termLeader(t, first.URL(), termOptions("a"))
	begun, stop := termTask(t, a, "x")
	_, old := termNext(t, begun)
	stop()
	second.CatchUp(first)
	second.Promote() // what follows does not reach it
	begun, stop = termTask(t, a, "x")
	ctx, missed := termNext(t, begun)
	require.Greater(t, missed, old)
	defer stop()

	conn := pgtest.Connect(t, second.URL())
	err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return leader.Fence(context.WithoutCancel(ctx), tx) })
	var fenced *leader.FencedError
	require.ErrorAs(t, err, &fenced)
	assert.Equal(t, leader.FencedError{Name: "x", Term: missed, Current: old}, *fenced)

	b := termLeader(t, pgtest.Hosts(second, first), termOptions("b"))
	next, _ := termTask(t, b, "x")
	later, term := termNext(t, next)
	assert.Greater(t, term, missed, "a term that the replica has not got was used again")
	require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return leader.Fence(later, tx) }))
	assert.NoError(t, leader.Confirm(ctx), "the old side leads on its own disk, as docs/guarantees.md says")
}
