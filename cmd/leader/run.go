// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oxygenhub/leader"
)

const (
	// lease is that of the library, and slack what SessionTimeout has beyond it and the time to kill.
	lease, slack = 6 * time.Second, time.Second
	// tryPatience is how long --try waits for the database to answer.
	tryPatience = 30 * time.Second
	// goodbye bounds the end of the session.
	goodbye = 10 * time.Second
)

// runFlags are the flags of run.
type runFlags struct {
	db, name, namespace, schema, node, termEnv string
	wait, grace                                time.Duration
	try, restart, verbose                      bool
}

func (a *app) run(args []string) (int, error) {
	var f runFlags
	flags := a.flags("run", runHelp)
	f.define(flags)
	if err := parse(flags, args); err != nil {
		return 0, err
	}
	if err := f.check(flags); err != nil {
		return 0, err
	}
	f.db = a.conceal(flags, f.db)
	db, err := a.database(f.db, true)
	if err != nil {
		return 0, err
	}
	defer db.close()
	path, err := exec.LookPath(flags.Arg(0))
	if err != nil {
		return 0, cannotRun(err)
	}
	lead, err := leader.New(db.backend, a.options(f))
	if err != nil {
		return 0, &exitError{statusUsage, err}
	}
	r := &runner{app: a, flags: f, lead: lead, path: path, argv: flags.Args()}
	var stop func()
	r.reaper, stop = newReaper()
	r.guard = newGuard(a, r.reaper)
	status, err := r.run()
	r.guard.dismiss()
	stop()
	return status, err
}

func (f *runFlags) define(fs *flag.FlagSet) {
	for name, value := range map[string]*string{
		"db": &f.db, "name": &f.name, "namespace": &f.namespace, "schema": &f.schema, "node": &f.node, "term-env": &f.termEnv,
	} {
		fs.StringVar(value, name, "", "")
	}
	fs.DurationVar(&f.wait, "wait", 0, "")
	fs.DurationVar(&f.grace, "kill-after", 5*time.Second, "")
	fs.BoolVar(&f.try, "try", false, "")
	fs.BoolVar(&f.restart, "restart", false, "")
	fs.BoolVar(&f.verbose, "verbose", false, "")
}

func (f *runFlags) check(flags *flag.FlagSet) error {
	const longest = 23 * time.Hour // the library's limit of SessionTimeout is a day
	switch {
	case f.name == "":
		return usagef("run: --name is missing")
	case flags.NArg() == 0:
		return usagef("run: the command is missing: leader run --name NAME -- COMMAND")
	case f.try && f.wait != 0:
		return usagef("run: --try does not wait: leave --wait out, or --try")
	case f.try && f.restart:
		return usagef("run: --try does not contend again: leave --restart out, or --try")
	case f.wait < 0:
		return usagef("run: --wait must not be negative")
	case f.grace < 0 || f.grace > longest:
		return usagef("run: --kill-after must be between 0 and %v", longest)
	case f.schema != "" && f.termEnv == "":
		return usagef("run: --schema is for --term-env")
	case strings.ContainsAny(f.termEnv, "=\x00"):
		return usagef("run: --term-env must be the name of an environment variable")
	}
	return nil
}

// options has the session last until a command that was told of a loss has been killed: only then may another start.
func (a *app) options(f runFlags) leader.Options {
	level := slog.LevelWarn
	if f.verbose {
		level = slog.LevelInfo
	}
	return leader.Options{
		Node: f.node, Namespace: f.namespace, Schema: f.schema, Terms: f.termEnv != "",
		Lease: lease, SessionTimeout: max(lease+f.grace+slack, 10*time.Second),
		Logger: slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level})),
	}
}

// cannotRun tells why there is no command to run.
func cannotRun(err error) error {
	status := statusCannotRun
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		status = statusNotFound
	}
	return &exitError{status, err}
}

// signalError ends a run because of a signal to this process.
type signalError struct{ sig os.Signal }

func (e *signalError) Error() string { return "signal: " + e.sig.String() }

var (
	errWaited = errors.New("the time of --wait is over")
	errDone   = errors.New("the command has ended")
)

// Of runner.begun: who comes first has it.
const (
	waiting = iota
	started
	waitedEnough
)

// runner is one call of run.
type runner struct {
	app    *app
	flags  runFlags
	lead   *leader.Leader
	reaper *reaper
	guard  *guard
	path   string
	argv   []string

	cancel  context.CancelCauseFunc
	begun   atomic.Int32
	running atomic.Pointer[child]
	until   atomic.Pointer[time.Time] // the lock is ours until then, as far as was known last; nil if it does not expire

	// Of the goroutine of run, which is also that of the task.
	done   bool // nothing is to be run any more
	status int  // then
	err    error
}

func (r *runner) run() (int, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	r.cancel = cancel
	defer r.forward()()
	if limit := r.limit(); limit > 0 {
		timer := time.AfterFunc(limit, func() {
			if r.begun.CompareAndSwap(waiting, waitedEnough) {
				cancel(errWaited)
			}
		})
		defer timer.Stop()
	}
	var err error
	if r.flags.try {
		_, err = r.lead.Try(ctx, r.flags.name, r.task)
	} else {
		err = r.lead.Run(ctx, r.flags.name, r.task)
	}
	if !r.done {
		r.status, r.err = r.idle(ctx, err)
	}
	end, stop := context.WithTimeout(context.Background(), goodbye)
	defer stop()
	if err := r.lead.Resign(end); err != nil {
		r.app.note("%s", strings.TrimPrefix(err.Error(), "leader: "))
	}
	return r.status, r.err
}

func (r *runner) limit() time.Duration {
	if r.flags.try {
		return tryPatience
	}
	return r.flags.wait
}

// idle is the end of a run whose command was not started, or was stopped to be started again.
func (r *runner) idle(ctx context.Context, err error) (int, error) {
	cause := context.Cause(ctx)
	sig, bySignal := errors.AsType[*signalError](cause)
	switch {
	case errors.Is(err, leader.ErrUnsupported):
		return 0, &exitError{statusUnsupported, err}
	case bySignal:
		return statusSignal + signalNumber(sig.sig), nil
	case err == nil:
		return 0, r.notLeader("") //nolint:contextcheck // it has ended
	case errors.Is(cause, errWaited):
		return 0, r.notLeader(fmt.Sprintf(" (after %v)", r.limit())) //nolint:contextcheck // it has ended
	}
	return 0, &exitError{statusUsage, err} // of the name
}

// notLeader tells who leads, or why that is not known.
func (r *runner) notLeader(after string) error {
	if s := r.lead.Status(); !s.Connected {
		err := cmp.Or(s.Err, errors.New("the database has not answered"))
		return &exitError{statusUnavailable, fmt.Errorf("no database%s: %w", after, err)}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	h, err := r.lead.Holder(ctx, r.flags.name)
	switch last := r.lead.Status().Err; {
	case err == nil && h.Held:
		return &exitError{statusNotLeader, fmt.Errorf("%q is led by %s%s", r.flags.name, holderText(h), after)}
	case err == nil && last != nil:
		return &exitError{statusUnavailable, fmt.Errorf("nobody leads %q, and this process could not%s: %w", r.flags.name, after, last)}
	}
	return &exitError{statusNotLeader, fmt.Errorf("%q is led by another process%s", r.flags.name, after)}
}

func holderText(h leader.Holder) string {
	if h.Node == "" {
		return fmt.Sprintf("a stranger (process %d)", h.PID)
	}
	return h.Node
}
