// SPDX-License-Identifier: MIT

//go:build unix

package takeover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/oxygenhub/leader/bench/peer"
	"github.com/oxygenhub/leader/bench/result"
)

// Kill measures from a SIGKILL to the holder until the other process leads.
func Kill(ctx context.Context, c Config) ([]result.Row, error) {
	rounds := 40
	if c.Quick {
		rounds = 1
	}
	fast := choose(func(p peer.Peer) bool { return p.Name == peer.Leader && p.Period < p.Expiry/5 || p.Name == peer.Raw })
	slow := choose(func(p peer.Peer) bool {
		return p.Name != peer.Leader && !rawKind(p) && (!c.Quick || p.Expiry < 5*time.Second)
	})
	s := &sheet{work: "kill"}
	r, err := newRig(ctx, c, s.work, append(fast, slow...))
	if err != nil {
		return nil, err
	}
	err = r.kills(ctx, c, s, fast, rounds)
	var tasks []task
	for _, p := range slow {
		lanes, rounds := 4, max(2, int(2*time.Minute/(p.Expiry+p.Period)))
		if p.Expiry < 10*time.Second {
			lanes = 2
		}
		if c.Quick {
			lanes, rounds = 1, 1
		}
		tasks = append(tasks, spread(p, lanes, rounds)...)
	}
	c.Log(fmt.Sprintf("%s: %d at the same time of those that wait for a lease to end", s.work, len(tasks)))
	err = errors.Join(err, together(ctx, tasks, func(ctx context.Context, t task) error {
		two, err := r.pair(ctx, t.peer)
		for i := 0; i < t.rounds && err == nil; i++ {
			err = two.kill(ctx, s, i == t.rounds-1)
		}
		return err
	}))
	return s.sorted(), errors.Join(err, r.end())
}

// kills kills the holders of all peers in turn.
func (r *rig) kills(ctx context.Context, c Config, s *sheet, peers []peer.Peer, rounds int) error {
	pairs := make([]*pair, len(peers))
	for i, p := range peers {
		var err error
		if pairs[i], err = r.pair(ctx, p); err != nil {
			return err
		}
	}
	progress := progress{log: c.Log, work: s.work, last: time.Now()}
	for i := range rounds {
		for _, k := range rand.Perm(len(pairs)) {
			if err := pairs[k].kill(ctx, s, i == rounds-1); err != nil {
				return err
			}
		}
		progress.round(i+1, rounds)
	}
	return nil
}

// kill kills the holder, and unless it is the last time, starts another standby.
func (p *pair) kill(ctx context.Context, s *sheet, last bool) error {
	kind := p.place.peer
	if err := settle(ctx, kind.Period); err != nil {
		return err
	}
	now := peer.Now()
	if err := p.holder.kill(); err != nil {
		return err
	}
	leading, err := p.standby.await(ctx, peer.Leading, now, patience(kind))
	if err != nil {
		return err
	}
	s.add(kind, "takeover", leading.At-now)
	if last {
		return nil
	}
	p.holder = p.standby
	if p.standby, err = p.place.start(ctx, nil); err != nil {
		return err
	}
	return p.standby.standBy(ctx)
}
