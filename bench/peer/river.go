// SPDX-License-Identifier: MIT

//go:build unix

package peer

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// rivers is the elector that decides which client of River does the upkeep of the queue. It is internal to a client, and none of
// its times can be set.
func rivers() Peer {
	return Peer{
		Name: River, Setting: Defaults, Store: PostgreSQL, Prompt: true, Period: 6 * time.Second, Expiry: 21 * time.Second,
		Note: "Its elector is internal to a client, has no settings and tells nobody outside: what it does is taken from its own log " +
			"lines. What a new leader does, as to enqueue periodic jobs, begins up to a second later. One whose lease is over resigns, for " +
			"as long as that takes, before it has its upkeep stop, which needs the same database.",
		open: openRiver,
	}
}

// PrepareRiver makes River's tables.
func PrepareRiver(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

type riverShare struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	log    *electorLog
}

// idle is the job of the queue that a client must have: nobody ever inserts one.
type idle struct{}

func (idle) Kind() string { return "idle" }

func openRiver(ctx context.Context, j Job) (share, error) {
	pool, err := pgxpool.New(ctx, j.Addr)
	if err != nil {
		return nil, err
	}
	s := &riverShare{pool: pool, log: &electorLog{}}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[idle]) error { return nil }))
	s.client, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
		ID: j.Node, Logger: slog.New(s.log), Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
	})
	return s, err
}

// contend starts the client, which does all by itself, and stops it when ctx has ended.
func (s *riverShare) contend(ctx context.Context, t *tape) error {
	s.log.begin(ctx, t)
	if err := s.client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	s.log.end()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return s.client.Stop(last)
}

func (s *riverShare) close() { s.pool.Close() }
