// SPDX-License-Identifier: MIT

// Ledger shows what a term is for. Three processes want to append to one table. The program freezes them, kills them
// and cuts them off from their locks, and wakes one that was replaced in the middle of its write. All write through
// Fence; at the end the table itself shows that no term ever wrote after a newer one:
//
//	go run ./examples/ledger              # on a scratch SQLite file
//	DATABASE_URL=postgres://user:password@host/database go run ./examples/ledger
//	go run ./examples/ledger -unfenced    # the same without Fence: the proof fails
//
// worker.go is what a service would do, scenes.go is what is done to it, and proof.go has the fenced write and the
// statements of the proof. On PostgreSQL all is in a schema of its own, which is dropped at the end. It takes about ten
// seconds, and exits with 1 if the proof fails. Nobody is cut off on SQLite, nor frozen on Windows.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	var err error
	if len(os.Args) > 1 && os.Args[1] == workerArg {
		err = work(os.Args[2:])
	} else if args := os.Args[1:]; len(args) > 1 || len(args) == 1 && args[0] != unfencedArg {
		err = fmt.Errorf("usage: ledger [%s]", unfencedArg) // a slip would show the wrong thing
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		err = play(ctx, slices.Contains(os.Args[1:], unfencedArg))
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
}

func play(ctx context.Context, unfenced bool) error {
	t, err := createTable(ctx)
	if err != nil {
		return err
	}
	f := newFleet(t, unfenced)
	err = errors.Join(f.story(ctx), f.stop()) //nolint:contextcheck // also after Ctrl-C
	if err == nil {
		err = t.prove(ctx)
	}
	return errors.Join(err, t.drop()) //nolint:contextcheck // also after Ctrl-C
}

func (f *fleet) story(ctx context.Context) error {
	f.chapter("three workers append to one table on %s%s", f.table.place(), f.how())
	for _, name := range []string{"ada", "bob", "cyd"} {
		if err := f.start(name); err != nil { //nolint:contextcheck // stop ends it
			return err
		}
	}
	if err := f.until(ctx, "somebody leads", func() bool { return f.leader != nil }); err != nil {
		return err
	}
	for range 2 {
		for _, scene := range []func(context.Context, *worker) error{f.freeze, f.kill, f.partition} {
			f.look(ctx)
			if err := scene(ctx, f.leader); err != nil {
				return err
			}
		}
	}
	f.look(ctx)
	f.chapter("the workers end")
	return nil
}
