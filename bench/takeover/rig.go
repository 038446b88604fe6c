// SPDX-License-Identifier: MIT

//go:build unix

package takeover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/oxygenhub/leader/bench/peer"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// rig is the stores of a work, and the processes on them.
type rig struct {
	stage  *pgtest.Stage
	server *pgtest.Server
	leases string // host:port
	etcd   string // host:port

	// starting is held while a process starts, which takes the machine's whole attention, and while a database is made.
	starting sync.Mutex

	mu     sync.Mutex
	places int
	procs  []*proc
}

// newRig starts the stores that the peers need.
func newRig(ctx context.Context, c Config, peers []peer.Peer) (*rig, error) {
	r := &rig{stage: pgtest.NewStage(ctx, "bench", c.Dir, c.Log)}
	needs := make(map[peer.Store]bool)
	for _, p := range peers {
		needs[p.Store] = true
	}
	var inner error
	err := r.stage.Try(func() {
		if needs[peer.PostgreSQL] {
			r.server = pgtest.Start(r.stage, "max_connections=300", "log_checkpoints=off")
		}
		if needs[peer.Kubernetes] {
			inner = errors.Join(inner, r.serveLeases(ctx))
		}
		if needs[peer.Etcd] {
			inner = errors.Join(inner, r.startEtcd())
		}
	})
	if err = errors.Join(err, inner); err != nil {
		return nil, errors.Join(err, r.stage.End())
	}
	return r, nil
}

func (r *rig) serveLeases(ctx context.Context) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: peer.NewLeases().Handler(), ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() { // until the server is closed
		defer close(served)
		_ = server.Serve(ln) // it says that it was closed
	}()
	r.leases = ln.Addr().String()
	r.stage.Cleanup(func() {
		_ = server.Close() // nobody uses it any more
		<-served
	})
	return nil
}

func (r *rig) startEtcd() error {
	addr, stop, err := peer.StartEtcd(r.stage.TempDir())
	if err == nil {
		r.etcd = addr
		r.stage.Cleanup(stop)
	}
	return err
}

// end kills all processes and takes the stores away.
func (r *rig) end() error {
	r.mu.Lock()
	procs := r.procs
	r.mu.Unlock()
	var errs []error
	for _, p := range procs {
		errs = append(errs, p.kill())
	}
	return errors.Join(append(errs, r.stage.End())...)
}

// place is what the processes of one fleet of a peer contend for: none of another place does.
type place struct {
	rig  *rig
	peer peer.Peer
	name string
	url  string // of a database; "" where the store is none
	host string // host:port of the store
	born int
}

// place makes a place, which is there until the stage ends.
func (r *rig) place(ctx context.Context, stage *pgtest.Stage, p peer.Peer) (*place, error) {
	r.mu.Lock()
	r.places++
	pl := &place{rig: r, peer: p, name: fmt.Sprintf("job-%d", r.places)}
	r.mu.Unlock()
	switch p.Store {
	case peer.Kubernetes:
		pl.host = r.leases
	case peer.Etcd:
		pl.host = r.etcd
	case peer.PostgreSQL:
		pl.host = r.server.Addr()
		r.starting.Lock()
		defer r.starting.Unlock()
		if err := stage.Try(func() { pl.url = r.server.Database(stage) }); err != nil {
			return nil, err
		}
		if p.Name == peer.River {
			return pl, peer.PrepareRiver(ctx, pl.url)
		}
	}
	return pl, nil
}

// start starts another process of the place, which reaches the store by way of a proxy if there is one.
func (p *place) start(ctx context.Context, via *pgtest.Proxy) (*proc, error) {
	addr := p.host
	if via != nil {
		addr = via.Addr()
	}
	if p.url != "" {
		u, err := url.Parse(p.url)
		if err != nil {
			return nil, err
		}
		u.Host = addr
		addr = u.String()
	}
	p.rig.starting.Lock()
	defer p.rig.starting.Unlock()
	p.born++
	w, err := launch(ctx, peer.Job{
		Peer: p.peer.Name, Setting: p.peer.Setting, Node: fmt.Sprintf("%s-%d", p.name, p.born), Addr: addr, Name: p.name,
	})
	if err != nil {
		return nil, err
	}
	p.rig.mu.Lock()
	defer p.rig.mu.Unlock()
	p.rig.procs = append(p.rig.procs, w)
	return w, nil
}

// pair is a process that leads, and one that stands by.
type pair struct {
	place           *place
	holder, standby *proc
}

// pair starts two processes of a new place.
func (r *rig) pair(ctx context.Context, p peer.Peer) (*pair, error) {
	pl, err := r.place(ctx, r.stage, p)
	if err != nil {
		return nil, err
	}
	return pl.pair(ctx, nil, nil)
}

// pair starts two processes of the place, each with its way to the store.
func (p *place) pair(ctx context.Context, viaHolder, viaStandby *pgtest.Proxy) (*pair, error) {
	two := &pair{place: p}
	var err error
	if two.holder, err = p.start(ctx, viaHolder); err != nil {
		return nil, err
	}
	if err = two.holder.lead(ctx, starts); err != nil {
		return nil, err
	}
	if two.standby, err = p.start(ctx, viaStandby); err != nil {
		return nil, err
	}
	return two, two.standby.standBy(ctx)
}

// patience is how long a peer may take to have another leader when the one that leads has died or vanished.
func patience(p peer.Peer) time.Duration { return p.Expiry + p.Period + 15*time.Second }
