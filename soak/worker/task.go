// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/soak/history"
	"github.com/oxygenhub/leader/soak/internal/crew"
)

// shift is one leadership: what a task is about.
type shift struct {
	*worker

	op     int64
	name   string
	term   int64
	kind   string
	shared bool // several writers, with FenceShared
	random *rand.Rand
	fenced atomic.Bool // a transaction was refused

	quit chan struct{} // closed when the work is over
	told chan struct{} // closed when the goroutine that waits for the end of the context has ended
}

// task is what leads. It says so first, and last that it is over.
func (w *worker) task(ctx context.Context, op int64, name string, once bool) error {
	start := crew.Now() // before anything that could take time
	term, ok := leader.TermOf(ctx)
	if !ok {
		w.broken("a task of %s without a term", name)
	}
	s := &shift{
		worker: w, op: op, name: name, term: int64(term), random: w.random(),
		quit: make(chan struct{}), told: make(chan struct{}),
	}
	s.kind = s.choose(once)
	s.shared = w.job.SQL == "" && s.random.IntN(4) == 0
	w.tape.Say(history.Event{
		At: start, Kind: history.Start, Op: op, Name: name, Term: s.term, Once: once, Text: s.kind, Stubborn: s.kind == crew.Stubborn,
	})
	ctx, cancel := w.believe(ctx)
	defer cancel()
	go s.listen(ctx) // until the work is over, which end waits for
	w.leak.term(w.job)
	if w.job.Broken == crew.Early {
		return s.early(ctx)
	}
	defer s.end()
	s.do(ctx)
	if s.kind == crew.Panics && ctx.Err() == nil {
		panic(errPanic)
	}
	return nil
}

// listen says when the context has ended.
func (s *shift) listen(ctx context.Context) {
	defer close(s.told)
	select {
	case <-ctx.Done():
	case <-s.quit:
		return
	}
	at, reason := crew.Now(), context.Cause(ctx)
	cause := history.CauseCaller
	switch {
	case errors.Is(reason, leader.ErrLost):
		cause = history.CauseLost
	case errors.Is(reason, leader.ErrResigned):
		cause = history.CauseResigned
	}
	s.tape.Say(history.Event{At: at, Kind: history.Told, Op: s.op, Name: s.name, Term: s.term, Cause: cause, Text: text(reason)})
}

func (s *shift) end() {
	close(s.quit)
	<-s.told
	s.tape.Say(history.Event{Kind: history.Stop, Op: s.op, Name: s.name, Term: s.term})
}

// choose draws the kind of the task, unless it is ordered.
func (s *shift) choose(once bool) string {
	if kind := *s.tasks.Load(); kind != "" {
		return kind
	}
	switch dice := s.random.IntN(20); {
	case once || dice < 6:
		return crew.Short
	case dice < 13:
		return crew.Ordinary
	case dice < 17:
		return crew.Slow
	case dice < 19:
		return crew.Stubborn
	}
	return crew.Panics
}

// do works for as long as the kind of the task wants.
func (s *shift) do(ctx context.Context) {
	deaf := context.WithoutCancel(ctx)
	long := s.between(time.Second, 2*s.job.Timing.SessionTimeout+time.Second)
	switch s.kind {
	case crew.Ordinary:
		s.write(ctx, ctx)
	case crew.Slow:
		s.write(ctx, ctx)
		// It brings its work to an end with what it has begun: those writes are fenced, too.
		late, cancel := context.WithTimeout(deaf, s.job.StopTime/2+s.between(0, s.job.StopTime/4))
		defer cancel()
		s.write(late, late)
	case crew.Stubborn:
		late, cancel := context.WithTimeout(deaf, long)
		defer cancel()
		s.write(late, late)
	case crew.Panics, crew.Short:
		most := s.job.Shift
		if most == 0 {
			most = 2 * time.Second
		}
		short, cancel := context.WithTimeout(ctx, s.between(most/10, most))
		defer cancel()
		s.write(short, short)
	}
}

// write appends to the ledger until until ends, with transactions that ctx ends. Whoever was refused waits for the end.
func (s *shift) write(ctx, until context.Context) {
	writers := 1
	if s.shared {
		writers = 2
	}
	var work sync.WaitGroup
	for range writers {
		random := rand.New(rand.NewPCG(s.random.Uint64(), 0))
		work.Go(func() { // until until ends
			for until.Err() == nil && !s.fenced.Load() {
				s.append(ctx, random)
				if !pause(until, time.Duration(random.IntN(30))*time.Millisecond) {
					return
				}
			}
		})
	}
	work.Wait()
	if s.fenced.Load() {
		<-until.Done()
	}
}

// append writes a row. That it fails is no matter: the network of the application may be broken.
func (s *shift) append(ctx context.Context, random *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	err := s.store.append(ctx, row{shift: s, random: random})
	if errors.Is(err, leader.ErrFenced) && s.fenced.CompareAndSwap(false, true) {
		s.tape.Say(history.Event{Kind: history.Fenced, Op: s.op, Name: s.name, Term: s.term, Text: err.Error()})
	}
}

func (s *shift) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.random.Int64N(int64(max(1, most-least))))
}
