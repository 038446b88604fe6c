// SPDX-License-Identifier: MIT

package leaderhttp_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderhttp"
)

// A service that takes orders in one process of many, and shows them in all.
func ExampleGate() {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	lead, err := leader.New(leader.SQLite(db), leader.Options{})
	if err != nil {
		log.Fatal(err)
	}
	orders := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprintln(w, "the orders")
			return
		}
		// Writes go through leader.FenceSQL(r.Context(), tx), with Options.Terms.
		fmt.Fprintln(w, "ordered, as a leader:", leader.Confirm(r.Context()) == nil)
	})
	server := httptest.NewServer(leaderhttp.Gate(lead, "orders", orders, leaderhttp.GateOptions{}))
	defer server.Close()
	show := func(resp *http.Response, err error) {
		if err != nil {
			log.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		fmt.Print(resp.StatusCode, " ", string(body))
	}

	show(http.Get(server.URL))
	show(http.Post(server.URL, "", strings.NewReader("one")))
	err = lead.Run(context.Background(), "orders", func(context.Context) error {
		show(http.Post(server.URL, "", strings.NewReader("one")))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 200 the orders
	// 503 {"error":{"code":"NOT_LEADER","message":"this process does not lead \"orders\"","leader_node":"","leader_addr":"","term":0,"age_ms":null}}
	// 200 ordered, as a leader: true
}

// A standby that forwards: clients may ask any process. All processes need Options.Terms and their own Options.Addr.
func ExampleGate_forward() {
	db, err := sql.Open("sqlite", "orders.db")
	if err != nil {
		log.Fatal(err)
	}
	lead, err := leader.New(leader.SQLite(db), leader.Options{Terms: true, Addr: "10.0.0.1:8080"})
	if err != nil {
		log.Fatal(err)
	}
	orders := http.NotFoundHandler() // yours
	gate := leaderhttp.Gate(lead, "orders", orders, leaderhttp.GateOptions{
		Mode: leaderhttp.Forward,
		// All goes to the leader, but for what the standbys can answer as well.
		Reads: func(r *http.Request) bool { return r.URL.Path == "/catalog" },
	})
	log.Fatal(http.ListenAndServe("10.0.0.1:8080", gate))
}

// The probes of a service, and the page for people, beside what it serves.
func ExampleHealth() {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	lead, err := leader.New(leader.SQLite(db), leader.Options{Node: "web-1"})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", leaderhttp.Health(lead, leaderhttp.HealthOptions{})) // health, ready, leader, status
	mux.Handle("/leadership", leaderhttp.Page(lead))
	server := httptest.NewServer(mux)
	defer server.Close()
	show := func(path string) {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			log.Fatal(err)
		}
		defer resp.Body.Close()
		fmt.Println(path, resp.StatusCode, resp.Header.Get("Content-Type"))
	}

	show("/leader?name=orders")
	err = lead.Run(context.Background(), "orders", func(context.Context) error {
		show("/leader?name=orders")
		show("/ready")
		show("/leadership")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// /leader?name=orders 503 application/json
	// /leader?name=orders 200 application/json
	// /ready 200 application/json
	// /leadership 200 text/html; charset=utf-8
}
