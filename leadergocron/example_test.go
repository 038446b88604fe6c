// SPDX-License-Identifier: MIT

package leadergocron_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leadergocron"
)

// process is one of a fleet, which shares the database of file.
func process(file string) *leader.Leader {
	db, err := sql.Open("sqlite", file)
	if err != nil {
		log.Fatal(err)
	}
	l, err := leader.New(leader.SQLite(db), leader.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return l
}

func Example() {
	dir, err := os.MkdirTemp("", "leadergocron")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	elector, err := leadergocron.NewElector(process(filepath.Join(dir, "app.db")), "scheduler")
	if err != nil {
		log.Fatal(err)
	}
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		log.Fatal(err)
	}

	ctx, stop := context.WithCancel(context.Background()) // of the service: signal.NotifyContext
	task := elector.Task(func(ctx context.Context) error {
		fmt.Println("the job runs here:", leader.Confirm(ctx) == nil)
		stop()
		<-ctx.Done()
		fmt.Println("the job was told:", context.Cause(ctx))
		return nil
	})
	_, err = scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(task),
		gocron.WithSingletonMode(gocron.LimitModeReschedule))
	if err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	err = elector.Run(ctx)
	fmt.Println("Run:", err)
	fmt.Println("Shutdown:", scheduler.Shutdown())
	// Output:
	// the job runs here: true
	// the job was told: context canceled
	// Run: context canceled
	// Shutdown: <nil>
}

func ExampleLocker() {
	dir, err := os.MkdirTemp("", "leadergocron")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	lockers := make([]*leadergocron.Locker, 2) // of two processes
	for i := range lockers {
		lockers[i], err = leadergocron.NewLocker(process(filepath.Join(dir, "app.db")), leadergocron.LockerOptions{})
		if err != nil {
			log.Fatal(err)
		}
		go func() { ended <- lockers[i].Run(ctx) }()
	}

	// gocron calls Lock before each run of the job "invoices", and Unlock after it.
	var lock gocron.Lock
	for lock == nil { // Run may not have begun
		lock, _ = lockers[0].Lock(ctx, "invoices")
	}
	for err = leadergocron.ErrNotRunning; errors.Is(err, leadergocron.ErrNotRunning); {
		_, err = lockers[1].Lock(ctx, "invoices")
	}
	fmt.Println("the other:", err)
	fmt.Println("Unlock:", lock.Unlock(ctx))
	stop()
	fmt.Println("Run:", <-ended, <-ended)
	// Output:
	// the other: leadergocron: the job is locked
	// Unlock: <nil>
	// Run: context canceled context canceled
}
