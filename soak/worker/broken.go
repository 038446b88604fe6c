// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oxygenhub/leader/soak/internal/crew"
)

// early returns when the task is told or has done its part, and goes on working behind the back of the library.
func (s *shift) early(ctx context.Context) error {
	part, cancel := context.WithTimeout(ctx, s.between(100*time.Millisecond, 500*time.Millisecond))
	defer cancel()
	s.write(part, part)
	s.work.Go(func() { // for half a second
		defer s.end()
		pause(context.Background(), 500*time.Millisecond)
	})
	return nil
}

// believe is the context that a task heeds: that of the library, or in the control Lease one that ends too late.
func (w *worker) believe(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.job.Broken != crew.Lease {
		return ctx, func() {}
	}
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		w.work.Go(func() { // for as long as a session may be silent
			pause(late, w.job.Timing.SessionTimeout)
			cancel(context.Cause(ctx))
		})
	})
	return late, func() {
		stop()
		cancel(nil)
	}
}

// leak is what the control Leak loses with each term.
type leak struct {
	mu    sync.Mutex
	files []*os.File
}

func (l *leak) term(job crew.Job) {
	if job.Broken != crew.Leak {
		return
	}
	go func() { select {} }()
	file, err := os.Open(os.DevNull)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files = append(l.files, file)
}

// harm begins what the controls Chatty and Stale do beside the tasks, until ctx ends.
func (w *worker) harm(ctx context.Context) {
	switch w.job.Broken {
	case crew.Chatty:
		w.harmful(ctx, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SELECT 1")
			pause(ctx, time.Millisecond)
			return err
		})
	case crew.Stale: // whoever is first holds it, and is idle in a transaction
		w.harmful(ctx, func(conn *pgx.Conn) error {
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(1)"); err != nil {
					return err
				}
				pause(ctx, time.Minute)
				return nil
			})
		})
	}
}

// harmful does something over and over on a session that looks like one of the library.
func (w *worker) harmful(ctx context.Context, do func(*pgx.Conn) error) {
	w.work.Go(func() { // until ctx ends
		for ctx.Err() == nil {
			config, err := pgx.ParseConfig(w.job.Lock)
			if err != nil {
				w.broken("%v", err)
				return
			}
			config.RuntimeParams["application_name"] = "leader/" + w.job.Node
			conn, err := pgx.ConnectConfig(ctx, config)
			for err == nil && ctx.Err() == nil {
				err = do(conn)
			}
			if conn != nil {
				_ = conn.Close(ctx) // it may be broken
			}
			pause(ctx, 50*time.Millisecond)
		}
	})
}
