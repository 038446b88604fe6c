// SPDX-License-Identifier: MIT

//go:build unix

// Package takeover measures how long it takes until another process leads: after a clean handover, after kill -9, after the
// server has ended a session, and in a black hole. One process leads and one stands by, each a process of its own.
package takeover

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/oxygenhub/leader/bench/peer"
	"github.com/oxygenhub/leader/bench/result"
)

// Config says how much is measured, and where.
type Config struct {
	Quick bool // each work with the fewest repeats, and without the peers that wait for long
	Dir   string
	Log   func(string)
}

// settle waits until a standby surely waits, and then for a random part of a period, so that what happens next does so at any
// phase of it.
func settle(ctx context.Context, period time.Duration) error {
	d := least + time.Duration(rand.Float64()*float64(period))
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// least is how long a standby that has said that it waits is given to do so, and the machine to calm down.
const least = 50 * time.Millisecond

// sheet collects the rows of a work.
type sheet struct {
	work string

	mu   sync.Mutex
	rows []result.Row
}

// rowLocked is the row of a peer and a measure, which is made if there is none.
func (s *sheet) rowLocked(p peer.Peer, measure string) *result.Row {
	i := slices.IndexFunc(s.rows, func(r result.Row) bool {
		return r.Peer == p.Name && r.Setting == p.Setting && r.Measure == measure
	})
	if i < 0 {
		i = len(s.rows)
		s.rows = append(s.rows, result.Row{
			Work: s.work, Peer: p.Name, Setting: p.Setting, Measure: measure, Unit: "s", Samples: []float64{}, Note: p.Note,
		})
	}
	return &s.rows[i]
}

func (s *sheet) add(p peer.Peer, measure string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.rowLocked(p, measure)
	row.Samples = append(row.Samples, d.Seconds())
}

// none says why a peer has no number for a measure.
func (s *sheet) none(p peer.Peer, measure, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rowLocked(p, measure).Note = why
}

// sorted is all rows, in the order of the peers.
func (s *sheet) sorted() []result.Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := peer.All()
	place := func(r result.Row) int {
		return slices.IndexFunc(all, func(p peer.Peer) bool { return p.Name == r.Peer && p.Setting == r.Setting })
	}
	slices.SortStableFunc(s.rows, func(a, b result.Row) int { return cmp.Compare(place(a), place(b)) })
	return s.rows
}

// choose returns the peers that keep says yes to.
func choose(keep func(peer.Peer) bool) (peers []peer.Peer) {
	for _, p := range peer.All() {
		if keep(p) {
			peers = append(peers, p)
		}
	}
	return peers
}

// plain reports whether a peer has its defaults, or no others: what has to be measured once only.
func plain(p peer.Peer) bool {
	return p.Setting == peer.Defaults || rawKind(p)
}

// rawKind reports whether a peer is a loop without a library.
func rawKind(p peer.Peer) bool { return p.Name == peer.Raw || p.Name == peer.Blocked }
