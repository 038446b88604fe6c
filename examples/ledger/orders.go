// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
)

// handle takes up what a worker says.
func (f *fleet) handle(m message) {
	w := m.worker
	switch m.Kind {
	case leads:
		f.leader, w.term = w, m.Term
		f.say("%s leads under term %d", w.name, m.Term)
	case holds:
		w.holding = true
	case wrote:
		w.outcome = m.Kind
		f.say("%s has written a row of term %d", w.name, m.Term)
	case refused:
		w.outcome = m.Kind
		f.say("%s: ErrFenced: %s", w.name, m.Text)
		if m.Current == 0 { // it has not asked the table, as it knew already
			m.Current = f.leader.term
		}
		f.say("Fence refused term %d of %s: the newer one is %d", m.Term, w.name, m.Current)
	case stops:
		w.outcome = m.Kind
	case trouble:
		f.trouble = w.name + ": " + m.Text
	case exits:
		delete(f.alive, w)
		if state := w.cmd.ProcessState; !w.killed && (!f.stopping || !state.Success()) {
			f.err = errors.Join(f.err, fmt.Errorf("worker %s has ended: %v", w.name, state))
		}
	}
}

// hold stops w in the middle of its next write.
func (f *fleet) hold(ctx context.Context, w *worker) error {
	w.holding = false
	if _, err := fmt.Fprintln(w.stdin, holdOrder); err != nil {
		return err
	}
	if err := f.until(ctx, "a write has begun", func() bool { return w.holding }); err != nil {
		return err
	}
	return signalStop(w.cmd.Process)
}

func (f *fleet) wake(w *worker) error {
	_, err := fmt.Fprintln(w.stdin, goOrder)
	return errors.Join(err, signalContinue(w.cmd.Process))
}

func (f *fleet) remove(w *worker) error {
	w.killed = true
	return w.cmd.Process.Kill()
}

// stop ends all workers and waits for them: their stdin ends, and a kill for who does not heed that.
func (f *fleet) stop() error {
	f.stopping = true
	for w := range f.alive {
		_ = w.stdin.Close()               // it may be closed already
		_ = signalContinue(w.cmd.Process) // it may be frozen, or have ended
	}
	ctx := context.Background() // also after Ctrl-C
	over := func() bool { return len(f.alive) == 0 }
	err := f.until(ctx, "the workers have ended", over)
	if err == nil {
		return f.err
	}
	for w := range f.alive {
		_ = w.cmd.Process.Kill() // it may have ended
	}
	return errors.Join(err, f.until(ctx, "the workers are dead", over), f.err)
}
