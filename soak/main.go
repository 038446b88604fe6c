// SPDX-License-Identifier: MIT

//go:build unix

// Command soak puts a fleet of processes on a database under random faults, records what each of them does, and checks the
// histories. See the README of this folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.DurationVar(&o.length, "for", 10*time.Minute, "how long to go on; an episode that has begun is brought to its end")
	flag.Uint64Var(&o.seed, "seed", 0, "repeats a run, or an episode with -one; 0 draws one")
	flag.BoolVar(&o.one, "one", false, "run the one episode that -seed is of, in the first -arena")
	flag.StringVar(&o.arenas, "arena", "direct", "comma-separated; each in turn: "+strings.Join(arenas(), ", ")+"; or all")
	flag.DurationVar(&o.faults, "faults", 8*time.Second, "how long faults go on in an episode")
	flag.DurationVar(&o.calm, "calm", 12*time.Second, "how long an episode goes on when they are over; the first half of it is not judged")
	flag.IntVar(&o.places, "places", 3, "places of an episode, with a process in each")
	flag.IntVar(&o.names, "names", 3, "names that all processes contend for")
	flag.StringVar(&o.broken, "broken", "", "a control, which the checks must see: "+strings.Join(controls(), ", "))
	flag.StringVar(&o.old, "old", "", "a revision of the repository: processes begin with the library as it was there, and are replaced one by one")
	flag.StringVar(&o.keep, "keep", "", "folder for the histories of all episodes; without it those with a violation are kept in a temporary one")
	flag.StringVar(&o.report, "report", "", "folder for report.html and report.md")
	flag.BoolVar(&o.planOnly, "plan", false, "print the plans only")
	flag.Parse()
	sound, err := run(ctx, o)
	switch {
	case err != nil && !errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	case !sound:
		os.Exit(1)
	}
}
