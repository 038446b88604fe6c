// SPDX-License-Identifier: MIT

//go:build unix

// Package fleet runs an episode: it starts a database and processes that contend on it, has faults happen, and collects
// what the processes and the database say.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/soak/faults"
	"github.com/oxygenhub/leader/soak/history"
	"github.com/oxygenhub/leader/soak/internal/crew"
)

// Config says what an episode is.
type Config struct {
	Seed     uint64
	Arena    string // one of Arenas
	Places   int
	Names    []string
	Timing   history.Timing
	StopTime time.Duration
	Broken   string        // the control: see crew.Broken
	Tasks    string        // the kind of all tasks; "" is a mix
	Shift    time.Duration // how long a short task lasts at most; 0 is 2 s
	Plan     []faults.Fault
	Calm     time.Duration // how long the fleet goes on after the faults

	Worker Worker
	Old    *Worker // the first process of each place is of it; those that follow are of Worker
	Dir    string  // where the tapes go
	Log    func(string)
	Server *Server // to share one; nil: one of its own
}

// Arenas are the kinds of databases, and of ways to them.
func Arenas() []string { return []string{"direct", "sqlite", "pooler", "replica", "remote"} }

// Fleet is a database, the places from which it is reached, and the processes there.
type Fleet struct {
	Config

	ctx    context.Context //nolint:containedctx // of the episode, which is one call
	stage  *pgtest.Stage
	tape   *crew.Tape
	base   base
	places []*place
}

// base is the database of an arena.
type base interface {
	faulty
	prepare(ctx context.Context, f *Fleet) error // makes the places, too
	urls(p *place) (lock, app string)
	driver() string // of database/sql, "" for PostgreSQL
	version() string
	led(ctx context.Context) (names int, err error) // how many names have a row in the ledger
	load(ctx context.Context) (history.Event, error)
	rest()                                                 // all processes are gone
	commits(ctx context.Context) ([]history.Commit, error) // when all processes are gone
}

// faulty is what can be done to a database.
type faulty interface {
	terminate(ctx context.Context, apps func() []string) (now func() error, err error)
	stop(mode string) error
	start() error
	crashBackend(ctx context.Context) error
	fillLocks(ctx context.Context) (empty func() error, err error)
	readOnly(ctx context.Context, on bool) error
	bounce(on bool) error
	promote(ctx context.Context) error
	fillDisk() (empty func() error, err error)
	cut(place int, how string) error
	mend(place int) error
}

// Run is an episode. It returns it also with an error, as far as it came; pgtest.ErrSkipped says that this machine cannot
// have it. When ctx ends it takes all away and returns.
func Run(ctx context.Context, c Config) (*history.Episode, error) {
	f := &Fleet{Config: c, ctx: ctx, stage: pgtest.NewStage(ctx, "soak", c.Dir, c.Log)}
	ep := &history.Episode{
		Seed: c.Seed, Backend: "postgres", Arena: c.Arena, Broken: c.Broken, Options: c.Timing, StopTime: c.StopTime,
		Names: c.Names, Places: c.Places,
	}
	var err error
	if f.base, err = newBase(c); err != nil {
		return ep, err
	}
	if f.base.driver() != "" {
		ep.Backend = f.base.driver()
	}
	if f.tape, err = crew.Record(filepath.Join(c.Dir, laboratory), "", 0); err != nil {
		return ep, err
	}
	var inner error
	err = f.stage.Try(func() { inner = f.episode(ep) })
	f.killAll()
	err = errors.Join(err, inner, f.tape.Close(), f.play(ep), f.stage.End())
	return ep, err
}

// laboratory is the name of its own tape.
const laboratory = "laboratory.jsonl"

