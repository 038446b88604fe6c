// SPDX-License-Identifier: MIT

//go:build unix

// Command bench measures this library and what a user would pick instead, in one run on one machine. Run it as `make bench`,
// from the root of the repository.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/oxygenhub/leader/bench/cost"
	"github.com/oxygenhub/leader/bench/peer"
)

func main() {
	if job, ok := os.LookupEnv(peer.JobEnv); ok { // started by ourselves
		if err := peer.Work(context.Background(), job, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if was, err := cost.Starter(context.Background()); was { // by ourselves as well
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var o options
	flag.StringVar(&o.out, "out", "", "folder for a page with tables, drawings and the numbers; without it a table is printed only")
	flag.StringVar(&o.only, "only", "", "comma-separated works, instead of all: "+strings.Join(names(), ", "))
	from := flag.String("from", "", "the numbers of an earlier run, as docs/benchmarks.json: write their page anew, and measure nothing")
	flag.BoolVar(&o.quick, "quick", false, "the fewest repeats, without the peers that wait for long: to see that all works, not to measure")
	flag.Parse()
	var err error
	switch {
	case flag.NArg() > 0: // a flag behind it would be none
		err = fmt.Errorf("argument %q: there are only flags, see -help", flag.Arg(0))
	case *from != "":
		err = again(*from, o.out)
	default:
		_, err = run(ctx, o, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
