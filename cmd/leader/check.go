// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"time"

	"github.com/oxygenhub/leader"
)

const (
	// checkNode is the node of a check, which contends for nothing.
	checkNode = "leader-check"
	// checkPatience bounds the self-test of the library: a pooler may take its time to be tested.
	checkPatience = 45 * time.Second
	// troubleFor is how long the self-test is tried again after it has failed in a way that may pass.
	troubleFor = 4 * time.Second
)

// level says how good a finding is.
type level string

const (
	levelOK   level = "ok"
	levelWarn level = "warn"
	levelFail level = "fail"
)

// finding is a line of the doctor.
type finding struct {
	Level level  `json:"level"`
	What  string `json:"what"`
	Found string `json:"found"`
	Do    string `json:"do,omitempty"`
}

// report is all that was found.
type report struct{ findings []finding }

func (r *report) ok(what, format string, args ...any) {
	r.findings = append(r.findings, finding{levelOK, what, fmt.Sprintf(format, args...), ""})
}

func (r *report) warn(what, do, format string, args ...any) {
	r.findings = append(r.findings, finding{levelWarn, what, fmt.Sprintf(format, args...), do})
}

func (r *report) fail(what, do, format string, args ...any) {
	r.findings = append(r.findings, finding{levelFail, what, fmt.Sprintf(format, args...), do})
}

func (r *report) failed() bool {
	for _, f := range r.findings {
		if f.Level == levelFail {
			return true
		}
	}
	return false
}

// checkFlags are the flags of check.
type checkFlags struct {
	db, namespace, schema string
	json                  bool
}

func (a *app) check(args []string) (int, error) {
	var f checkFlags
	fs := a.flags("check", checkHelp)
	fs.StringVar(&f.db, "db", "", "")
	fs.StringVar(&f.namespace, "namespace", "", "")
	fs.StringVar(&f.schema, "schema", "", "")
	fs.BoolVar(&f.json, "json", false, "")
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	if fs.NArg() > 0 {
		return 0, unexpected(fs, fs.Arg(0))
	}
	f.db = a.conceal(fs, f.db)
	db, err := a.database(f.db, false)
	if err != nil {
		return 0, err
	}
	defer db.close()
	ctx, stop := signal.NotifyContext(context.Background(), endingSignals()...)
	defer stop()
	r := &report{}
	db.examine(ctx, f, r)
	a.tell(r, f.json)
	if r.failed() {
		return statusFailed, nil
	}
	return 0, nil
}

// examine looks at everything that can be looked at.
func (d *database) examine(ctx context.Context, f checkFlags, r *report) {
	if d.config == nil {
		r.ok("database", "SQLite, %s", d.file)
	} else if !d.examineServer(ctx, f, r) {
		return // a lock there would be no lock, or the server says nothing
	}
	d.selfTest(ctx, f, r)
	if d.config == nil {
		r.ok("timings", "Retry 200ms, the default: a process that dies is followed within 240ms; locks are the kernel's, and do not expire")
		return
	}
	r.ok("timings", "Retry 1s, Check 2s, Lease 6s, SessionTimeout 10s, the defaults: a process that dies is followed within 1.2s, a host that vanishes within 11.2s")
	r.ok("timings", "leader run: likewise, but SessionTimeout 12s, and a host that vanishes within 13.2s")
}

// selfTest has the library open a session, which it does only where a lock excludes others.
func (d *database) selfTest(ctx context.Context, f checkFlags, r *report) {
	l, err := leader.New(d.backend, leader.Options{Namespace: f.namespace, Node: checkNode})
	if err != nil {
		r.fail("locks", "", "%s", plain(err))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	life, end := context.WithCancel(ctx)
	defer end()
	events := l.Watch(life)
	done := make(chan struct{})
	var warning, last error
	go func() { // until end, or Resign
		defer close(done)
		for e := range events {
			switch e.Kind {
			case leader.Connected:
				warning = e.Err
			case leader.Unreachable:
				last = e.Err
				time.AfterFunc(troubleFor, cancel)
			}
		}
	}()
	_, err = l.Holder(ctx, "leader check")
	bye, stop := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer stop()
	_ = l.Resign(bye) // the session is gone, or will be when this process is
	end()
	<-done
	if err != nil && last != nil && !errors.Is(err, leader.ErrUnsupported) {
		err = last
	}
	switch {
	case err != nil:
		found, _, _ := strings.Cut(plain(err), ": use a pool in session mode")
		r.fail("locks", remedy(err), "%s", found)
	case warning != nil:
		r.warn("locks", "", "a lock is held by one session only; but %s", plain(warning))
	default:
		r.ok("locks", "a lock that was taken here is held here, and is free again")
	}
}

// plain is an error without the name of the library, in one line.
func plain(err error) string {
	text := strings.TrimPrefix(err.Error(), "leader: ")
	return strings.Join(strings.Fields(text), " ")
}

// remedy says what to do about what a server has said. The errors of the library that are for good name theirs themselves.
func remedy(err error) string {
	switch code(err) {
	case codeNoMemory:
		return doLockTable
	case codeTooMany:
		if text := err.Error(); strings.Contains(text, "for role") || strings.Contains(text, "for database") {
			return "raise it with ALTER ROLE or ALTER DATABASE ... CONNECTION LIMIT: each process takes one connection"
		}
		return "raise max_connections, or have fewer connections: each process that waits has one (Options.Disconnect: none between two tries)"
	case codePassword, codeNotAllowed:
		return "check the user, the password and pg_hba.conf"
	case codeNoDatabase:
		return "check the name of the database"
	case codeNoRight:
		return "give this role the right that the server names; those that are needed are in docs/postgres.md#rights"
	}
	if errors.Is(err, leader.ErrUnsupported) && strings.Contains(err.Error(), "pooler in between") {
		return doPooler
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return "is there a pooler whose pool is full? It needs room for one connection more than there are processes"
	}
	return ""
}

// tell prints a report.
func (a *app) tell(r *report, asJSON bool) {
	for i := range r.findings {
		f := &r.findings[i]
		f.Found, f.Do = a.hide.clean(f.Found), a.hide.clean(f.Do)
	}
	if asJSON {
		_ = a.json(r.findings) // as print
		return
	}
	for _, f := range r.findings {
		a.print("%-5s %-12s %s\n", f.Level, f.What, f.Found)
		if f.Do != "" {
			a.print("%-5s %-12s do: %s\n", "", "", f.Do)
		}
	}
}
