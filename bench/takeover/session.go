// SPDX-License-Identifier: MIT

//go:build unix

package takeover

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oxygenhub/leader/bench/peer"
	"github.com/oxygenhub/leader/bench/result"
)

// Session measures from when the session that leads is ended on the server until the work is told, and until a process leads,
// which may be the same one. The end is the signal that pg_terminate_backend sends, sent from here: the answer of that function
// comes sometimes before and sometimes after the end of the session that it is about.
func Session(ctx context.Context, c Config) ([]result.Row, error) {
	rounds := 60
	if c.Quick {
		rounds = 1
	}
	peers := choose(func(p peer.Peer) bool { return p.Session && plain(p) && p.Name != peer.Blocked })
	s := &sheet{work: "session"}
	r, err := newRig(ctx, c, s.work, peers)
	if err != nil {
		return nil, err
	}
	err = r.sessions(ctx, c, s, peers, rounds)
	for _, p := range choose(func(p peer.Peer) bool { return !p.Session && plain(p) }) {
		for _, measure := range []string{"told", "takeover"} {
			why := "It leads by a row or a lease, not by a session that its server could end."
			if p.Mute {
				why = p.Note
			}
			s.none(p, measure, why)
		}
	}
	return s.sorted(), errors.Join(err, r.end())
}

// sessions has the sessions of all peers ended in turn.
func (r *rig) sessions(ctx context.Context, c Config, s *sheet, peers []peer.Peer, rounds int) error {
	pairs := make([]*pair, len(peers))
	conns := make([]*pgx.Conn, len(peers))
	for i, p := range peers {
		var err error
		if pairs[i], err = r.pair(ctx, p); err != nil {
			return err
		}
		if conns[i], err = pgx.Connect(ctx, pairs[i].place.url); err != nil {
			return err
		}
		defer func() { _ = conns[i].Close(context.WithoutCancel(ctx)) }() // its server is about to end
	}
	progress := progress{log: c.Log, work: s.work, last: time.Now()}
	for i := range rounds {
		for _, k := range rand.Perm(len(pairs)) {
			if err := pairs[k].endSession(ctx, s, conns[k]); err != nil {
				return err
			}
		}
		progress.round(i+1, rounds)
	}
	return nil
}

// holders is the sessions that hold a lock in this database, of which there is one.
const holders = `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// endSession has the server end the session of the holder.
func (p *pair) endSession(ctx context.Context, s *sheet, conn *pgx.Conn) error {
	kind := p.place.peer
	if err := settle(ctx, kind.Period); err != nil {
		return err
	}
	var pid int
	if err := conn.QueryRow(ctx, holders).Scan(&pid); err != nil {
		return err
	}
	now := peer.Now()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	told, err := p.holder.await(ctx, peer.Told, now, starts)
	if err != nil {
		return err
	}
	leading, err := first(ctx, peer.Leading, now, patience(kind), p.holder, p.standby)
	if err != nil {
		return err
	}
	s.add(kind, "told", told.At-now)
	s.add(kind, "takeover", leading.At-now)
	if leading.Node == p.holder.node {
		return nil
	}
	p.holder, p.standby = p.standby, p.holder
	_, err = p.standby.await(ctx, peer.Waiting, now, starts)
	return err
}
