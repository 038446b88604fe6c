// SPDX-License-Identifier: MIT

// Leader runs a command in exactly one process of many, and shows who leads. It is flock(1) for a fleet, with the locks of
// package leader on a PostgreSQL or SQLite database. See docs/cli.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// The exit statuses that are not the command's own. Those that have a name in sysexits.h have its number.
const (
	statusFailed      = 1
	statusUsage       = 64  // the command line is wrong
	statusUnavailable = 69  // the database could not be asked
	statusNotLeader   = 75  // somebody else leads: try again later
	statusLost        = 76  // the command was stopped because the lock was lost
	statusUnsupported = 78  // the database, or a pooler before it, cannot lock
	statusCannotRun   = 126 // the command cannot be executed
	statusNotFound    = 127 // there is no such command
	statusSignal      = 128 // plus the number of the signal that ended the command, or the wait
)

// app is one call of the program.
type app struct {
	stdout io.Writer
	stderr io.Writer // of errors: without secrets
	hide   *redactor
}

// exitError is an error with its exit status.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usagef is an error of the command line.
func usagef(format string, args ...any) error {
	return &exitError{statusUsage, fmt.Errorf(format, args...)}
}

// unexpected is for an argument that is one too many. The likeliest is a database, which may have a password in it.
func unexpected(fs *flag.FlagSet, arg string) error {
	if looksLikeDatabase(arg) {
		return usagef("%s: the database goes into --db, or into DATABASE_URL", fs.Name())
	}
	return usagef("%s: unexpected argument %q", fs.Name(), arg)
}

// subcommand is one of the program's.
type subcommand struct {
	name string
	line string // of the overview; "" for one that is not for people
	run  func(a *app, args []string) (status int, err error)
}

func subcommands() []subcommand {
	return []subcommand{
		{"run", "run a command while this process leads", (*app).run},
		{"status", "show who leads what", (*app).status},
		{"check", "find out whether locks work on this database, and what to do if not", (*app).check},
		{"resign", "ask the holder of a name to hand it over", (*app).resign},
		{"terminate", "end the session of a holder that does not answer", (*app).terminate},
		{"key", "print the lock that a name means, for other languages", (*app).key},
		{"completion", "print the script that completes commands in a shell", (*app).completion},
		{"version", "print the version", (*app).version},
		{guardName, "", (*app).guard},
	}
}

func main() {
	hide := &redactor{to: os.Stderr}
	a := &app{stdout: os.Stdout, stderr: hide, hide: hide}
	os.Exit(a.main(os.Args[1:]))
}

func (a *app) main(args []string) int {
	name := "help"
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	if name == "help" || name == "-h" || name == "-help" || name == "--help" {
		return a.help(args)
	}
	for _, sub := range subcommands() {
		if sub.name == name {
			return a.exit(name, sub, args)
		}
	}
	if looksLikeDatabase(name) {
		return a.fail("", usagef("name a command first, and the database with --db"))
	}
	return a.fail("", usagef("unknown command %q", name))
}

// help prints the overview, or the help of one subcommand.
func (a *app) help(args []string) int {
	for _, sub := range subcommands() {
		if len(args) > 0 && sub.name == args[0] {
			return a.exit(sub.name, sub, []string{"--help"})
		}
	}
	if len(args) > 0 {
		return a.fail("", usagef("unknown command %q", args[0]))
	}
	var lines strings.Builder
	for _, sub := range subcommands() {
		if sub.line != "" {
			fmt.Fprintf(&lines, "  %-12s%s\n", sub.name, sub.line)
		}
	}
	a.print(overview, lines.String())
	return 0
}

func (a *app) exit(name string, sub subcommand, args []string) int {
	status, err := sub.run(a, args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return a.fail(name, err)
	}
	return status
}

// fail prints err, and returns its exit status.
func (a *app) fail(name string, err error) int {
	status := statusFailed
	if e, ok := errors.AsType[*exitError](err); ok {
		status = e.status
	}
	a.note("%s", strings.TrimPrefix(err.Error(), "leader: "))
	if status == statusUsage {
		_, _ = fmt.Fprintln(a.stderr, strings.TrimSpace("see: leader help "+name))
	}
	return status
}

// print prints what was asked for. Where nobody reads it, nobody reads of that either.
func (a *app) print(format string, args ...any) {
	_, _ = fmt.Fprintf(a.stdout, format, args...)
}

// note prints a line for people.
func (a *app) note(format string, args ...any) {
	_, _ = fmt.Fprintf(a.stderr, "leader: "+format+"\n", args...)
}

// flags returns the flags of a subcommand, whose help is text.
func (a *app) flags(name, text string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are returned, too
	fs.Usage = func() { a.print("%s", text) }
	return fs
}

var oneDash = regexp.MustCompile(`(: |flag )-`)

// parse is fs.Parse with errors that have an exit status, and the help where it is asked for only.
func parse(fs *flag.FlagSet, args []string) error {
	help := fs.Usage
	fs.Usage = func() {}
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		help()
		return err
	}
	if err != nil {
		return usagef("%s: %s", fs.Name(), oneDash.ReplaceAllString(err.Error(), "$1--"))
	}
	return nil
}
