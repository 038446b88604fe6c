// SPDX-License-Identifier: MIT

//go:build unix

package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oxygenhub/leader"
)

// raws are loops without a library: what PostgreSQL allows at best, and what nothing can be faster than.
func raws() []Peer {
	return []Peer{
		{
			Name: Raw, Store: PostgreSQL, Session: true, Prompt: true, Period: time.Second,
			Note: "A loop that tries pg_try_advisory_lock each second and when it is notified of an unlock, without a proof of its session and " +
				"without a timeout: the limit, not a choice.",
			open: openRaw(rawStandby),
		},
		{
			Name: Blocked, Store: PostgreSQL, Session: true, Prompt: true,
			Note: "A standby that blocks in pg_advisory_lock, and so holds a snapshot, which holds back vacuum: the floor, not a choice.",
			open: openRaw(blockedStandby),
		},
	}
}

// rawShare is a connection, which is opened when there is none.
type rawShare struct {
	url     string
	key     int64
	conn    *pgx.Conn
	standby func(context.Context, *rawShare, *tape) error
}

func openRaw(standby func(context.Context, *rawShare, *tape) error) func(context.Context, Job) (share, error) {
	return func(_ context.Context, j Job) (share, error) {
		return &rawShare{url: j.Addr, key: leader.Key("bench raw", j.Name), standby: standby}, nil
	}
}

// channel is where a release is told.
const channel = "bench_raw"

func (s *rawShare) contend(ctx context.Context, t *tape) error {
	for ctx.Err() == nil {
		if err := s.once(ctx, t); err != nil && ctx.Err() == nil {
			s.close()
			var refused *pgconn.PgError
			if errors.As(err, &refused) && refused.Code != "57P01" { // the server ended the session, as it was told to
				return err
			}
			pause(ctx, 100*time.Millisecond)
		}
	}
	return nil
}

// once is a leadership, and the wait for it.
func (s *rawShare) once(ctx context.Context, t *tape) error {
	if s.conn == nil || s.conn.IsClosed() {
		var err error
		if s.conn, err = pgx.Connect(ctx, s.url); err != nil {
			return err
		}
		if err := s.exec(ctx, "LISTEN "+channel); err != nil {
			return err
		}
	}
	if err := s.standby(ctx, s, t); err != nil {
		return err
	}
	t.say(Leading)
	var err error
	for err == nil { // what is told meanwhile concerns others
		_, err = s.conn.WaitForNotification(ctx)
	}
	t.ended(ctx)
	if ctx.Err() == nil {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return s.exec(last, fmt.Sprintf("SELECT pg_advisory_unlock(%d); NOTIFY %s", s.key, channel))
}

// exec runs statements in one round trip.
func (s *rawShare) exec(ctx context.Context, sql string) error {
	return s.conn.PgConn().Exec(ctx, sql).Close()
}

// rawStandby returns when it has the lock: it tries when it is told of a release, and each second.
func rawStandby(ctx context.Context, s *rawShare, t *tape) error {
	for waiting := false; ; {
		var got bool
		if err := s.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", s.key).Scan(&got); err != nil || got {
			return err
		}
		if !waiting {
			waiting = true
			t.say(Waiting)
		}
		second, cancel := context.WithTimeout(ctx, time.Second)
		_, err := s.conn.WaitForNotification(second)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && s.conn.IsClosed():
			return err
		}
	}
}

// blockedStandby returns when the server has given it the lock.
func blockedStandby(ctx context.Context, s *rawShare, t *tape) error {
	t.say(Waiting) // a moment early: who measures gives it time
	_, err := s.conn.Exec(ctx, "SELECT pg_advisory_lock($1)", s.key)
	return err
}

func (s *rawShare) close() {
	if s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx) // it may be gone
	s.conn = nil
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
