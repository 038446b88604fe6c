// SPDX-License-Identifier: MIT

package integration

import (
	"context"
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
)

func TestFenceWithEachDriver(t *testing.T) { onEachImage(t, testFence) }

// testFence has the drivers of database/sql for PostgreSQL fence, and be refused in each isolation level.
func testFence(s *server) {
	t := s.t
	l, err := leader.New(leader.Postgres(s.url()), leader.Options{Terms: true, Namespace: "public"})
	require.NoError(t, err)
	defer func() { assert.NoError(t, l.Resign(context.Background())) }()
	for _, driver := range []string{"pgx", "postgres"} {
		db, err := sql.Open(driver, s.url())
		require.NoError(t, err)
		defer func() { _ = db.Close() }()
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			for name, fence := range map[string]func(context.Context, *sql.Tx) error{"Fence": leader.FenceSQL, "Shared": leader.FenceSharedSQL} {
				if name == "Shared" && level != sql.LevelReadCommitted {
					continue
				}
				require.NoError(t, l.Run(t.Context(), driver+name+level.String(), func(ctx context.Context) error {
					tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
					require.NoError(t, err)
					require.NoError(t, fence(ctx, tx))
					require.NoError(t, tx.Commit())
					tx, err = db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
					require.NoError(t, err)
					defer func() { _ = tx.Rollback() }()
					_, err = tx.ExecContext(ctx, "SELECT 1") // an old snapshot, where there is one
					require.NoError(t, err)
					_, err = db.ExecContext(ctx, "UPDATE leader_terms SET term = term + 5 WHERE released_at IS NULL")
					require.NoError(t, err)
					assert.ErrorIs(t, fence(ctx, tx), leader.ErrFenced, "%s %s %s", driver, name, level)
					return nil
				}))
			}
		}
	}
}
