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
		return p.Name != peer.Blocked && p.Setting != peer.Eager &&
			(!c.Quick || p.Expiry > 0 && p.Expiry < 5*time.Second)
	})
	s := &sheet{work: "hole"}
	r, err := newRig(ctx, c, peers)
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
	err = together(ctx, c, s.work, tasks, func(ctx context.Context, t task) error {
		for range t.rounds {
			if err := r.hole(ctx, c, s, t.peer); err != nil {
				return err
			}
		}
		return nil
	})
	return s.sorted(), errors.Join(err, r.end())
}

// hole cuts the holder of a new pair off, and does away with both in the end.
func (r *rig) hole(ctx context.Context, c Config, s *sheet, kind peer.Peer) error {
	stage := pgtest.NewStage(ctx, "bench", c.Dir, c.Log) // for a round: there are many
	two, way, err := r.apart(ctx, stage, kind)
	if err == nil {
		err = settle(ctx, kind.Period)
	}
	if err == nil {
		now := peer.Now()
		way.Swallow(true, true)
		err = two.watch(ctx, s, now)
	}
	if two != nil {
		err = errors.Join(err, two.holder.kill(), two.standby.kill())
	}
	return errors.Join(err, stage.End())
}

// apart starts two processes that reach the store by ways of their own, and returns that of the holder, too.
func (r *rig) apart(ctx context.Context, stage *pgtest.Stage, kind peer.Peer) (*pair, *pgtest.Proxy, error) {
	pl, err := r.place(ctx, stage, kind)
	if err != nil {
		return nil, nil, err
	}
	var ways [2]*pgtest.Proxy
	if err := stage.Try(func() {
		for i := range ways {
			ways[i] = pgtest.NewProxy(stage, pl.host)
		}
	}); err != nil {
		return nil, nil, err
	}
	two, err := pl.pair(ctx, ways[0], ways[1])
	return two, ways[0], err
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
