// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"
)

// Kinds of messages of a worker to the parent.
const (
	asks    = "asks"    // for the lock of Task
	runs    = "runs"    // Task, since At
	stops   = "stops"   // the run of Task
	trouble = "trouble" // with Task or with the database
	exits   = "exits"   // not sent: the process has ended
)

// How a worker was made to leave.
const (
	killed   = "killed"
	resigned = "resigned"
)

var errLate = errors.New("the time is over")

// message is a line on the standard output of a worker.
type message struct {
	Kind string    `json:"kind"`
	Task string    `json:"task,omitempty"`
	At   time.Time `json:"at,omitzero"`
	Text string    `json:"text,omitempty"`

	worker *worker
}

// worker is the parent's view of a worker process.
type worker struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	how   string               // the worker was made to leave; "" before
	left  time.Time            // when
	asked map[string]bool      // tasks that it has asked for
	runs  map[string]time.Time // tasks that it runs, and since when
	over  bool                 // the process has ended
}

func (w *worker) running() int { return len(w.runs) }

// fleet is the workers. All of it belongs to one goroutine, but for messages.
type fleet struct {
	dir      string
	screen   *screen
	workers  []*worker
	messages chan message
	newest   time.Time // when the last run started
	stopping bool
	trouble  string // the last one that a worker told of
	err      error  // a worker failed
}

// start starts worker number i: this very program.
func (f *fleet) start(i int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	w := &worker{name: workers[i].name, asked: make(map[string]bool), runs: make(map[string]time.Time)}
	w.cmd = exec.CommandContext(context.Background(), self, workerArg, w.name, f.dir) // ended by stop, not by a context
	w.cmd.Stderr = os.Stderr
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := w.cmd.Start(); err != nil {
		return err
	}
	f.workers = append(f.workers, w)
	go f.listen(w, stdout) // ends with the process; stop waits for it
	return nil
}

// listen hands the lines of a worker on, and then its end.
func (f *fleet) listen(w *worker, stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		m := message{worker: w}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			m.Kind, m.Text = trouble, lines.Text()
		}
		f.messages <- m
	}
	_ = w.cmd.Wait() // ProcessState says it as well
	f.messages <- message{Kind: exits, worker: w}
}

// until handles what comes in until done says so, and returns errLate when the time is over.
func (f *fleet) until(ctx context.Context, atMost time.Duration, done func() bool) error {
	late := time.NewTimer(atMost)
	defer late.Stop()
	redraw := time.NewTicker(100 * time.Millisecond)
	defer redraw.Stop()
	for {
		f.screen.draw(f.workers)
		if err := f.err; err != nil && !f.stopping {
			f.err = nil // stop tells what comes later
			return err
		}
		if done() {
			return nil
		}
		select {
		case m := <-f.messages:
			f.handle(m)
		case <-redraw.C:
		case <-late.C:
			return errLate
		case <-ctx.Done():
			return errors.New("interrupted")
		}
	}
}

func (f *fleet) handle(m message) {
	w := m.worker
	switch {
	case m.Kind == exits:
		w.over = true
		clear(w.runs)
		unasked := w.how == "" && !f.stopping
		if state := w.cmd.ProcessState; w.how != killed && (unasked || !state.Success()) {
			f.err = errors.Join(f.err, fmt.Errorf("worker %s has ended: %v", w.name, state))
		}
	case w.how == killed: // said before its death: too late to be true
	case m.Kind == asks:
		w.asked[m.Task] = true
	case m.Kind == runs:
		w.runs[m.Task], f.newest = m.At, m.At
		f.screen.say("%s runs %s%s", w.name, m.Task, f.after(m.At))
	case m.Kind == stops:
		delete(w.runs, m.Task)
	case m.Kind == trouble:
		f.trouble = w.name + ": " + m.Text
		f.screen.say("%s", f.trouble)
	}
}

// after tells how long after the last departure a task runs.
func (f *fleet) after(at time.Time) string {
	var last time.Time
	for _, w := range f.workers {
		if w.left.After(last) {
			last = w.left
		}
	}
	if last.IsZero() {
		return ""
	}
	return " after " + ms(at.Sub(last))
}

// settled reports whether each task runs in a worker that is to stay, and all who stay have asked for each task.
func (f *fleet) settled() bool {
	for _, task := range tasks {
		running := false
		for _, w := range f.workers {
			if w.how != "" {
				continue
			}
			if !w.asked[task] {
				return false
			}
			if _, ok := w.runs[task]; ok {
				running = true
			}
		}
		if !running {
			return false
		}
	}
	return true
}

// busiest returns the worker that runs the most tasks.
func (f *fleet) busiest() *worker {
	return slices.MaxFunc(f.workers, func(a, b *worker) int { return a.running() - b.running() })
}

// remove makes a worker leave.
func (f *fleet) remove(w *worker, how string) error {
	w.how, w.left = how, time.Now()
	if how == killed {
		clear(w.runs)
		return w.cmd.Process.Kill()
	}
	_, err := fmt.Fprintln(w.stdin, resignOrder)
	return err
}

// stop ends all workers and waits for them: their stdin ends, and a kill for who does not heed that.
func (f *fleet) stop() error {
	f.stopping = true
	for _, w := range f.workers {
		_ = w.stdin.Close() // it may be closed already
	}
	over := func() bool {
		return !slices.ContainsFunc(f.workers, func(w *worker) bool { return !w.over })
	}
	ctx := context.Background() // also after Ctrl-C
	err := f.until(ctx, 5*time.Second, over)
	if err == nil {
		return f.err
	}
	for _, w := range f.workers {
		_ = w.cmd.Process.Kill() // it may have ended
	}
	return errors.Join(fmt.Errorf("stop the workers: %w", err), f.until(ctx, 5*time.Second, over), f.err)
}
