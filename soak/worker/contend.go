// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/soak/history"
	"github.com/oxygenhub/leader/soak/internal/crew"
)

// errPanic is what a task of the laboratory panics with.
var errPanic = errors.New("a panic of the laboratory")

// contend runs tasks of name until ctx ends.
func (w *worker) contend(ctx context.Context, name string) {
	for ctx.Err() == nil {
		err := w.call(ctx, name, false)
		switch {
		case err == nil, errors.Is(err, errPanic), errors.Is(err, leader.ErrResigned):
		case ctx.Err() == nil:
			w.broken("Run of %s returned %v", name, err)
			return
		}
	}
}

// tries asks for name now and then, as a job that some process of the fleet should do, beside the Run of the same process.
func (w *worker) tries(ctx context.Context, name string) {
	random := w.random()
	for pause(ctx, time.Second/2+time.Duration(random.Int64N(int64(2*time.Second)))) {
		short, cancel := context.WithTimeout(ctx, w.job.Timing.SessionTimeout)
		_ = w.call(short, name, true) // that it could not ask is on the tape
		cancel()
	}
}

// storm makes many calls at once, which end soon.
func (w *worker) storm(ctx context.Context, n int) {
	for i := range n {
		random := w.random()
		name := w.job.Names[random.IntN(len(w.job.Names))]
		w.work.Go(func() { // for less than a second
			short, cancel := context.WithTimeout(ctx, time.Duration(random.Int64N(int64(600*time.Millisecond))))
			defer cancel()
			_ = w.call(short, name, i%2 == 0) // mostly its context has ended
		})
	}
}

// call is one Run or Try, from its begin to its end.
func (w *worker) call(ctx context.Context, name string, once bool) error {
	w.calls.RLock()
	defer w.calls.RUnlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	op := w.ops.Add(1)
	w.tape.Say(history.Event{Kind: history.Contend, Op: op, Name: name, Once: once})
	ran, err := w.protected(ctx, w.current(), op, name, once)
	if errors.Is(err, errGone) {
		<-ctx.Done() // the control Once: it seems to contend on
	}
	w.tape.Say(history.Event{Kind: history.Done, Op: op, Name: name, Once: once, Ran: ran, Text: text(err)})
	return err
}

// errGone is the end of a Run that a library which does not contend again would not even return from.
var errGone = errors.New("lost, and not contending again")

// protected turns the panic of a task, which unwinds through Run, into an error.
func (w *worker) protected(ctx context.Context, l *leader.Leader, op int64, name string, once bool) (ran bool, err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case errPanic:
			ran, err = true, errPanic
		default:
			w.broken("a panic: %v", p)
			ran, err = true, fmt.Errorf("a panic: %v", p)
		}
	}()
	if once {
		return l.Try(ctx, name, func(ctx context.Context) error { return w.task(ctx, op, name, once) })
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = l.Run(ctx, name, func(task context.Context) error {
		err := w.task(task, op, name, once)
		if w.job.Broken == crew.Once && errors.Is(context.Cause(task), leader.ErrLost) {
			cancel(errGone)
		}
		return err
	})
	if errors.Is(context.Cause(ctx), errGone) {
		err = errGone
	}
	return true, err
}

// pause returns false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
