// SPDX-License-Identifier: MIT

//go:build unix

// Package peer has the contenders of the benchmark: this library, and what a user would pick instead. Each is used as its
// documentation says, in processes of their own, which say when they stand by, lead, and are told that they do not.
package peer

import (
	"context"
	"fmt"
	"time"
)

// Store is where a peer keeps who leads.
type Store int

// The stores.
const (
	PostgreSQL Store = iota
	Kubernetes       // the part of its API server that leases need
	Etcd
)

// Peer is a contender with a setting.
type Peer struct {
	Name    string
	Setting string
	Store   Store
	Session bool // it leads by a session of PostgreSQL, which the server can end

	// Period is what the time until a takeover depends on the phase of: how often a standby asks, or a holder renews.
	Period time.Duration
	// Expiry is after which silence of a holder another one leads at the latest, without what the machine needs; 0 if that
	// has no end.
	Expiry time.Duration
	// Mute means that its work is not told of a loss: it asks.
	Mute bool
	// Prompt means that a standby hears of a clean release, and does not have to ask.
	Prompt bool
	Note   string // what has to be known of each of its numbers

	open func(ctx context.Context, j Job) (share, error)
}

// find is the peer that a job is of.
func find(j Job) (Peer, error) {
	for _, p := range All() {
		if p.Name == j.Peer && p.Setting == j.Setting {
			return p, nil
		}
	}
	return Peer{}, fmt.Errorf("there is no peer %q with %q", j.Peer, j.Setting)
}

// String names the peer and its setting.
func (p Peer) String() string {
	if p.Setting == "" {
		return p.Name
	}
	return p.Name + ", " + p.Setting
}

// Names of the peers.
const (
	Leader   = "leader"
	Raw      = "raw"
	Blocked  = "blocked"
	ClientGo = "client-go"
	EtcdName = "etcd"
	River    = "River"
	Gocron   = "gocron"
)

// Settings of peers.
const (
	Defaults = "defaults"                                 // nothing has been set
	Eager    = "Retry 100 ms"                             // of leader: a standby asks more often
	Tight    = "Check 1 s, Lease 2 s, SessionTimeout 3 s" // of leader: as client-go with a LeaseDuration of 3 s
)

// All are the peers, each with its settings.
func All() []Peer {
	all := leaders()
	all = append(all, raws()...)
	all = append(all, clientGos()...)
	all = append(all, etcds()...)
	return append(all, rivers(), gocrons())
}
