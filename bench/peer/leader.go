// SPDX-License-Identifier: MIT

//go:build unix

package peer

import (
	"context"
	"time"

	"github.com/oxygenhub/leader"
)

// leaders is this library: as it comes, with a short Retry, and with the times of client-go's tuned setting.
func leaders() []Peer {
	fast := leader.Options{Retry: 100 * time.Millisecond}
	tuned := leader.Options{Retry: time.Second, Check: time.Second, Lease: 2 * time.Second, SessionTimeout: 3 * time.Second}
	return []Peer{
		leaderPeer(Defaults, leader.Options{}, time.Second, 10*time.Second),
		leaderPeer(Eager, fast, fast.Retry, 10*time.Second),
		leaderPeer(Tight, tuned, tuned.Retry, tuned.SessionTimeout),
	}
}

func leaderPeer(setting string, opts leader.Options, period, timeout time.Duration) Peer {
	return Peer{
		Name: Leader, Setting: setting, Store: PostgreSQL, Session: true, Prompt: true, Period: period,
		Expiry: timeout + period,
		open: func(_ context.Context, j Job) (share, error) {
			opts.Node, opts.Namespace = j.Node, "bench"
			l, err := leader.New(leader.Postgres(j.Addr), opts)
			return &leaderShare{l: l, name: j.Name}, err
		},
	}
}

type leaderShare struct {
	l    *leader.Leader
	name string
}

func (s *leaderShare) contend(ctx context.Context, t *tape) error {
	hear, deaf := context.WithCancel(context.WithoutCancel(ctx))
	defer deaf()
	t.hear(hear, s.l)
	return s.l.Run(ctx, s.name, func(task context.Context) error {
		t.say(Leading)
		<-task.Done()
		t.ended(ctx)
		return task.Err()
	})
}

// hear says when l stands by, until ctx ends.
func (t *tape) hear(ctx context.Context, l *leader.Leader) {
	events := l.Watch(ctx)
	go func() { // until ctx ends
		for e := range events {
			if e.Kind == leader.Waiting {
				t.say(Waiting)
			}
		}
	}()
}

func (s *leaderShare) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.l.Resign(ctx) // the process ends anyway
}
