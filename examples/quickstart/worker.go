// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/oxygenhub/leader"
	_ "modernc.org/sqlite"
)

const (
	workerArg   = "worker" // makes the program a worker: worker <name> <directory>
	resignOrder = "resign" // a line on stdin

	// headStart is what each worker leaves to the others for the tasks that are not its share. Nothing balances the
	// tasks: the first one that asks leads.
	headStart = time.Second
)

// tasks are what every worker offers to run.
var tasks = []string{"invoices.nightly", "mail.outbox", "reports.hourly", "cache.warm"} //nolint:gochecknoglobals // constant

// workers are the processes, and the tasks that each asks for first.
var workers = []struct { //nolint:gochecknoglobals // constant
	name  string
	share []string
}{
	{"ada", tasks[:2]},
	{"bob", tasks[2:3]},
	{"cyd", tasks[3:]},
}

// work is a worker process. It runs the tasks that it leads until stdin ends, as it does when the parent dies, or tells
// it to resign.
func work(args []string) error {
	if len(args) != 2 {
		return errors.New("a worker is started by the program itself")
	}
	name, dir := args[0], args[1]
	// Ctrl-C goes to all processes, and the parent decides what to do. signal.Ignore would not do on Windows.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGHUP)
	backend, closeDB, err := openBackend(dir)
	if err != nil {
		return err
	}
	defer func() { _ = closeDB() }()
	// A namespace of its own keeps this program away from the real tasks of a shared PostgreSQL.
	lead, err := leader.New(backend, leader.Options{Node: name, Namespace: filepath.Base(dir)})
	if err != nil {
		return err
	}
	rec, err := newRecorder(dir, name)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	ctx := context.Background()
	events := lead.Watch(ctx)
	wg.Go(func() { reportTrouble(events) }) // ends with Resign
	for _, task := range tasks {
		wg.Go(func() { contend(ctx, lead, rec, task, headStartOf(name, task)) }) // ends with Resign
	}
	awaitOrder()
	stop, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := lead.Resign(stop); err != nil {
		return err
	}
	wg.Wait()
	return rec.close()
}

// openBackend opens the database that the application has anyway.
func openBackend(dir string) (leader.Backend, func() error, error) {
	if url := os.Getenv("DATABASE_URL"); url != "" {
		return leader.Postgres(url), func() error { return nil }, nil
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, databaseFile))
	if err != nil {
		return nil, nil, err
	}
	return leader.SQLite(db), db.Close, nil
}

func headStartOf(name, task string) time.Duration {
	for _, w := range workers {
		if w.name == name && slices.Contains(w.share, task) {
			return 0
		}
	}
	return headStart
}

// contend runs task whenever this worker leads it.
func contend(ctx context.Context, lead *leader.Leader, rec *recorder, task string, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	report(message{Kind: asks, Task: task})
	err := lead.Run(ctx, task, func(ctx context.Context) error { return rec.run(ctx, task) })
	if !errors.Is(err, leader.ErrResigned) {
		report(message{Kind: trouble, Task: task, Text: fmt.Sprint("Run returned: ", err)})
	}
}

// reportTrouble tells the parent what goes wrong, such as a database that is away.
func reportTrouble(events <-chan leader.Event) {
	for e := range events {
		if e.Err != nil && !errors.Is(e.Err, leader.ErrResigned) {
			report(message{Kind: trouble, Task: e.Name, Text: fmt.Sprintf("%s: %v", e.Kind, e.Err)})
		}
	}
}

// report writes one line to the parent: one write, so that lines do not mix.
func report(m message) {
	line, err := json.Marshal(m)
	if err == nil {
		_, err = os.Stdout.Write(append(line, '\n'))
	}
	if err != nil {
		os.Exit(1) // the parent is gone
	}
}

// awaitOrder blocks until the parent wants this worker to go.
func awaitOrder() {
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() && orders.Text() != resignOrder {
	}
}
