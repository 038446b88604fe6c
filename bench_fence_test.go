// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// fenceFunc is Fence or FenceShared, or nothing.
type fenceFunc func(ctx context.Context, tx pgx.Tx) error

func noFence(context.Context, pgx.Tx) error { return nil }

// BenchmarkPostgresFence is what a fence costs in a transaction that inserts one row and is durable, as the median ratio
// to the same transaction without one (x-bare), for parallel writers of one name. Each round times both, in turns, so
// that a machine that is slow for a while is slow for both. The rows "bare" compare it with itself: they are the noise.
func BenchmarkPostgresFence(b *testing.B) {
	server := pgtest.Start(b, "fsync=on", "max_connections=40")
	pgtest.Exec(b, server.URL(), "CREATE TABLE ledger (term bigint NOT NULL, body text NOT NULL)")
	ctx := benchTerm(b, server.URL())
	for _, writers := range []int{1, 4, 16} {
		conns := make([]*pgx.Conn, writers)
		for i := range conns {
			conns[i] = pgtest.Connect(b, server.URL())
		}
		for _, way := range []struct {
			name  string
			fence fenceFunc
		}{{"bare", noFence}, {"fence", leader.Fence}, {"shared", leader.FenceShared}} {
			b.Run(fmt.Sprintf("%s/writers=%d", way.name, writers), func(b *testing.B) {
				benchFence(ctx, b, conns, way.fence)
			})
		}
	}
}

// benchTerm leads a name until the benchmark ends and returns its task's context.
func benchTerm(b *testing.B, url string) context.Context {
	b.Helper()
	l, err := leader.New(leader.Postgres(url), leader.Options{Terms: true})
	require.NoError(b, err)
	b.Cleanup(func() { assert.NoError(b, l.Resign(context.Background())) })
	started := make(chan context.Context)
	go func() { // ends with Resign
		_ = l.Run(context.Background(), "ledger", func(ctx context.Context) error {
			started <- ctx
			<-ctx.Done()
			return nil
		})
	}()
	select {
	case ctx := <-started:
		return ctx
	case <-time.After(time.Minute):
		b.Fatal("it does not lead")
		return nil
	}
}

func benchFence(ctx context.Context, b *testing.B, conns []*pgx.Conn, fence fenceFunc) {
	b.Helper()
	batch := max(4, 32/len(conns)) // transactions of a writer in one measurement
	measure := func(fence fenceFunc) time.Duration {
		start := time.Now()
		var wg sync.WaitGroup
		errs := make([]error, len(conns))
		for i, conn := range conns {
			wg.Go(func() { errs[i] = insertRows(ctx, conn, fence, batch) })
		}
		wg.Wait()
		took := time.Since(start)
		require.NoError(b, errors.Join(errs...))
		return took
	}
	measure(noFence) // prepares the statements
	measure(fence)
	var bare, fenced, ratios []float64
	for b.Loop() {
		var with, without time.Duration
		if len(ratios)%2 == 0 {
			without, with = measure(noFence), measure(fence)
		} else {
			with, without = measure(fence), measure(noFence)
		}
		per := float64(batch*len(conns)) * float64(time.Microsecond)
		bare, fenced = append(bare, float64(without)/per), append(fenced, float64(with)/per)
		ratios = append(ratios, float64(with)/float64(without))
	}
	b.ReportMetric(0, "ns/op") // of no meaning: an iteration is a round of both
	b.ReportMetric(middle(bare), "bare-us/tx")
	b.ReportMetric(middle(fenced), "us/tx")
	b.ReportMetric(middle(ratios), "x-bare")
}

// insertRows runs n transactions of one row.
func insertRows(ctx context.Context, conn *pgx.Conn, fence fenceFunc, n int) error {
	for range n {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := fence(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "INSERT INTO ledger VALUES ($1, $2)", 1, "one row of a ledger")
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// middle is the median.
func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
