// SPDX-License-Identifier: MIT

//go:build unix

package fleet

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/oxygenhub/leader/internal/ledger"
	"github.com/oxygenhub/leader/soak/history"
)

// logOf reads what was committed from the server's own log, once.
type logOf struct {
	slot string // of the server, for one database
}

func (l logOf) open(ctx context.Context, conn *pgx.Conn) error {
	log := ledger.Log{Conn: conn, Slot: l.slot}
	return log.Open(ctx)
}

// read returns what was committed since open, and drops the slot. All transactions of interest must have ended.
func (l logOf) read(ctx context.Context, conn *pgx.Conn) (commits []history.Commit, err error) {
	log := ledger.Log{Conn: conn, Slot: l.slot}
	events, err := log.Read(ctx)
	for _, of := range events {
		for _, e := range of {
			commits = append(commits, history.Commit(e))
		}
	}
	slices.SortStableFunc(commits, func(a, b history.Commit) int {
		return cmp.Or(cmp.Compare(a.Committed, b.Committed), cmp.Compare(a.Wrote, b.Wrote))
	})
	if err == nil {
		_, err = conn.Exec(ctx, "SELECT pg_drop_replication_slot($1)", l.slot)
	}
	return commits, err
}
