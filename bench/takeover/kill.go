// SPDX-License-Identifier: MIT

//go:build unix

package takeover

import (
	"context"
	"errors"
	"slices"
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
	fast := choose(func(p peer.Peer) bool { return p.Name == peer.Leader && p.Setting != peer.Tight || p.Name == peer.Raw })
	slow := choose(func(p peer.Peer) bool {
		return p.Name != peer.Leader && !rawKind(p) && (!c.Quick || p.Expiry < 5*time.Second)
	})
	s := &sheet{work: "kill"}
	r, err := newRig(ctx, c, slices.Concat(fast, slow))
	if err != nil {
		return nil, err
	}
	kill := func(ctx context.Context, two *pair, last bool) error { return two.kill(ctx, s, last) }
	err = r.inTurn(ctx, c, s.work, fast, rounds, kill)
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
	err = errors.Join(err, together(ctx, c, s.work, tasks, r.alone(kill)))
	return s.sorted(), errors.Join(err, r.end())
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
