// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// gate holds up one write of a worker, so that the program can freeze the process there.
type gate struct {
	at     string // PostgreSQL: the table whose name is in the statement to hold up
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

// TraceQueryStart is called by pgx when it is about to send a statement: the one by which Fence asks the table, or without
// Fence the INSERT. Between the two, the transaction has the row of the name locked, and nobody could take over.
func (g *gate) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, g.at) {
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
