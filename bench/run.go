// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/oxygenhub/leader/bench/cost"
	"github.com/oxygenhub/leader/bench/report"
	"github.com/oxygenhub/leader/bench/result"
	"github.com/oxygenhub/leader/bench/takeover"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// options are those of the command line.
type options struct {
	out, only string
	quick     bool
}

// work is a thing to measure.
type work struct {
	name string
	run  func(ctx context.Context, o options, dir string, log func(string)) ([]result.Row, error)
}

// works are all of them, in the order in which they are done.
func works() []work {
	all := []work{
		{"handover", onTakeover(takeover.Handover)},
		{"kill", onTakeover(takeover.Kill)},
		{"session", onTakeover(takeover.Session)},
		{"hole", onTakeover(takeover.Hole)},
	}
	for _, w := range cost.Works() {
		all = append(all, work{w.Name, func(ctx context.Context, o options, dir string, log func(string)) ([]result.Row, error) {
			return w.Run(ctx, cost.Config{Quick: o.quick, Dir: dir, Log: log, Settings: cost.Fleets()})
		}})
	}
	return all
}

func onTakeover(run func(context.Context, takeover.Config) ([]result.Row, error)) func(context.Context, options, string, func(string)) ([]result.Row, error) {
	return func(ctx context.Context, o options, dir string, log func(string)) ([]result.Row, error) {
		return run(ctx, takeover.Config{Quick: o.quick, Dir: dir, Log: log})
	}
}

func names() (names []string) {
	for _, w := range works() {
		names = append(names, w.name)
	}
	return names
}

// run does the works that o asks for. One that fails does not spoil the others, whose numbers are kept; nor do those that it
// has got as far as it came.
func run(ctx context.Context, o options, out io.Writer) ([]result.Row, error) {
	chosen, err := choose(o.only)
	if err != nil {
		return nil, err
	}
	if o.out != "" { // now, and not after twenty minutes
		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return nil, fmt.Errorf("-out: %w", err)
		}
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	log := func(line string) { _, _ = fmt.Fprintf(out, "%6.1f s  %s\n", time.Since(begun).Seconds(), line) } // nothing depends on it
	var rows []result.Row
	var errs []error
	for _, w := range chosen {
		if ctx.Err() != nil {
			break
		}
		log(w.name)
		found, err := w.run(ctx, o, dir, log)
		rows = append(rows, found...)
		switch {
		case errors.Is(err, pgtest.ErrSkipped):
			log(fmt.Sprintf("NOT RUN HERE: %s: %v", w.name, err))
		case ctx.Err() != nil: // all that goes on has failed by that
		case err != nil:
			log(fmt.Sprintf("%s: FAILED", w.name))
			errs = append(errs, fmt.Errorf("%s: %w", w.name, err))
		}
	}
	log("done")
	errs = append(errs, table(out, rows), save(ctx, o, begun, rows), os.RemoveAll(dir), ctx.Err())
	return rows, errors.Join(errs...)
}

// again writes the page of an earlier run anew.
func again(from, out string) error {
	numbers, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var earlier result.Run
	if err := json.Unmarshal(numbers, &earlier); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if len(earlier.Rows) == 0 {
		return fmt.Errorf("%s: there are no rows in it", from)
	}
	if out == "" {
		return errors.New("-from writes a page: -out has to say where")
	}
	return report.Write(out, earlier)
}

// choose returns the works that are named, in their order, or all.
func choose(only string) (chosen []work, err error) {
	if only == "" {
		return works(), nil
	}
	wanted := strings.Split(only, ",")
	for i, name := range wanted {
		name = strings.TrimSpace(name)
		wanted[i] = name
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("work %q: there are %s", name, strings.Join(names(), ", "))
		}
	}
	for _, w := range works() {
		if slices.Contains(wanted, w.name) {
			chosen = append(chosen, w)
		}
	}
	return chosen, nil
}

// table prints the medians.
func table(out io.Writer, rows []result.Row) error {
	lines := []string{"\nwork\tpeer\tmeasure\tmedian\tmin\tmax\tsamples"}
	for _, r := range rows {
		peer := r.Peer
		if r.Setting != "" {
			peer += ", " + r.Setting
		}
		if r.X != 0 {
			peer += fmt.Sprintf(" (%g)", r.X)
		}
		if len(r.Samples) == 0 {
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t-\t\t\t0", r.Work, peer, r.Measure))
			continue
		}
		sorted := slices.Sorted(slices.Values(r.Samples))
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%.6g %s\t%.6g\t%.6g\t%d", r.Work, peer, r.Measure,
			sorted[len(sorted)/2], r.Unit, sorted[0], sorted[len(sorted)-1], len(sorted)))
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return errors.Join(err, w.Flush())
}

// save writes the report of a run that has begun at a time, and may have been interrupted.
func save(ctx context.Context, o options, begun time.Time, rows []result.Row) error {
	if o.out == "" {
		return nil
	}
	run := result.Run{
		Date: begun, Took: time.Since(begun).Seconds(), Machine: machine(), Versions: versions(context.WithoutCancel(ctx)), Quick: o.quick, Rows: rows,
	}
	switch {
	case ctx.Err() != nil:
		run.Partial = "It was interrupted, and some works are missing."
	case o.only != "":
		run.Partial = "It was asked for some works only: " + o.only + "."
	}
	return report.Write(o.out, run)
}
