package leader_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oxygenhub/leader"
)

// newLeader returns a Leader for the examples that need no file: its locks exclude only what shares the database handle.
func newLeader() *leader.Leader {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	lead, err := leader.New(leader.SQLite(db), leader.Options{Node: "web-1"})
	if err != nil {
		log.Fatal(err)
	}
	return lead
}

// A task that runs until it is told to stop, and why it was.
func ExampleLeader_Run() {
	lead := newLeader()
	ctx, cancel := context.WithCancel(context.Background())
	err := lead.Run(ctx, "mail.outbox", func(ctx context.Context) error {
		fmt.Println("leading:", lead.IsLeading("mail.outbox"))
		cancel() // as a signal does
		<-ctx.Done()
		fmt.Println("told to stop:", context.Cause(ctx))
		return nil
	})
	fmt.Println("Run:", err)
	// Output:
	// leading: true
	// told to stop: context canceled
	// Run: context canceled
}

// A job that every process starts at the same time, and one of them runs.
func ExampleLeader_Try() {
	lead := newLeader()
	ctx := context.Background()
	job := func(ctx context.Context) error {
		ran, err := lead.Try(context.Background(), "reports.hourly", func(context.Context) error { return nil })
		fmt.Println("meanwhile, another one:", ran, err)
		return nil
	}
	ran, err := lead.Try(ctx, "reports.hourly", job)
	fmt.Println("this one:", ran, err)
	// Output:
	// meanwhile, another one: false <nil>
	// this one: true <nil>
}

// Shutting down: tasks are told to stop and waited for, and their locks are free at once.
func ExampleLeader_Resign() {
	lead := newLeader()
	ctx := context.Background()
	leading, returned := make(chan struct{}), make(chan error)
	go func() {
		returned <- lead.Run(ctx, "mail.outbox", func(ctx context.Context) error {
			close(leading)
			<-ctx.Done()
			fmt.Println("task:", context.Cause(ctx))
			return nil
		})
	}()
	<-leading
	fmt.Println("Resign:", lead.Resign(ctx)) // bound it by context.WithTimeout in a service
	err := <-returned
	fmt.Println("Run:", errors.Is(err, leader.ErrResigned))
	// Output:
	// task: leader: resigned
	// Resign: <nil>
	// Run: true
}

// Transitions, for metrics or a log of one's own.
func ExampleLeader_Watch() {
	lead := newLeader()
	ctx := context.Background()
	events := lead.Watch(ctx)
	if err := lead.Run(ctx, "cache.warm", func(context.Context) error { return nil }); err != nil {
		log.Fatal(err)
	}
	if err := lead.Resign(ctx); err != nil {
		log.Fatal(err)
	}
	for e := range events { // Resign has closed it
		fmt.Printf("%d %s %q\n", e.Seq, e.Kind, e.Name)
	}
	// Output:
	// 1 connected ""
	// 2 gained "cache.warm"
	// 3 released "cache.warm"
	// 4 disconnected ""
}

// What a health page shows.
func ExampleLeader_Status() {
	lead := newLeader()
	err := lead.Run(context.Background(), "cache.warm", func(context.Context) error {
		s := lead.Status()
		fmt.Println(s.Node, "connected:", s.Connected)
		for _, task := range s.Tasks {
			fmt.Println(task.Name, task.State)
		}
		return nil
	})
	fmt.Println(err, len(lead.Status().Tasks))
	// Output:
	// web-1 connected: true
	// cache.warm leading
	// <nil> 0
}

// Who leads, also when it is another process.
func ExampleLeader_Holder() {
	lead := newLeader()
	ctx := context.Background()
	err := lead.Run(ctx, "cache.warm", func(ctx context.Context) error {
		holder, err := lead.Holder(ctx, "cache.warm")
		fmt.Println(holder.Held, holder.Node, err)
		return nil
	})
	fmt.Println(err)
	holder, err := lead.Holder(ctx, "cache.warm")
	fmt.Println(holder.Held, err)
	// Output:
	// true web-1 <nil>
	// <nil>
	// false <nil>
}

// Before a step that should not be taken twice, a task asks whether it still leads.
func ExampleConfirm() {
	lead := newLeader()
	var later context.Context
	err := lead.Run(context.Background(), "invoices.nightly", func(ctx context.Context) error {
		later = ctx //nolint:fatcontext // kept for the sake of the example
		if err := leader.Confirm(ctx); err != nil {
			return err // the lock is lost: leave the rest to who leads now
		}
		fmt.Println("sent")
		return nil
	})
	fmt.Println(err)
	fmt.Println("afterwards:", errors.Is(leader.Confirm(later), leader.ErrLost))
	// Output:
	// sent
	// <nil>
	// afterwards: true
}

// The lock of a name, to look for in pg_locks or to take in another language. The namespace is current_schema() unless
// Options.Namespace is set.
func ExampleKey() {
	fmt.Println(leader.Key("public", "invoices.nightly"))
	// Output: -3145500191572354979
}

// A service that has a pool hands over its settings. The Leader opens one connection of its own.
func ExamplePostgresPool() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	lead, err := leader.New(leader.PostgresPool(pool), leader.Options{})
	if err != nil {
		log.Print(err)
		return
	}
	err = lead.Run(ctx, "invoices.nightly", sendInvoices)
	log.Print(err)
}
