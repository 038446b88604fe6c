// SPDX-License-Identifier: MIT

// Service is a long-running program with three singleton tasks. Start it in two terminals, end the one that leads with
// Ctrl-C, and see the other one take over:
//
//	go run ./examples/service
//
// The copies share a SQLite file in the temporary directory.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/oxygenhub/leader"
	_ "modernc.org/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if err := serve(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// serve runs until ctx ends or a task fails.
func serve(ctx context.Context) error {
	db, err := sql.Open("sqlite", filepath.Join(os.TempDir(), "leader-service.db"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	logger := slog.New(slog.NewTextHandler(os.Stdout, nil))
	lead, err := leader.New(leader.SQLite(db), leader.Options{Logger: logger})
	if err != nil {
		return err
	}

	// What errgroup.WithContext does: the first task that ends by itself, with an error or not, ends the service.
	work, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var wg sync.WaitGroup
	for name, every := range map[string]time.Duration{
		"invoices.nightly": 3 * time.Second, "mail.outbox": time.Second, "cache.warm": 2 * time.Second,
	} {
		wg.Go(func() {
			err := lead.Run(work, name, func(ctx context.Context) error { return repeat(ctx, logger, name, every) })
			fail(errors.Join(fmt.Errorf("%s has ended", name), err)) // the first one counts
		})
	}
	<-work.Done()
	// The Runs return by themselves now. Resign waits for them, but not for ever, and closes the session.
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := lead.Resign(drain); err != nil {
		return errors.Join(err, context.Cause(work)) // a task does not stop: the end of the process frees its lock
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil // told to stop
	}
	return context.Cause(work)
}
