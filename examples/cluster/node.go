// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderhttp"
)

const nodeArg = "node" // makes the program a process of the service: node <settings>

// settings of a process.
type settings struct {
	Name     string          `json:"name"`
	Database string          `json:"database"`
	Mode     leaderhttp.Mode `json:"mode"`
	Recovery time.Duration   `json:"recovery"` // how long it takes
	Fails    bool            `json:"fails"`    // it fails
}

// options are short, so that the program is.
var options = leader.Options{ //nolint:gochecknoglobals // constant
	Terms: true, Retry: 200 * time.Millisecond, Check: 300 * time.Millisecond, Lease: time.Second, SessionTimeout: 2 * time.Second,
}

// coolDown is for how long a process stands back that could not recover.
const coolDown = 3 * time.Second

// serve is a process of the service, until it is told to leave.
func serve(arg string) error {
	var set settings
	if err := json.Unmarshal([]byte(arg), &set); err != nil {
		return err
	}
	leave := ordered()
	db, err := openDatabase(set.Database)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	opts := options
	opts.Node, opts.Addr = set.Name, listener.Addr().String()
	if db.postgres {
		opts.Namespace = db.name // and leader_terms is in the schema of that name
	}
	lead, err := leader.New(db.locks, opts)
	if err != nil {
		return err
	}
	s := &service{lead: lead, db: db.DB, node: set.Name}
	s.recover = func(ctx context.Context) (*engine, error) { return recoverSlowly(ctx, s, set) }
	server := &http.Server{Handler: s.handler(set.Mode), ReadHeaderTimeout: 5 * time.Second}
	served, ran := make(chan error, 1), make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // ends with Shutdown
	go func() { ran <- contend(lead, s) }()          // ends with Resign
	tell(message{Kind: listens, Addr: opts.Addr})
	<-leave
	// First the lock, so that another process recovers while this one sends away who still comes.
	stop, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = errors.Join(lead.Resign(stop), shutDown(server))
	if ended := <-ran; !errors.Is(ended, leader.ErrResigned) {
		err = errors.Join(err, ended)
	}
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// shutDown lets requests end for longer than any should take. It does not wait for the connections that clients have opened and
// not used yet, which Shutdown takes for busy for 5 s.
func shutDown(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if server.Shutdown(ctx) == nil {
		return nil
	}
	return server.Close()
}

// contend runs the task of s, and tells the program what becomes of it.
func contend(lead *leader.Leader, s *service) error {
	ctx := context.Background()
	events := lead.Watch(ctx)
	go func() { // ends with Resign
		for e := range events {
			if e.Err != nil && !errors.Is(e.Err, leader.ErrResigned) {
				tell(message{Kind: trouble, Text: string(e.Kind) + ": " + e.Err.Error()})
			}
		}
	}()
	return lead.Run(ctx, task, func(ctx context.Context) error {
		term, _ := leader.TermOf(ctx)
		tell(message{Kind: leads, Term: term})
		err := s.run(ctx)
		why := err
		if ctx.Err() != nil {
			why = context.Cause(ctx)
		}
		tell(message{Kind: stops, Term: term, Text: why.Error()})
		return err
	})
}

// recoverSlowly stands for a table that is large.
func recoverSlowly(ctx context.Context, s *service, set settings) (*engine, error) {
	select {
	case <-time.After(set.Recovery):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if set.Fails {
		return nil, errors.New("the disk is broken")
	}
	return load(ctx, s.db, s.node)
}
