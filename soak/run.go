// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/soak/check"
	"github.com/oxygenhub/leader/soak/faults"
	"github.com/oxygenhub/leader/soak/fleet"
	"github.com/oxygenhub/leader/soak/history"
	"github.com/oxygenhub/leader/soak/internal/crew"
	"github.com/oxygenhub/leader/soak/report"
)

// options are those of the command line.
type options struct {
	length, faults, calm time.Duration
	seed                 uint64
	one, planOnly        bool
	arenas, broken, old  string
	places, names        int
	keep, report         string
}

func arenas() []string   { return fleet.Arenas() }
func controls() []string { return crew.Broken() }

// timing is short, so that much happens in an episode.
func timing() history.Timing {
	return history.Timing{
		Retry: 100 * time.Millisecond, Check: 100 * time.Millisecond, Lease: 600 * time.Millisecond, SessionTimeout: 1500 * time.Millisecond,
	}
}

// stopTime is how long a task that heeds its context may take: less than SessionTimeout - Lease.
const stopTime = 400 * time.Millisecond

// run is the whole run. It is not sound if an episode has a violation.
func run(ctx context.Context, o options) (sound bool, err error) {
	if err = o.validate(); err != nil {
		return false, err
	}
	o.seed = cmp.Or(o.seed, rand.Uint64()>>12) // short enough to type
	chosen := strings.Split(o.arenas, ",")
	if o.arenas == "all" {
		chosen = arenas()
	}
	fmt.Printf("seed %d, arenas %s, for %v\n", o.seed, strings.Join(chosen, " "), o.length)
	dir, err := os.MkdirTemp("", "soak")
	if err != nil {
		return false, err
	}
	if err = os.Chmod(dir, 0o755); err != nil { // the servers run as another user
		return false, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is to be kept has been moved
	worker, err := fleet.Build(ctx, dir, version(ctx))
	if err != nil {
		return false, err
	}
	r := &soak{options: o, dir: dir, worker: worker, next: chosen, run: report.Run{
		Seed: o.seed, Command: o.command(), Began: time.Now(), Machine: machine(),
		Versions: []string{runtime.Version(), "leader " + worker.Version},
		Options: []string{
			fmt.Sprintf("%d places", o.places), fmt.Sprintf("%d names", o.names),
			fmt.Sprintf("%v of faults and %v of calm in each episode", o.faults, o.calm),
		},
	}}
	if o.old != "" {
		old, err := fleet.BuildOld(ctx, dir, o.old)
		if err != nil {
			return false, err
		}
		r.before = &old
		r.run.Versions = append(r.run.Versions, "leader "+o.old+", replaced in the course of each episode")
	}
	seeds := rand.New(rand.NewPCG(o.seed, 0))
	for n := 1; ctx.Err() == nil && len(r.next) > 0; n++ {
		seed := seeds.Uint64() >> 12
		if o.one {
			seed = o.seed
		}
		err = r.episode(ctx, n, seed, r.next[0])
		r.turn()
		if err != nil || o.one || time.Since(r.run.Began) > o.length {
			break
		}
	}
	return r.finish(err)
}

// validate refuses what would make a run that says nothing.
func (o options) validate() error {
	if o.broken != "" && !slices.Contains(controls(), o.broken) {
		return fmt.Errorf("-broken %q: there are %s", o.broken, strings.Join(controls(), ", "))
	}
	if least := check.Grace(timing()) + judged; o.calm < least {
		return fmt.Errorf("-calm %v: with less than %v the calm is not judged", o.calm, least)
	}
	return nil
}

// judged is how much of the calm is judged at least: two of the looks at the database, which come each second, and a takeover.
const judged = 3 * time.Second

// turn has the arena that was next come last, or, if it cannot be run here, no more.
func (r *soak) turn() {
	arena := r.next[0]
	r.next = r.next[1:]
	if !slices.Contains(r.skipped, arena) {
		r.next = append(slices.Clip(r.next), arena)
	}
}

// soak is a run.
type soak struct {
	options

	dir     string
	worker  fleet.Worker
	before  *fleet.Worker // that is replaced
	run     report.Run
	next    []string // arenas, in their order
	skipped []string // arenas that this machine cannot have
}

// episode is one of the run. Its error is one of the laboratory, not a violation.
func (r *soak) episode(ctx context.Context, n int, seed uint64, arena string) error {
	c := fleet.Config{
		Seed: seed, Arena: arena, Places: r.places, Timing: timing(), StopTime: stopTime, Broken: r.broken, Calm: r.calm,
		Worker: r.worker, Dir: filepath.Join(r.dir, fmt.Sprintf("episode-%d-seed-%d", n, seed)),
		Log: func(text string) { fmt.Println("    " + strings.ReplaceAll(text, "\n", "\n    ")) },
	}
	for i := range r.names {
		c.Names = append(c.Names, string(rune('a'+i)))
	}
	c.Plan = faults.Plan(seed, arena, r.places, c.Timing, r.faults)
	if c.Old = r.before; c.Old != nil {
		c.Plan = faults.Deploy(c.Plan, r.places, r.faults)
	}
	fmt.Printf("episode %d: %s, seed %d, %d faults\n", n, arena, seed, len(c.Plan))
	for _, f := range c.Plan {
		fmt.Println("   ", f)
	}
	if r.planOnly {
		return nil
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	began := time.Now()
	ep, err := fleet.Run(ctx, c)
	if errors.Is(err, pgtest.ErrSkipped) {
		fmt.Printf("episode %d: NOT RUN HERE: %s: %v\n", n, arena, err)
		r.skipped = append(r.skipped, arena)
		return nil
	}
	if err != nil {
		r.run.Episodes = append(r.run.Episodes, report.Episode{History: ep, Result: check.All(ep), Trouble: err.Error()})
		return errors.Join(err, r.retain(ep, c.Dir, cmp.Or(r.keep, kept())))
	}
	return r.judge(n, ep, c.Dir, time.Since(began))
}

// judge checks an episode, prints the verdict, and keeps it if it is wanted.
func (r *soak) judge(n int, ep *history.Episode, dir string, took time.Duration) error {
	result := check.All(ep)
	r.run.Episodes = append(r.run.Episodes, report.Episode{History: ep, Result: result})
	for _, v := range result.Violations {
		fmt.Printf("    VIOLATION: %s: %s: %s\n", v.Rule, v.Name, v.Text)
	}
	fmt.Printf("episode %d: %d violations, in %v; %s\n", n, len(result.Violations), took.Round(100*time.Millisecond), counts(result.Counts))
	if len(result.Violations) == 0 {
		return r.retain(ep, dir, r.keep)
	}
	return r.retain(ep, dir, cmp.Or(r.keep, kept()))
}

// kept is where an episode with a violation is kept that nobody has asked for.
func kept() string { return filepath.Join(os.TempDir(), "soak-violations") }

func counts(of map[string]int) string {
	var words []string
	for _, what := range slices.Sorted(maps.Keys(of)) {
		words = append(words, fmt.Sprintf("%s %d", what, of[what]))
	}
	return strings.Join(words, ", ")
}

// retain keeps an episode where somebody will look for it, or nowhere.
func (r *soak) retain(ep *history.Episode, dir, where string) error {
	if where == "" {
		return os.RemoveAll(dir)
	}
	to := filepath.Join(where, filepath.Base(dir))
	if err := os.MkdirAll(where, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-R", dir, to).CombinedOutput(); err != nil { //nolint:noctx // of a small folder
		return fmt.Errorf("keep %s: %w: %s", dir, err, out)
	}
	fmt.Println("    kept in", to)
	return errors.Join(write(filepath.Join(to, "episode.json"), ep), write(filepath.Join(to, "commits.jsonl"), ep.Commits...),
		os.RemoveAll(dir))
}

// write puts values into a file, a line each.
func write[T any](path string, values ...T) error {
	var text bytes.Buffer
	for _, v := range values {
		line, err := json.Marshal(v)
		if err != nil {
			return err
		}
		text.Write(append(line, '\n'))
	}
	return os.WriteFile(path, text.Bytes(), 0o600)
}

// finish is the end of the run: the report, and the verdict.
func (r *soak) finish(err error) (sound bool, _ error) {
	if r.planOnly {
		return true, err
	}
	r.run.Took = time.Since(r.run.Began)
	for _, arena := range r.skipped {
		r.run.Options = append(r.run.Options, "not run here: "+arena)
		fmt.Println("NOT RUN HERE:", arena)
	}
	for _, arena := range r.unreached() {
		r.run.Options = append(r.run.Options, "not reached in the time: "+arena)
		fmt.Println("NOT REACHED IN THE TIME:", arena)
	}
	if r.report != "" && len(r.run.Episodes) > 0 {
		err = errors.Join(err, report.Write(r.report, r.run))
		fmt.Println("report in", r.report)
	}
	sound = r.run.OK()
	verdict := "as it must be"
	if !sound {
		verdict = "NOT as it must be"
	}
	fmt.Printf("%d episodes in %v: %s; %s repeats it\n", len(r.run.Episodes), r.run.Took.Round(time.Second), verdict, r.run.Command)
	return sound, err
}

// unreached are the arenas that were to be run, and had no turn.
func (r *soak) unreached() []string {
	return slices.DeleteFunc(slices.Clone(r.next), func(arena string) bool {
		return slices.ContainsFunc(r.run.Episodes, func(e report.Episode) bool { return e.History.Arena == arena })
	})
}

// command repeats a run.
func (o options) command() string {
	text := fmt.Sprintf("go run ./soak -for %v -seed %d -arena %s -faults %v -calm %v -places %d -names %d",
		o.length, o.seed, o.arenas, o.faults, o.calm, o.places, o.names)
	if o.one {
		text += " -one"
	}
	if o.old != "" {
		text += " -old " + o.old
	}
	if o.broken != "" {
		text += " -broken " + o.broken
	}
	return text
}

func machine() string {
	return fmt.Sprintf("%s/%s, %d processors", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}

// version is that of the source, as far as git knows.
func version(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--tags").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
