// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5"
)

func (a *app) resign(args []string) (int, error) {
	var t target
	fs := a.flags("resign", resignHelp)
	t.define(fs)
	wait := fs.Duration("wait", 30*time.Second, "")
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	if *wait <= 0 {
		return 0, usagef("resign: --wait must be positive")
	}
	ctx, stop := signal.NotifyContext(context.Background(), endingSignals()...)
	defer stop()
	conn, err := a.openTarget(ctx, fs, &t)
	if err != nil {
		return 0, err
	}
	defer goodbyeTo(conn)
	s, err := find(ctx, conn, &t)
	if err != nil {
		return 0, err
	}
	if s == nil {
		return 0, nobody(t.name)
	}
	if err := ask(ctx, conn, &t); err != nil {
		return 0, unavailable(err)
	}
	a.print("asked %s\n", printable(s.describe()))
	ctx, cancel := context.WithTimeout(ctx, *wait)
	defer cancel()
	now, err := away(ctx, conn, &t, s)
	switch {
	case err != nil:
		return 0, err
	case now == s:
		return 0, &exitError{statusFailed, fmt.Errorf("it has not handed over within %v: its task takes its time, or it ignores such requests (Options.NoHandover, an older version). Stop it, or else: leader terminate", *wait)}
	case now != nil:
		a.print("%s leads now\n", printable(now.describe()))
	default:
		a.print("it has let go; nobody has taken over yet\n")
	}
	return 0, nil
}

// ask notifies the holder of t. The commit waits for no replica.
func ask(ctx context.Context, conn *pgx.Conn, t *target) error {
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = off`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `SELECT pg_catalog.pg_notify($1::pg_catalog.text, $2::pg_catalog.text)`, channel(t.namespace), fmt.Sprintf("resign:%016x", uint64(t.key)))
		return err
	})
}