// episode is all of it, but for what is on the tapes.
func (f *Fleet) episode(ep *history.Episode) error {
	if err := f.base.prepare(f.ctx, f); err != nil {
		return err
	}
	ep.Server = f.base.version()
	f.Say(history.Event{Kind: history.Begin, Text: fmt.Sprintf("%s %s, seed %d", f.Arena, ep.Server, f.Seed)})
	for _, p := range f.places {
		if err := p.renew(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(f.ctx)
	loads := make(chan struct{})
	go func() { // until cancel
		defer close(loads)
		f.loads(ctx)
	}()
	err := f.happen(ctx)
	cancel()
	<-loads
	if err != nil {
		return err
	}
	f.base.rest()
	err = f.lastLoad(f.ctx)
	var more error
	ep.Commits, more = f.base.commits(f.ctx)
	return errors.Join(err, more)
}

// happen is what is done to the fleet, from its first task to its last.
func (f *Fleet) happen(ctx context.Context) error {
	err := f.led(ctx, warm)
	err = errors.Join(err, faults.Inflict(ctx, f, f.Timing, f.Plan))
	f.Say(history.Event{Kind: history.Calm})
	select {
	case <-time.After(f.Calm):
	case <-ctx.Done():
	}
	f.Say(history.Event{Kind: history.Close})
	err = errors.Join(err, f.leaveAll())
	f.Say(history.Event{Kind: history.End})
	return errors.Join(err, ctx.Err())
}

// lastLoad says what the database has when all processes are gone, and what they have left has had time to go: a session
// whose end the server has not heard of is there for a SessionTimeout. What could not be looked at is not called empty.
func (f *Fleet) lastLoad(ctx context.Context) error {
	var e history.Event
	var err error
	for deadline := time.Now().Add(f.Timing.SessionTimeout + 5*time.Second); time.Now().Before(deadline) && ctx.Err() == nil; {
		if e, err = f.base.load(ctx); err == nil && e.Backends == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("look at what the fleet has left: %w", err)
	}
	e.Kind = history.Load
	f.Say(e)
	return nil
}

// warm is how long a fleet may take until the faults begin.
const warm = 20 * time.Second

// led returns when each name has been led once, and has written. A fleet that does not get so far has nothing to show.
func (f *Fleet) led(ctx context.Context, patience time.Duration) error {
	var names int
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && ctx.Err() == nil; {
		if names, err = f.base.led(ctx); err == nil && names >= len(f.Names) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.Join(err, fmt.Errorf("%d of %d names had a fenced row after %v", names, len(f.Names), patience))
}

// loads says each second what the database has.
func (f *Fleet) loads(ctx context.Context) {
	for ticks := time.NewTicker(time.Second); ; {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			ticks.Stop()
			return
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		e, err := f.base.load(short)
		cancel()
		if err != nil {
			continue // the server may be away
		}
		e.Kind = history.Load
		f.Say(e)
	}
}

func (f *Fleet) leaveAll() error {
	var work sync.WaitGroup
	all := f.procs()
	errs := make([]error, len(all))
	for i, w := range all {
		work.Go(func() { errs[i] = w.leave() })
	}
	work.Wait()
	return errors.Join(errs...)
}

// killAll is for when something went wrong; it does nothing to those that have left.
func (f *Fleet) killAll() {
	for _, w := range f.procs() {
		w.kill()
	}
}

func (f *Fleet) procs() (all []*proc) {
	for _, p := range f.places {
		all = append(all, p.all()...)
	}
	return all
}

// program is what a process of a place is built with, counted from 1.
func (f *Fleet) program(born int) Worker {
	if f.Old != nil && born == 1 {
		return *f.Old
	}
	return f.Worker
}

// job is what a process does.
func (f *Fleet) job(p *place, node string, born int, version string) crew.Job {
	lock, app := f.base.urls(p)
	return crew.Job{
		Node: node, Place: p.id, Version: version, Tape: filepath.Join(f.Dir, node+".jsonl"),
		Lock: lock, App: app, SQL: f.base.driver(),
		Namespace: "public", Timing: f.Timing, StopTime: f.StopTime, Names: f.Names,
		Seed: f.Seed<<16 + uint64(p.id)<<8 + uint64(born), Tasks: f.Tasks, Shift: f.Shift, Broken: f.Broken,
	}
}

// play collects the tapes.
func (f *Fleet) play(ep *history.Episode) error {
	tapes, err := filepath.Glob(filepath.Join(f.Dir, "*.jsonl"))
	for _, path := range tapes {
		events, bad := crew.Play(path)
		err = errors.Join(err, bad)
		ep.Events = append(ep.Events, events...)
	}
	slices.SortStableFunc(ep.Events, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	return err
}
