// SPDX-License-Identifier: MIT

// Metrics serves the metrics of a Leader for Prometheus. Start it in two terminals, look who leads, end that one with
// Ctrl-C, and look again:
//
//	go run .
//	go run . -addr localhost:9465
//	curl -s localhost:9464/metrics localhost:9465/metrics | grep ^leader_leading
//
// The copies share a SQLite file in the temporary directory. prometheus.yml has Prometheus read them both, with the
// alerts of leaderotel.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/oxygenhub/leader"
	_ "modernc.org/sqlite"
)

func main() {
	addr := flag.String("addr", "localhost:9464", "where to serve the metrics")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if err := serve(ctx, *addr); err != nil {
		fmt.Fprintln(os.Stderr, "metrics:", err)
		os.Exit(1)
	}
}

// serve runs until ctx ends.
func serve(ctx context.Context, addr string) error {
	db, err := sql.Open("sqlite", filepath.Join(os.TempDir(), "leader-metrics.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	logger := slog.New(slog.NewTextHandler(os.Stdout, nil))
	lead, err := leader.New(leader.SQLite(db), leader.Options{Logger: logger, Terms: true})
	if err != nil {
		return err
	}
	telemetry, metrics, err := instrument(lead) //nolint:contextcheck // Stop ends what it starts
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return errors.Join(err, telemetry.Stop())
	}
	fmt.Printf("metrics at http://%s/metrics\n", listener.Addr())
	server := &http.Server{Handler: metrics, ReadHeaderTimeout: time.Second}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	running.Go(func() { _ = lead.Run(ctx, outbox, telemetry.Task(outbox, deliver)) })
	running.Go(func() { reports(ctx, lead, telemetry) })
	<-ctx.Done()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err = errors.Join(lead.Resign(drain), server.Shutdown(drain), telemetry.Stop())
	running.Wait()
	return err
}
