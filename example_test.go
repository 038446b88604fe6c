package leader_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/oxygenhub/leader"
	_ "modernc.org/sqlite"
)

// sendInvoices is a task that comes to an end. One that should go on returns when ctx ends.
func sendInvoices(context.Context) error {
	fmt.Println("this process leads, and sends the invoices")
	return nil
}

// A program that shares a SQLite file with its other copies: one of them sends the invoices.
func Example() {
	dir, err := os.MkdirTemp("", "leader-example-")
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db"))
	if err != nil {
		log.Fatal(err)
	}

	lead, err := leader.New(leader.SQLite(db), leader.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	err = lead.Run(ctx, "invoices.nightly", sendInvoices)
	fmt.Println("the lock is free again, error:", err)

	// In this order: Resign leaves nothing behind that uses db.
	if err := lead.Resign(ctx); err != nil {
		log.Fatal(err)
	}
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		log.Fatal(err)
	}
	// Output:
	// this process leads, and sends the invoices
	// the lock is free again, error: <nil>
}
