// SPDX-License-Identifier: MIT

//go:build unix

package takeover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oxygenhub/leader/bench/peer"
	"github.com/oxygenhub/leader/bench/result"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// forever is how long a peer is watched that has nothing that would end its leadership.
const forever = 30 * time.Second

// Hole measures from when no byte of the holder reaches its store any more, nor any of the store the holder, until its work is
// told, and until the other process leads. If the work is told later than that, both have worked: the overlap.
func Hole(ctx context.Context, c Config) ([]result.Row, error) {
	peers := choose(func(p peer.Peer) bool {
		return p.Name != peer.Blocked && (p.Name != peer.Leader || p.Period >= time.Second) &&
			(!c.Quick || p.Expiry > 0 && p.Expiry < 5*time.Second)
	})
	s := &sheet{work: "hole"}
	r, err := newRig(ctx, c, s.work, peers)
	if err != nil {
		return nil, err
	}
	var tasks []task
	for _, p := range peers {
		lanes, rounds := 4, max(2, int(100*time.Second/(p.Expiry+p.Period+time.Second)))
		switch {
		case c.Quick || p.Expiry == 0:
			lanes, rounds = 1, 1
		case p.Expiry < 6*time.Second:
			lanes = 2
		}
		tasks = append(tasks, spread(p, lanes, rounds)...)
	}
	c.Log(fmt.Sprintf("%s: %d at the same time", s.work, len(tasks)))
	err = together(ctx, tasks, func(ctx context.Context, t task) error {
		for range t.rounds {
			if err := r.hole(ctx, s, t.peer); err != nil {
				return err
			}
		}
		return nil
	})
	return s.sorted(), errors.Join(err, r.end())
}

// hole cuts the holder of a new pair off, and does away with both in the end.
func (r *rig) hole(ctx context.Context, s *sheet, kind peer.Peer) error {
	pl, err := r.place(ctx, kind)
	if err != nil {
		return err
	}
	var ways [2]*pgtest.Proxy
	if err := r.stage.Try(func() {
		for i := range ways {
			ways[i] = pgtest.NewProxy(r.stage, pl.host)
		}
	}); err != nil {
		return err
	}
	two, err := pl.pair(ctx, ways[0], ways[1])
	if err != nil {
		return err
	}
	if err := settle(ctx, kind.Period); err != nil {
		return err
	}
	now := peer.Now()
	ways[0].Swallow(true, true)
	err = two.watch(ctx, s, now)
	err = errors.Join(err, two.holder.kill(), two.standby.kill())
	ways[0].Reset() // what is still under way
	return err
}

// watch notes what becomes of a pair whose holder was cut off.
func (p *pair) watch(ctx context.Context, s *sheet, now time.Duration) error {
	kind := p.place.peer
	if kind.Expiry == 0 {
		_, err := p.standby.await(ctx, peer.Leading, now, forever)
		if !errors.Is(err, errLate) {
			return fmt.Errorf("somebody leads, or else: %w", err)
		}
		for _, measure := range []string{"told", "takeover", "overlap"} {
			s.none(kind, measure, fmt.Sprintf("Nothing within %v: neither side of a session that is silent asks for the other.", forever))
		}
		return nil
	}
	leading, err := p.standby.await(ctx, peer.Leading, now, patience(kind))
	if err != nil {
		return err
	}
	s.add(kind, "takeover", leading.At-now)
	if kind.Mute {
		s.none(kind, "told", kind.Note)
		s.none(kind, "overlap", kind.Note)
		return nil
	}
	told, err := p.holder.await(ctx, peer.Told, now, patience(kind))
	if err != nil {
		return err
	}
	s.add(kind, "told", told.At-now)
	s.add(kind, "overlap", max(0, told.At-leading.At))
	return nil
}
