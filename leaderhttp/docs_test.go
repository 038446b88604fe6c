// SPDX-License-Identifier: MIT

package leaderhttp_test

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os/signal"
	"sync"
	"syscall"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderhttp"
)

// The code of docs/gates.md and docs/probes.md, which TestDocsSnippetsAreCode of the root package looks for.

func _(ctx context.Context, url string, orders http.Handler, auth func(http.Handler) http.Handler) {
	lead, err := leader.New(leader.Postgres(url), leader.Options{
		Namespace: "shop", Schema: "public", Terms: true, Addr: "10.0.0.1:8080", // where others reach this process
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	gate := leaderhttp.Gate(lead, "orders", orders, leaderhttp.GateOptions{Mode: leaderhttp.Redirect}) // or Refuse, Forward
	mux.Handle("/orders", gate)
	mux.Handle("/orders/", gate)
	mux.Handle("/probes/", leaderhttp.Health(lead, leaderhttp.HealthOptions{Name: "orders"}))
	mux.Handle("/admin/leaders", auth(leaderhttp.Page(lead))) // yours: it shows texts of errors
	go http.ListenAndServe(":8080", mux)
	err = lead.Run(ctx, "orders", func(ctx context.Context) error {
		<-ctx.Done() // leads until it is told to stop
		return nil
	})
	log.Print(err)
}

func _(lead *leader.Leader, server *http.Server, bounded context.Context) error {
	var writes sync.WaitGroup // of requests, as in orders: writes.Add(1); defer writes.Done()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := lead.Run(ctx, "orders", func(ctx context.Context) error {
		<-ctx.Done()  // the gate is closed
		writes.Wait() // each of which should have a bound
		return nil
	}) // another process leads now; err wraps context.Canceled, as ctx has ended
	err = errors.Join(err, server.Shutdown(bounded)) // a context with some seconds; streams have been told
	return err
}

func _(mux *http.ServeMux, lead *leader.Leader, orders http.Handler, auth func(http.Handler) http.Handler) {
	mux.Handle("/probes/", leaderhttp.Health(lead, leaderhttp.HealthOptions{}))
	mux.Handle("/admin/leaders", auth(leaderhttp.Page(lead))) // yours: it shows texts of errors
	mux.Handle("/orders", leaderhttp.Gate(lead, "orders", orders, leaderhttp.GateOptions{}))
}
