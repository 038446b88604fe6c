// SPDX-License-Identifier: MIT

// Cluster is a small key-value service: three processes, of which one leads, has the data in memory and takes the writes.
// The others stand by, answer reads from the table, and refuse, redirect or forward writes. The program starts the three,
// replaces them under a client that writes steadily, kills the leader, and has one fail to recover:
//
//	go run ./examples/cluster             # on a scratch SQLite file
//	DATABASE_URL=postgres://user:password@host/database go run ./examples/cluster
//
// Read service.go: it is what a service would copy. engine.go is the fenced write and the memory, node.go the start and the
// end of a process. The rest plays with them: scenes.go says what is done, client.go and writer.go are the client, and
// proof.go compares the table with what the client was told and with who led. On PostgreSQL all is in a schema of its own, which is dropped
// at the end. It takes some 20 seconds, and exits with 1 if a write has failed or the proof does.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/oxygenhub/leader/leaderhttp"
)

var names = []string{"ada", "bob", "cyd"} //nolint:gochecknoglobals // constant

func main() {
	var err error
	if len(os.Args) == 3 && os.Args[1] == nodeArg {
		err = serve(os.Args[2])
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		err = play(ctx)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func play(ctx context.Context) error {
	db, err := createDatabase(ctx)
	if err != nil {
		return err
	}
	f := newFleet(db)
	acks, err := f.story(ctx)
	err = errors.Join(err, f.stop()) //nolint:contextcheck // also after Ctrl-C
	if err == nil {
		err = f.prove(ctx, acks)
	}
	return errors.Join(err, db.drop()) //nolint:contextcheck // also after Ctrl-C
}

func (f *fleet) story(ctx context.Context) ([]ack, error) {
	if err := f.begin(ctx); err != nil {
		return nil, err
	}
	w := startWriter(f.book) //nolint:contextcheck // stop ends it
	for _, scene := range []func(context.Context) error{f.refuse, f.redirect, f.forward, f.crash, f.breaks} {
		if err := scene(ctx); err != nil {
			return w.stop(), err
		}
		if err := f.look(ctx); err != nil {
			return w.stop(), err
		}
		text, err := w.tell()
		f.say("%s", text)
		if err != nil {
			return w.stop(), err
		}
	}
	acks := w.stop()
	_, err := w.tell()
	return acks, err
}

func (f *fleet) refuse(ctx context.Context) error {
	f.chapter("a standby refuses writes, and says who leads")
	return f.show(ctx)
}

func (f *fleet) redirect(ctx context.Context) error {
	f.chapter("a rolling restart of all, to a version whose standbys redirect writes")
	return errors.Join(f.rollout(ctx, leaderhttp.Redirect), f.show(ctx))
}

func (f *fleet) forward(ctx context.Context) error {
	f.chapter("a rolling restart of all, to a version whose standbys forward writes")
	return errors.Join(f.rollout(ctx, leaderhttp.Forward), f.show(ctx))
}
