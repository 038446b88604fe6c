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

// Handover measures from when a holder that was told to stop has stopped its work until the other process leads. Both live on,
// and change places, so that no start of a process is part of it.
func Handover(ctx context.Context, c Config) ([]result.Row, error) {
	rounds, lanes, slowRounds := 200, 3, 12
	if c.Quick {
		rounds, lanes, slowRounds = 2, 1, 1
	}
	prompt := choose(func(p peer.Peer) bool { return p.Prompt && plain(p) })
	slow := choose(func(p peer.Peer) bool { return !p.Prompt && (!c.Quick || p.Period < 3*time.Second) })
	s := &sheet{work: "handover"}
	r, err := newRig(ctx, c, slices.Concat(prompt, slow))
	if err != nil {
		return nil, err
	}
	handover := func(ctx context.Context, two *pair, _ bool) error { return two.handover(ctx, s) }
	err = r.inTurn(ctx, c, s.work, prompt, rounds, handover)
	var tasks []task
	for _, p := range slow {
		tasks = append(tasks, spread(p, lanes, slowRounds)...)
	}
	err = errors.Join(err, together(ctx, c, s.work, tasks, r.alone(handover)))
	return s.sorted(), errors.Join(err, r.end())
}

// handover has the holder hand over to the standby, and then stand by.
func (p *pair) handover(ctx context.Context, s *sheet) error {
	kind := p.place.peer
	phase := 20 * time.Millisecond
	if !kind.Prompt {
		phase = kind.Period
	}
	if err := settle(ctx, phase); err != nil {
		return err
	}
	now := peer.Now()
	if err := p.holder.order(peer.Stop); err != nil {
		return err
	}
	stopped, err := p.holder.await(ctx, peer.Stopped, now, starts)
	if err != nil {
		return err
	}
	leading, err := p.standby.await(ctx, peer.Leading, now, patience(kind))
	if err != nil {
		return err
	}
	s.add(kind, "takeover", leading.At-stopped.At)
	if _, err := p.holder.await(ctx, peer.Resting, now, starts); err != nil {
		return err
	}
	if err := p.holder.standBy(ctx); err != nil {
		return err
	}
	p.holder, p.standby = p.standby, p.holder
	return nil
}
