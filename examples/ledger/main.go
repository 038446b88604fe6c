// SPDX-License-Identifier: MIT

// Ledger shows what a term is for. Three processes want to append to one table. The program freezes them, kills them and
// cuts them off the network, and wakes one that another has replaced in the middle of its write. All write through
// Fence; at the end the table itself shows that no term ever wrote after a newer one:
//
//	go run ./examples/ledger              # on a scratch SQLite file
//	DATABASE_URL=postgres://user:password@host/database go run ./examples/ledger
//	go run ./examples/ledger -unfenced    # the same without Fence: the proof fails
//
// worker.go is what a service would do, table.go has the statements of the proof. On PostgreSQL all is in a schema of its
// own, which is dropped at the end. It takes about ten seconds, and exits with 1 if the proof fails.
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
			if err := scene(ctx, f.leader); err != nil {
				return err
			}
			f.look(ctx)
		}
	}
	f.chapter("the workers end")
	return nil
}

// freeze stops the process at the worst moment: Fence has looked at its clock, and has not yet asked the table.
func (f *fleet) freeze(ctx context.Context, w *worker) error {
	if !canFreeze {
		f.chapter("nobody is frozen: this system has no SIGSTOP")
		return nil
	}
	f.chapter("%s is frozen in the middle of a write (SIGSTOP)", w.name)
	if err := f.hold(ctx, w); err != nil {
		return err
	}
	if err := f.free(ctx, w); err != nil {
		return err
	}
	if err := f.until(ctx, "another one leads", func() bool { return f.leader != w }); err != nil {
		return err
	}
	f.look(ctx) // the new one writes
	f.chapter("%s wakes, and goes on with its write under term %d", w.name, w.term)
	w.outcome = ""
	if err := f.wake(w); err != nil {
		return err
	}
	return f.until(ctx, "its write has ended", func() bool { return w.outcome != "" })
}

// free makes the lock of a frozen process free.
func (f *fleet) free(ctx context.Context, w *worker) error {
	switch {
	case !f.table.postgres:
		f.look(ctx)
		f.say("nobody takes over: the kernel keeps the lock of a frozen process. So somebody deletes the lock file by hand,")
		f.say("which nobody should")
		return f.table.deleteLock()
	case f.table.version < 14_00_00:
		f.say("before PostgreSQL 14 there is no idle_session_timeout, so its connection is cut as well")
		w.proxy.cut()
		defer w.proxy.mend()
		return f.until(ctx, "another one leads", func() bool { return f.leader != w })
	}
	f.say("the server ends its silent session after %v", options.SessionTimeout)
	return nil
}

func (f *fleet) kill(ctx context.Context, w *worker) error {
	f.chapter("kill -9 %s, and start it again", w.name)
	if err := f.remove(w); err != nil {
		return err
	}
	if err := f.start(w.name); err != nil { //nolint:contextcheck // stop ends it
		return err
	}
	return f.until(ctx, "another one leads", func() bool { return f.leader != w })
}

// partition is of the worst kind: the server hears that the connection has ended, and frees the lock; the worker hears
// nothing, trusts its lease for a while, and can write still, on another connection.
func (f *fleet) partition(ctx context.Context, w *worker) error {
	if !f.table.postgres {
		return nil
	}
	f.chapter("%s is cut off from its lock, but not from the table", w.name)
	w.outcome = ""
	w.proxy.cut()
	defer w.proxy.mend()
	return f.until(ctx, "another one leads, and this one knows", func() bool { return f.leader != w && w.outcome != "" })
}
