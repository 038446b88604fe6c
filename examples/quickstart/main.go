// SPDX-License-Identifier: MIT

// Quickstart shows leader at work: three processes share four tasks, one of them is killed, another one resigns, and
// the tasks go on elsewhere. It needs no server and takes ten seconds:
//
//	go run ./examples/quickstart
//
// The locks are on a SQLite file in a scratch directory, where a standby asks every 200 ms; or on the PostgreSQL that
// DATABASE_URL leads to, where it asks every second and is told of a clean handover. worker.go is what a service would
// do. recorder.go checks, from what the tasks themselves have written, that no task ever ran twice at once.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	settleTime   = 8 * time.Second // for all tasks to run; a takeover needs a fraction of it
	lookTime     = 2500 * time.Millisecond
	databaseFile = "app.db"
)

func main() {
	var err error
	if len(os.Args) > 1 && os.Args[1] == workerArg {
		err = work(os.Args[2:])
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		err = play(ctx)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// play is the whole story, on a scratch directory.
func play(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "leader-quickstart-")
	if err != nil {
		return err
	}
	f := &fleet{dir: dir, screen: newScreen(os.Stdout), messages: make(chan message)}
	err = errors.Join(f.story(ctx), f.stop()) //nolint:contextcheck // also after Ctrl-C
	f.screen.finish()
	if err == nil {
		if err = verdict(f); err != nil {
			return fmt.Errorf("%w\nthe records are kept in %s", err, dir)
		}
	}
	return errors.Join(err, os.RemoveAll(dir))
}

func (f *fleet) story(ctx context.Context) error {
	place := "a SQLite file"
	if os.Getenv("DATABASE_URL") != "" {
		place = "PostgreSQL"
	}
	f.screen.chapter("%d workers want the same %d tasks, with locks on %s", len(workers), len(tasks), place)
	for i := range workers {
		if err := f.start(i); err != nil { //nolint:contextcheck // stop ends it
			return err
		}
	}
	if err := f.settle(ctx, nil); err != nil {
		return err
	}
	for _, how := range []string{killed, resigned} {
		w := f.busiest()
		if how == killed {
			f.screen.chapter("kill -9 %s, which runs %d of the tasks", w.name, w.running())
		} else {
			f.screen.chapter("%s, which runs %d, resigns as in a deploy", w.name, w.running())
		}
		if err := f.remove(w, how); err != nil {
			return err
		}
		if err := f.settle(ctx, w); err != nil {
			return err
		}
	}
	f.screen.chapter("the last worker ends as well")
	return nil
}

// settle waits until each task runs, and leaves the time to see it.
func (f *fleet) settle(ctx context.Context, gone *worker) error {
	err := f.until(ctx, settleTime, f.settled)
	if errors.Is(err, errLate) {
		return fmt.Errorf("some task does not run after %v; %s", settleTime, cmp.Or(f.trouble, "no worker says why"))
	}
	if err != nil {
		return err
	}
	if gone != nil {
		f.screen.say("all tasks of %s run elsewhere after %s", gone.name, ms(f.newest.Sub(gone.left)))
	}
	if err := f.until(ctx, lookTime, func() bool { return false }); !errors.Is(err, errLate) {
		return err
	}
	return nil
}

// verdict prints what the recorder says.
func verdict(f *fleet) error {
	runs, err := readRuns(f.dir)
	if err != nil {
		return err
	}
	var departures []departure
	for _, w := range f.workers {
		if w.how != "" {
			departures = append(departures, departure{w.name, w.how, w.left})
		}
	}
	faults := closeRuns(runs, departures)
	faults = append(faults, overlaps(runs)...)
	moves, missed := takeovers(runs, departures)
	fmt.Println()
	printMoves(os.Stdout, moves)
	fmt.Println()
	if faults = append(faults, missed...); len(faults) > 0 {
		return errors.Join(faults...)
	}
	fmt.Printf("no overlap: %d runs checked\n", len(runs))
	return nil
}
