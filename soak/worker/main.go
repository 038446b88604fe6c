// SPDX-License-Identifier: MIT

//go:build unix

// Command worker is one process of the fleet of the laboratory: it contends for names, works while it leads, and says on
// its tape what it does. It uses what the library exports, so that it can be built with an older version, too.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/soak/history"
	"github.com/oxygenhub/leader/soak/internal/crew"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// worker is the process.
type worker struct {
	job   crew.Job
	tape  *crew.Tape
	store store
	ops   atomic.Int64
	dice  atomic.Uint64 // random sources handed out
	tasks atomic.Pointer[string]
	work  sync.WaitGroup // all goroutines that end with the context of the process
	ears  sync.WaitGroup // those that hear of the events of a Leader
	deaf  context.CancelFunc
	alive context.Context //nolint:containedctx // until deaf
	leak  leak

	// calls is held for reading while a call is made, and for writing while a Leader takes the place of another: two of them
	// in one process are two processes to each other.
	calls sync.RWMutex

	mu sync.Mutex
	l  *leader.Leader
}

func run() error {
	w := &worker{}
	if err := json.Unmarshal([]byte(os.Getenv(crew.JobEnv)), &w.job); err != nil {
		return fmt.Errorf("%s: %w", crew.JobEnv, err)
	}
	var err error
	if w.tape, err = crew.Record(w.job.Tape, w.job.Node, w.job.Place); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if w.store, err = open(ctx, w.job); err != nil {
		return err
	}
	w.tasks.Store(&w.job.Tasks)
	w.alive, w.deaf = context.WithCancel(context.Background())
	defer w.deaf()
	w.tape.Say(history.Event{Kind: history.Up, PID: os.Getpid(), Version: w.job.Version})
	if err = w.renew(); err != nil {
		return err
	}
	for _, name := range w.job.Names {
		w.work.Go(func() { w.contend(ctx, name) })
		w.work.Go(func() { w.tries(ctx, name) })
	}
	samples := make(chan struct{})
	go func() { // until ctx ends
		defer close(samples)
		w.sample(ctx)
	}()
	w.harm(ctx)
	w.obey(ctx)
	cancel()
	w.work.Wait()
	<-samples
	w.resign(w.current())
	w.deaf()
	w.ears.Wait()
	w.tape.Say(history.Event{Kind: history.Down})
	return nil // the pool is not closed: that waits for connections which a broken network may hold
}

// obey carries out the orders until the process is to leave.
func (w *worker) obey(ctx context.Context) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		order, arg, _ := strings.Cut(lines.Text(), " ")
		switch order {
		case crew.Leave:
			return
		case crew.Resign:
			w.work.Go(w.comeBack)
		case crew.Clock:
			d, err := time.ParseDuration(arg)
			if err != nil || !jump(w.current(), d) {
				w.broken("the clock does not jump by %q", arg)
			}
		case crew.Storm:
			n, _ := strconv.Atoi(arg)
			w.storm(ctx, n)
		case crew.Tasks:
			w.tasks.Store(&arg)
		default:
			w.broken("nobody knows the order %q", order)
		}
	}
}

// comeBack resigns, and has a new Leader when all calls of the old one have returned.
func (w *worker) comeBack() {
	var resign sync.WaitGroup
	old := w.current()
	resign.Go(func() { w.resign(old) })
	w.calls.Lock() // from now on no call begins
	defer w.calls.Unlock()
	resign.Wait()
	if err := w.renew(); err != nil {
		w.broken("New: %v", err)
	}
}

// renew puts a new Leader in the place of the current one.
func (w *worker) renew() error {
	namespace := w.job.Namespace
	if w.job.Broken == crew.Split && w.job.Place%2 == 0 {
		namespace += "-b"
	}
	options := leader.Options{
		Node: w.job.Node, Retry: w.job.Timing.Retry, Check: w.job.Timing.Check, Lease: w.job.Timing.Lease,
		SessionTimeout: w.job.Timing.SessionTimeout, Terms: true,
	}
	backend := w.store.backend()
	if w.job.SQL == "" {
		options.Namespace, options.Schema = namespace, "public"
	}
	l, err := leader.New(backend, options)
	if err != nil {
		return err
	}
	events := l.Watch(w.alive)
	w.ears.Go(func() { // until l has resigned, or deaf
		for e := range events {
			w.heard(e)
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.l = l
	return nil
}

func (w *worker) current() *leader.Leader {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.l
}

// resign ends l. The network may be broken, so it is bounded; a task that goes on is waited for by its own call.
func (w *worker) resign(l *leader.Leader) {
	op := w.ops.Add(1)
	w.tape.Say(history.Event{Kind: history.Resign, Op: op})
	ctx, cancel := context.WithTimeout(context.Background(), 2*w.job.Timing.SessionTimeout)
	defer cancel()
	w.tape.Say(history.Event{Kind: history.Done, Op: op, Text: text(l.Resign(ctx))})
}

// heard notes what concerns the session, and what holds a takeover up.
func (w *worker) heard(e leader.Event) {
	switch e.Kind {
	case leader.Connected, leader.Unreachable, leader.Unsupported, leader.Disconnected, leader.Refused, leader.Blocked,
		leader.TermsRefused, leader.Unmarked, leader.Overrun:
		w.tape.Say(history.Event{Kind: history.Sessions, Cause: history.Cause(e.Kind), Name: e.Name, Term: int64(e.Term), Text: text(e.Err)})
	}
}

// random is a source for one goroutine.
func (w *worker) random() *rand.Rand { return rand.New(rand.NewPCG(w.job.Seed, w.dice.Add(1))) }

func (w *worker) broken(format string, args ...any) {
	w.tape.Say(history.Event{Kind: history.Broken, Text: fmt.Sprintf(format, args...)})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
