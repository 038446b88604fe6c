// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oxygenhub/leader"
)

// newTermsLeader returns a Leader that keeps terms, its database, and what removes both.
func newTermsLeader() (*leader.Leader, *sql.DB, func()) {
	dir, err := os.MkdirTemp("", "leader-example-")
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db"))
	if err != nil {
		log.Fatal(err)
	}
	lead, err := leader.New(leader.SQLite(db), leader.Options{Node: "web-1", Terms: true})
	if err != nil {
		log.Fatal(err)
	}
	return lead, db, func() {
		_ = lead.Resign(context.Background())
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

// A task whose writes go to a PostgreSQL database: no transaction that was fenced commits after another process has begun to lead.
func ExampleFence() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	lead, err := leader.New(leader.PostgresPool(pool), leader.Options{Namespace: "billing", Terms: true})
	if err != nil {
		log.Print(err)
		return
	}
	err = lead.Run(ctx, "invoices.nightly", func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { // rolls back after an error
			if err := leader.Fence(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE invoices SET sent = true WHERE NOT sent")
			return err
		})
	})
	log.Print(err)
}

// A write that comes late, from a task that was frozen while another process took over, is refused.
func ExampleFenceSQL() {
	lead, db, remove := newTermsLeader()
	defer remove()
	ctx := context.Background()
	if _, err := db.ExecContext(ctx, "CREATE TABLE sent (invoice INTEGER)"); err != nil {
		log.Fatal(err)
	}
	send := func(ctx context.Context) error {
		tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := leader.FenceSQL(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO sent VALUES (1)"); err != nil {
			return err
		}
		return tx.Commit()
	}
	var later context.Context
	err := lead.Run(ctx, "invoices.nightly", func(ctx context.Context) error {
		later = context.WithoutCancel(ctx) //nolint:fatcontext // kept for the sake of the example
		return send(ctx)
	})
	fmt.Println("in time:", err)
	fmt.Println("too late:", errors.Is(send(later), leader.ErrFenced))
	// Output:
	// in time: <nil>
	// too late: true
}

// The number of a leadership, for a system that can refuse lower ones.
func ExampleTermOf() {
	lead, _, remove := newTermsLeader()
	defer remove()
	ctx := context.Background()
	var terms []leader.Term
	task := func(ctx context.Context) error {
		term, ok := leader.TermOf(ctx)
		fmt.Println("has a term:", ok)
		terms = append(terms, term)
		return nil
	}
	for range 2 {
		if err := lead.Run(ctx, "invoices.nightly", task); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("it rises:", terms[0] < terms[1])
	// Output:
	// has a term: true
	// has a term: true
	// it rises: true
}

// A process that cannot do the work leaves it to others for a while.
func ExampleStepDown() {
	lead := newLeader()
	ctx := context.Background()
	render := func(context.Context) error {
		return leader.StepDown(errors.New("no space left"), time.Minute)
	}
	ran, err := lead.Try(ctx, "thumbnails", render)
	fmt.Println(ran, err)
	ran, err = lead.Try(ctx, "thumbnails", render)
	fmt.Println(ran, err)
	// Output:
	// true leader: stepped down: no space left
	// false <nil>
}

// A step that takes up to a second is begun only while it is sure that nobody else can lead before its end.
func ExampleDeadline() {
	lead := newLeader()
	err := lead.Run(context.Background(), "invoices.nightly", func(ctx context.Context) error {
		end, ok := leader.Deadline(ctx)
		switch {
		case !ok:
			fmt.Println("a lock on SQLite has no end: the kernel keeps it until the process ends")
		case time.Until(end) < time.Second:
			return errors.New("a proof of the lock is overdue: not now")
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// a lock on SQLite has no end: the kernel keeps it until the process ends
	// <nil>
}

// Work that comes from outside of the task, as requests do, is done under the leadership, or not at all.
func ExampleLeader_Join() {
	lead := newLeader()
	ctx := context.Background()
	accept := func(ctx context.Context, order int) {
		work, leads := lead.Join(ctx, "orders")
		if !leads {
			fmt.Println("order", order, "is for another process")
			return
		}
		fmt.Println("order", order, "accepted:", leader.Confirm(&work) == nil)
	}
	err := lead.Run(ctx, "orders", func(ctx context.Context) error {
		accept(ctx, 1)
		return nil
	})
	fmt.Println(err)
	accept(ctx, 2)
	// Output:
	// order 1 accepted: true
	// <nil>
	// order 2 is for another process
}

// Who leads, and each change of it, in a process that need not contend itself.
func ExampleLeader_Observe() {
	lead := newLeader()
	ctx, cancel := context.WithCancel(context.Background())
	observed := make(chan error)
	err := lead.Run(context.Background(), "cache.warm", func(context.Context) error {
		go func() {
			observed <- lead.Observe(ctx, func(v leader.View) {
				for _, h := range v.Holders {
					fmt.Println(h.Name, h.Held, h.Node)
				}
				cancel()
			}, "cache.warm")
		}()
		fmt.Println(<-observed)
		return nil
	})
	fmt.Println(err)
	// Output:
	// cache.warm true web-1
	// context canceled
	// <nil>
}
