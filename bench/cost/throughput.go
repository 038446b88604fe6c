// SPDX-License-Identifier: MIT

package cost

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite" // the driver of the tests

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/bench/result"
)

// cycler gets a lock and gives it back.
type cycler struct {
	peer, setting string
	cycle         func(context.Context) error
}

// Throughput is how often in a second a process can get one name and give it up again, when nobody else wants it.
func Throughput(ctx context.Context, c Config) ([]result.Row, error) {
	t := newTable("throughput")
	err := withLab(ctx, c, func(b *lab) error {
		cyclers, err := b.cyclers(ctx)
		if err != nil {
			return err
		}
		for range c.few(10, 1) {
			for _, by := range cyclers {
				rate, err := by.rate(ctx, c.span(time.Second, 200*time.Millisecond))
				if err != nil {
					return fmt.Errorf("%s, %s: %w", by.peer, by.setting, err)
				}
				t.add(column{peer: by.peer, setting: by.setting, measure: "cycles", unit: "1/s"}, rate)
			}
		}
		return nil
	}, "fsync=on")
	return t.rows, err
}

func (b *lab) cyclers(ctx context.Context) ([]cycler, error) {
	conn, err := b.connect(ctx, pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	all := []cycler{{raw, "PostgreSQL", func(ctx context.Context) error { return rawCycle(ctx, conn) }}}
	for _, with := range []struct {
		setting string
		backend leader.Backend
		opts    leader.Options
	}{
		{"PostgreSQL", leader.Postgres(b.server.URL()), leader.Options{}},
		{"PostgreSQL, Terms", leader.Postgres(b.server.URL()), leader.Options{Terms: true}},
		{"SQLite", leader.SQLite(b.sqlite()), leader.Options{}},
		{"SQLite, Terms", leader.SQLite(b.sqlite()), leader.Options{Terms: true}},
	} {
		l, err := leader.New(with.backend, with.opts)
		if err != nil {
			return nil, err
		}
		b.stage.Cleanup(func() { _ = l.Resign(context.WithoutCancel(ctx)) }) // nothing runs any more
		all = append(all, cycler{ours, with.setting, func(ctx context.Context) error { return tryCycle(ctx, l) }})
	}
	return all, nil
}

// sqlite opens a new database.
func (b *lab) sqlite() *sql.DB {
	db, err := sql.Open("sqlite", filepath.Join(b.stage.TempDir(), "bench.db")) // which only parses its name
	if err != nil {
		b.stage.Error(err)
		return nil
	}
	b.stage.Cleanup(func() { _ = db.Close() }) // its folder is removed
	return db
}

var errHeld = errors.New("somebody else has the lock")

// rawCycle does what the library does, without looking.
func rawCycle(ctx context.Context, conn *pgx.Conn) error {
	var got bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", rawKey).Scan(&got); err != nil {
		return err
	}
	if !got {
		return errHeld
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", rawKey); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, "SELECT pg_notify($1, $2)", rawChannel, "")
	return err
}

func tryCycle(ctx context.Context, l *leader.Leader) error {
	ran, err := l.Try(ctx, "cycle", func(context.Context) error { return nil })
	if err == nil && !ran {
		return errHeld
	}
	return err
}

// rate is how many cycles a second has. The first, which may connect, does not count.
func (by cycler) rate(ctx context.Context, length time.Duration) (float64, error) {
	if err := by.cycle(ctx); err != nil {
		return 0, err
	}
	start, cycles := time.Now(), 0
	for time.Since(start) < length {
		if err := by.cycle(ctx); err != nil {
			return 0, err
		}
		cycles++
	}
	return float64(cycles) / time.Since(start).Seconds(), nil
}
