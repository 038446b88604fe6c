// SPDX-License-Identifier: MIT

// Cron is a job that cron starts on each node at the same minute, and one of them runs:
//
//	go run ./examples/cron
//
// It exits with 0 if the job was run here, 3 if another node runs or has run it, and 1 if it failed or if that is not
// known. The database is the one of DATABASE_URL, or a SQLite file in the temporary directory. Build it for real use:
// `go run` itself exits with 1 whatever the program's status is.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/oxygenhub/leader"
	_ "modernc.org/sqlite"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second) // before cron's next minute
	slot := time.Now().Round(time.Minute).Unix()                             // the minute that cron meant: clocks differ a little
	ran, err := run(ctx, slot)
	cancel()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	case !ran:
		fmt.Println("another node runs, or has run, the job of this minute")
		os.Exit(3)
	}
	fmt.Println("the job of this minute was run here")
}

func run(ctx context.Context, slot int64) (ran bool, err error) {
	db, err := sql.Open("sqlite", filepath.Join(os.TempDir(), "leader-cron.db"))
	if err != nil {
		return false, err
	}
	backend := leader.SQLite(db)
	if url := os.Getenv("DATABASE_URL"); url != "" {
		backend = leader.Postgres(url)
		if db, err = sql.Open("pgx", url); err != nil {
			return false, err
		}
	}
	defer func() { _ = db.Close() }()
	lead, err := leader.New(backend, leader.Options{})
	if err != nil {
		return false, err
	}
	_, err = lead.Try(ctx, "reports.minutely", func(ctx context.Context) error {
		ran, err = once(ctx, db, slot)
		return err
	})
	return ran, err
}

// once does the job unless it is on record. The lock alone keeps two nodes from working at the same time: a node whose
// clock is late would find it free again.
func once(ctx context.Context, db *sql.DB, slot int64) (ran bool, err error) {
	if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS cron_done (slot bigint PRIMARY KEY)`); err != nil {
		return false, err
	}
	var done bool
	err = db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM cron_done WHERE slot = $1)`, slot).Scan(&done)
	if err != nil || done {
		return false, err
	}
	fmt.Println("working") // the job itself; if it fails here, another node may try
	_, err = db.ExecContext(ctx, `INSERT INTO cron_done (slot) VALUES ($1)`, slot)
	return err == nil, err
}
