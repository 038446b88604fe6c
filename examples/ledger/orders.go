// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// gate holds up one write of a worker, so that the program can freeze the process there.
type gate struct {
	schema string // PostgreSQL
	armed  atomic.Bool
	open   chan struct{}
	passed bool // of the writer
}

func (g *gate) hold() {
	if g.armed.CompareAndSwap(true, false) {
		tell(message{Kind: holds})
		<-g.open
		g.passed = true
	}
}

// TraceQueryStart is called by pgx when it is about to send a statement: the one by which Fence asks the table, or else
// the INSERT.
func (g *gate) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, g.schema) {
		g.hold()
	}
	return ctx
}

// TraceQueryEnd makes the gate a pgx.QueryTracer.
func (g *gate) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// obey returns when the program wants this worker to go.
func (g *gate) obey() {
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		switch orders.Text() {
		case holdOrder:
			g.armed.Store(true)
		case goOrder:
			g.open <- struct{}{}
		}
	}
	close(g.open)
}

// tell writes one line to the program: one write, so that lines do not mix.
func tell(m message) {
	line, err := json.Marshal(m)
	if err == nil {
		_, err = os.Stdout.Write(append(line, '\n'))
	}
	if err != nil {
		os.Exit(1) // the program is gone
	}
}

// hold stops w in the middle of its next write.
func (f *fleet) hold(ctx context.Context, w *worker) error {
	w.holding = false
	if _, err := fmt.Fprintln(w.stdin, holdOrder); err != nil {
		return err
	}
	if err := f.until(ctx, "a write has begun", func() bool { return w.holding }); err != nil {
		return err
	}
	return signalStop(w.cmd.Process)
}

func (f *fleet) wake(w *worker) error {
	_, err := fmt.Fprintln(w.stdin, goOrder)
	return errors.Join(err, signalContinue(w.cmd.Process))
}

func (f *fleet) remove(w *worker) error {
	w.killed = true
	return w.cmd.Process.Kill()
}

// stop ends all workers and waits for them: their stdin ends, and a kill for who does not heed that.
func (f *fleet) stop() error {
	f.stopping = true
	for w := range f.alive {
		_ = w.stdin.Close()               // it may be closed already
		_ = signalContinue(w.cmd.Process) // it may be frozen, or have ended
	}
	ctx := context.Background() // also after Ctrl-C
	over := func() bool { return len(f.alive) == 0 }
	err := f.until(ctx, "the workers have ended", over)
	if err == nil {
		return f.err
	}
	for w := range f.alive {
		_ = w.cmd.Process.Kill() // it may have ended
	}
	return errors.Join(err, f.until(ctx, "the workers are dead", over), f.err)
}
