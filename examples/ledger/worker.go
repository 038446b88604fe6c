// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/oxygenhub/leader"
)

const (
	workerArg   = "worker" // makes the program a worker: worker <name> <table> <address of the proxy> <unfenced>
	unfencedArg = "-unfenced"
	task        = "ledger"

	// Orders: lines on stdin. Its end, as when the program dies, is the order to leave.
	holdOrder = "hold" // the next write, in the middle
	goOrder   = "go on"
)

// Kinds of messages to the program.
const (
	leads   = "leads"
	holds   = "holds"   // in the middle of a write
	wrote   = "wrote"   // what was held
	refused = "refused" // by Fence
	stops   = "stops"   // the task
	trouble = "trouble"
	exits   = "exits" // not sent: the process has ended
)

// message is a line on the standard output of a worker.
type message struct {
	Kind    string      `json:"kind"`
	Term    leader.Term `json:"term,omitempty"`    // of the worker
	Current leader.Term `json:"current,omitempty"` // of the table
	Text    string      `json:"text,omitempty"`

	worker *worker
}

// options are short, so that the program is.
var options = leader.Options{ //nolint:gochecknoglobals // constant
	Terms: true, Retry: 200 * time.Millisecond, Check: 300 * time.Millisecond, Lease: time.Second, SessionTimeout: 2 * time.Second,
}

// work is a worker process: it leads when it can, until it is told to leave.
func work(args []string) error {
	if len(args) != 4 {
		return errors.New("a worker is started by the program itself")
	}
	// Ctrl-C goes to all processes, and the program decides what to do.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGHUP)
	unfenced := args[3] == "true"
	g := &gate{at: "leader_terms", open: make(chan struct{})}
	if unfenced {
		g.at = "entries"
	}
	t, backend, err := openTable(args[1], args[2], g)
	if err != nil {
		return err
	}
	defer func() { _ = t.db.Close() }()
	opts := options
	opts.Node = args[0]
	if t.postgres {
		opts.Namespace = t.name // and leader_terms is in the schema of that name
	}
	lead, err := leader.New(backend, opts)
	if err != nil {
		return err
	}
	events := lead.Watch(context.Background())
	go func() { // ends with Resign
		for e := range events {
			if e.Err != nil {
				tell(message{Kind: trouble, Text: fmt.Sprintf("%s: %v", e.Kind, e.Err)})
			}
		}
	}()
	run := make(chan error, 1)
	go func() { // ends with Resign
		run <- lead.Run(context.Background(), task, func(ctx context.Context) error {
			return appendRows(ctx, t, args[0], unfenced)
		})
	}()
	g.obey()
	stop, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = lead.Resign(stop)
	if ended := <-run; !errors.Is(ended, leader.ErrResigned) {
		err = errors.Join(err, ended)
	}
	return err
}

// appendRows is the task. It is careless on purpose: once it has begun to write a row it does not heed the end of ctx,
// so that nothing but Fence stands between a former leader and the table.
func appendRows(ctx context.Context, t *table, name string, unfenced bool) error {
	term, _ := leader.TermOf(ctx)
	tell(message{Kind: leads, Term: term})
	for ctx.Err() == nil {
		held, err := t.append(context.WithoutCancel(ctx), name, term, unfenced)
		switch {
		case errors.Is(err, leader.ErrFenced):
			m := message{Kind: refused, Term: term, Text: err.Error()}
			if fenced, ok := errors.AsType[*leader.FencedError](err); ok {
				m.Current = fenced.Current
			}
			tell(m)
			<-ctx.Done() // the Leader finds out as well
		case err != nil:
			return err
		case held:
			tell(message{Kind: wrote, Term: term})
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	tell(message{Kind: stops, Term: term})
	return nil
}
