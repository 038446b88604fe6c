// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderhttp"
)

const task = "kv" // who leads it has the engine

// service is one process of the service. All of them are the same; one of them leads.
type service struct {
	lead    *leader.Leader
	db      *sql.DB
	node    string
	recover func(context.Context) (*engine, error)
	engine  atomic.Pointer[engine] // nil in a standby, and in a leader that is not ready yet
}

// run is the task. The session is proved while it recovers, however long that takes.
func (s *service) run(ctx context.Context) error {
	e, err := s.recover(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil: // another process may have better luck: this one stands back for a while
		return leader.StepDown(fmt.Errorf("recover: %w", err), coolDown)
	}
	s.engine.Store(e) // ready
	<-ctx.Done()
	s.engine.Store(nil) // a standby again
	e.close()
	return nil
}

// handler lets writes through where this process leads, and reads everywhere. A leader that does not answer a forwarded
// request for as long as a lease may be frozen: the client is told to try again.
func (s *service) handler(mode leaderhttp.Mode) http.Handler {
	kv := http.NewServeMux()
	kv.HandleFunc("GET /kv/{key}", s.get)
	kv.HandleFunc("PUT /kv/{key}", s.put)
	forward := http.DefaultTransport.(*http.Transport).Clone()
	forward.Proxy, forward.ResponseHeaderTimeout = nil, options.Lease
	mux := http.NewServeMux()
	mux.Handle("/kv/", leaderhttp.Gate(s.lead, task, kv, leaderhttp.GateOptions{Mode: mode, Transport: forward}))
	mux.Handle("/", leaderhttp.Health(s.lead, leaderhttp.HealthOptions{Name: task, Serving: s.serving}))
	return mux
}

// serving is for /leader.
func (s *service) serving(string) bool { return s.engine.Load() != nil }

// put is for the leader alone, which may be not ready yet. The context of the request carries the term.
func (s *service) put(w http.ResponseWriter, r *http.Request) {
	value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e := s.engine.Load()
	if e == nil {
		unavailable(w, "the leader recovers")
		return
	}
	term, err := e.put(r.Context(), r.PathValue("key"), string(value))
	if err != nil { // it may have been written all the same: the client has to write again
		unavailable(w, "not written for sure: "+err.Error())
		return
	}
	w.Header().Set("Served-By", s.node)
	w.Header().Set("Served-Under", strconv.FormatInt(int64(term), 10))
	w.WriteHeader(http.StatusNoContent)
}

// get answers from memory only as long as this process leads for sure. What a standby reads from the table may be stale by
// the time it is read: a write may have been acknowledged since.
func (s *service) get(w http.ResponseWriter, r *http.Request) {
	var value string
	var ok bool
	var err error
	from := "table, may be stale"
	if e := s.engine.Load(); e != nil && leader.Confirm(r.Context()) == nil {
		from = "memory"
		value, ok, err = e.get(r.Context(), r.PathValue("key"))
	} else {
		value, ok, err = read(r.Context(), s.db, r.PathValue("key"))
	}
	w.Header().Set("Served-By", s.node)
	w.Header().Set("Served-From", from)
	switch {
	case err != nil:
		unavailable(w, err.Error())
	case !ok:
		http.NotFound(w, r)
	default:
		_, _ = io.WriteString(w, value) // the client may have gone
	}
}

func unavailable(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, why, http.StatusServiceUnavailable)
}
