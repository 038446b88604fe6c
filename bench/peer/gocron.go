// SPDX-License-Identifier: MIT

//go:build unix

package peer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leadergocron"
)

// gocrons is gocron with the Elector of leadergocron and a job that runs each second.
func gocrons() Peer {
	return Peer{
		Name: Gocron, Setting: Defaults, Store: PostgreSQL, Mute: true, Period: every, Expiry: 10*time.Second + 2*every,
		Note: "A job that runs each second where this library leads, with its defaults: a process leads from the first run of the job there " +
			"on. The job asks who leads at each run, and is not told of a loss.",
		open: func(_ context.Context, j Job) (share, error) {
			l, err := leader.New(leader.Postgres(j.Addr), leader.Options{Node: j.Node, Namespace: "bench"})
			return &gocronShare{leaderShare{l: l, name: j.Name}}, err
		},
	}
}

// every is how often the job runs.
const every = time.Second

type gocronShare struct{ leaderShare }

// contend has the scheduler stop before the leadership is given up.
func (s *gocronShare) contend(ctx context.Context, t *tape) error {
	elector, err := leadergocron.NewElector(s.l, s.name)
	if err != nil {
		return err
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		return err
	}
	var first sync.Once
	task := gocron.NewTask(func() { first.Do(func() { t.say(Leading) }) })
	if _, err := scheduler.NewJob(gocron.DurationJob(every), task); err != nil {
		return err
	}
	leads, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	t.hear(leads, s.l)
	done := make(chan error, 1)
	go func() { done <- elector.Run(leads) }() // until resign
	scheduler.Start()
	select {
	case <-ctx.Done():
	case err := <-done:
		return errors.Join(err, scheduler.Shutdown())
	}
	err = scheduler.Shutdown()
	t.ended(ctx)
	resign()
	if ended := <-done; !errors.Is(ended, context.Canceled) {
		err = errors.Join(err, ended)
	}
	return err
}
