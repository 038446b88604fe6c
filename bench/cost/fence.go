// SPDX-License-Identifier: MIT

package cost

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/bench/result"
)

// fenced is a way to make sure that a transaction is still the leader's.
type fenced struct {
	peer  string
	fence func(context.Context, pgx.Tx) error
}

// Fence is what a fence costs a transaction, alone and in one that writes a row, beside one that asks for nothing instead.
func Fence(ctx context.Context, c Config) ([]result.Row, error) {
	t := newTable("fence")
	err := withLab(ctx, c, func(b *lab) error {
		pool, err := pgxpool.New(ctx, b.server.URL())
		if err != nil {
			return err
		}
		defer pool.Close()
		if _, err := pool.Exec(ctx, "CREATE TABLE ledger (body text NOT NULL)"); err != nil {
			return err
		}
		l, err := leader.New(leader.PostgresPool(pool), leader.Options{Namespace: namespace, Terms: true})
		if err != nil {
			return err
		}
		return inTask(ctx, l, func(ctx context.Context) error { return fence(ctx, c, t, pool) })
	}, "fsync=on")
	t.note("transaction", "One writer, over loopback, with fsync on.")
	return t.rows, err
}

// inTask runs f as the task of a name.
func inTask(ctx context.Context, l *leader.Leader, f func(context.Context) error) error {
	return l.Run(ctx, "ledger", f)
}

func fence(ctx context.Context, c Config, t *table, pool *pgxpool.Pool) error {
	ways := []fenced{
		{"SELECT 1", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		}},
		{"Fence", leader.Fence},
		{"FenceShared", leader.FenceShared},
	}
	for _, work := range []struct {
		setting string
		insert  bool
	}{{"alone", false}, {"with an INSERT", true}} {
		for round := range c.few(151, 3) {
			for i := range ways { // each round begins with another
				way := ways[(round+i)%len(ways)]
				took, err := transactions(ctx, pool, way.fence, work.insert, c.few(20, 4))
				if err != nil {
					return fmt.Errorf("%s %s: %w", way.peer, work.setting, err)
				}
				if round == 0 {
					continue // it prepares the statements
				}
				t.add(column{peer: way.peer, setting: work.setting, measure: "transaction", unit: "ns"}, float64(took.Nanoseconds()))
			}
		}
	}
	return nil
}

// transactions is how long one takes, of n.
func transactions(ctx context.Context, pool *pgxpool.Pool, fence func(context.Context, pgx.Tx) error, insert bool, n int) (time.Duration, error) {
	start := time.Now()
	for range n {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			err := fence(ctx, tx)
			if err == nil && insert {
				_, err = tx.Exec(ctx, "INSERT INTO ledger VALUES ($1)", "one row of a ledger")
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return time.Since(start) / time.Duration(n), nil
}
