// SPDX-License-Identifier: MIT

package cost

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/bench/result"
)

// connecter tries for a lock that somebody else has, and fails.
type connecter struct {
	peer, setting string
	try           func(context.Context) error
}

// Connect is what a try costs that has to connect first, as those of a standby with Options.Disconnect, against one on an open
// connection: the time of it, and the server's CPU, the processes included that have ended.
func Connect(ctx context.Context, c Config) ([]result.Row, error) {
	t := newTable("connect")
	err := withLab(ctx, c, func(b *lab) error {
		postmaster, err := b.postmaster()
		if err != nil {
			return err
		}
		all, err := b.connecters(ctx)
		if err != nil {
			return err
		}
		tries := c.few(50, 5)
		for range c.few(9, 2) {
			for _, by := range all {
				if err := by.measure(ctx, t, postmaster, tries); err != nil {
					return err
				}
			}
		}
		return nil
	})
	t.note("server cpu of a try", "The accounting of processes that have ended is in steps of 10 ms, of 50 tries.")
	return t.rows, err
}

func (b *lab) connecters(ctx context.Context) ([]connecter, error) {
	holder, err := b.connect(ctx, pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	open, err := b.connect(ctx, pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	key := leader.Key(namespace, "connect")
	if _, err := holder.Exec(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
		return nil, err
	}
	try := func(ctx context.Context, conn *pgx.Conn) error {
		var got bool
		err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", key).Scan(&got)
		if err == nil && got {
			err = errors.New("the lock of the holder is free")
		}
		return err
	}
	backend := leader.Postgres(b.server.URL())
	return []connecter{
		{raw, "on an open connection", func(ctx context.Context) error { return try(ctx, open) }},
		{raw, "with a connect", func(ctx context.Context) error {
			conn, err := pgx.Connect(ctx, b.server.URL())
			if err != nil {
				return err
			}
			return errors.Join(try(ctx, conn), conn.Close(ctx))
		}},
		{ours, "Try with a connect", func(ctx context.Context) error {
			l, err := leader.New(backend, leader.Options{Namespace: namespace})
			if err != nil {
				return err
			}
			ran, err := l.Try(ctx, "connect", func(context.Context) error { return nil })
			if err == nil && ran {
				err = errors.New("the lock of the holder is free")
			}
			return errors.Join(err, l.Resign(ctx))
		}},
	}, nil
}

func (by connecter) measure(ctx context.Context, t *table, postmaster, tries int) error {
	before, err := usageOf(postmaster)
	if err != nil {
		return err
	}
	start := time.Now()
	for range tries {
		if err := by.try(ctx); err != nil {
			return err
		}
	}
	took := time.Since(start)
	after, err := usageOf(postmaster)
	if err != nil {
		return err
	}
	t.add(column{peer: by.peer, setting: by.setting, measure: "try", unit: "s"}, took.Seconds()/float64(tries))
	t.add(column{peer: by.peer, setting: by.setting, measure: "server cpu of a try", unit: "s"}, (after.cpu-before.cpu).Seconds()/float64(tries))
	return nil
}
