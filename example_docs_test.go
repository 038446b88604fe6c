// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oxygenhub/leader"
)

// The code of docs/fencing.md, which TestDocsSnippetsAreCode looks for.

func _(ctx context.Context, lead *leader.Leader, pool *pgxpool.Pool) error {
	// with Options{Namespace: "billing", Schema: "public", Terms: true}
	err := lead.Run(ctx, "invoices", func(ctx context.Context) error {
		for ctx.Err() == nil {
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if err := leader.Fence(ctx, tx); err != nil {
					return err // rolls back
				}
				_, err := tx.Exec(ctx, "INSERT INTO invoices ...")
				return err
			})
			if errors.Is(err, leader.ErrFenced) {
				<-ctx.Done() // at the next Check at the latest: then Run contends again
			} else if err != nil {
				log.Print(err) // and try again
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		return nil
	})
	return err
}
