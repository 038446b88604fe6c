// SPDX-License-Identifier: MIT

package leadergocron_test

import (
	"context"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leadergocron"
)

// The code of docs/gocron.md, which TestDocsSnippetsAreCode of the root module looks for.

func sendInvoices(context.Context) error { return nil }

func _(ctx context.Context, lead *leader.Leader) error {
	elector, err := leadergocron.NewElector(lead, "scheduler")
	if err != nil {
		return err
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		return err
	}
	_, err = scheduler.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(elector.Task(sendInvoices)))
	if err != nil {
		return err
	}
	scheduler.Start()
	err = elector.Run(ctx) // contends until ctx ends
	_ = scheduler.Shutdown()
	return err
}

func _(lead *leader.Leader) error {
	locker, err := leadergocron.NewLocker(lead, leadergocron.LockerOptions{MinHold: 2 * time.Second})
	if err != nil {
		return err
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return err
	}
	_, err = scheduler.NewJob(gocron.CronJob("0 3 * * *", false),
		gocron.NewTask(locker.Task("invoices", sendInvoices)), gocron.WithName("invoices"))
	return err
}

func _(elector *leadergocron.Elector, scheduler gocron.Scheduler, ended <-chan error, stop context.CancelFunc) error {
	if err := scheduler.Shutdown(); err != nil {
		return err // a job still runs, so its leadership goes on
	}
	stop() // the context of elector.Run
	return <-ended
}
