// SPDX-License-Identifier: MIT

// Pair hands a task over between two Leaders on one PostgreSQL, and prints how long that takes:
//
//	DATABASE_URL=postgres://user:password@host/database go run ./examples/pair
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/oxygenhub/leader"
)

const task = "example.pair"

func main() {
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		log.Fatal("pair: set DATABASE_URL to a PostgreSQL: postgres://user:password@host/database")
	}
	if err := pair(context.Background(), url); err != nil {
		log.Fatal("pair: ", err)
	}
}

func pair(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	started := make(chan string, 2) // names of members whose task has started
	first, err := join(ctx, url, "first", started)
	if err == nil {
		err = wait(ctx, first, started)
	}
	if err != nil {
		return err
	}
	second, err := join(ctx, url, "second", started)
	if err != nil {
		return err
	}
	if _, err := second.Holder(ctx, task); err != nil { // answered, so the second one has a session, and stands by
		return err
	}
	begin := time.Now()
	if err := errors.Join(first.Resign(ctx), wait(ctx, second, started)); err != nil {
		return err
	}
	fmt.Printf("handed over %.1f ms after the first one began to resign\n", time.Since(begin).Seconds()*1000)
	return second.Resign(ctx)
}

// join starts a Leader that runs the task when it can.
func join(ctx context.Context, url, node string, started chan<- string) (*leader.Leader, error) {
	lead, err := leader.New(leader.Postgres(url), leader.Options{Node: node})
	if err != nil {
		return nil, err
	}
	go lead.Run(ctx, task, func(ctx context.Context) error { //nolint:errcheck // ends with Resign, or with ctx
		started <- node
		<-ctx.Done()
		return nil
	})
	return lead, nil
}

func wait(ctx context.Context, lead *leader.Leader, started <-chan string) error {
	select {
	case node := <-started:
		fmt.Printf("%s runs in %s\n", task, node)
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), lead.Status().Err)
	}
}
