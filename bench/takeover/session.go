// SPDX-License-Identifier: MIT

//go:build unix

package takeover

import (
	"context"
	"errors"
	"syscall"

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
	r, err := newRig(ctx, c, peers)
	if err != nil {
		return nil, err
	}
	err = r.inTurn(ctx, c, s.work, peers, rounds, func(ctx context.Context, two *pair, _ bool) error { return two.endSession(ctx, s) })
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

// session is the process of the server for the session that leads: it has the only lock in the database.
func (p *place) session(ctx context.Context) (pid int, err error) {
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return 0, err
	}
	err = conn.QueryRow(ctx, `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&pid)
	return pid, errors.Join(err, conn.Close(ctx))
}

// endSession ends the session of the holder.
func (p *pair) endSession(ctx context.Context, s *sheet) error {
	kind := p.place.peer
	pid, err := p.place.session(ctx)
	if err != nil {
		return err
	}
	if err := settle(ctx, kind.Period); err != nil {
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
