// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/jackc/pgx/v5"
)

// sqlTerminate ends a session only if it is the one that was shown and still holds the lock.
const sqlTerminate = `SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a
	WHERE a.pid = $1::int8::int4 AND a.backend_start = $2::timestamptz
		AND EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
			AND ` + sqlLockKey + ` = $3::int8)`

func (a *app) terminate(args []string) (int, error) {
	var t target
	fs := a.flags("terminate", terminateHelp)
	t.define(fs)
	yes := fs.Bool("yes", false, "")
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), endingSignals()...)
	defer stop()
	conn, err := a.openTarget(ctx, fs, &t)
	if err != nil {
		return 0, err
	}
	defer goodbyeTo(conn)
	s, err := find(ctx, conn, &t)
	switch {
	case err != nil:
		return 0, err
	case s == nil:
		return 0, nobody(t.name)
	case s.since == nil:
		return 0, &exitError{statusFailed, fmt.Errorf("%q is led by %s, whose start this role may not see, so that it cannot be told from a later one: GRANT pg_read_all_stats, and pg_signal_backend, to this role", t.name, printable(s.describe()))}
	}
	a.print("%q is led by %s\n", t.name, printable(s.describe()))
	if !*yes {
		if err := a.confirm(ctx); err != nil {
			return 0, err
		}
	}
	return a.end(ctx, conn, &t, s)
}

// confirm asks the person at the terminal.
func (a *app) confirm(ctx context.Context) error {
	if _, _, ok := terminal(os.Stdin); !ok {
		return usagef("terminate: pass --yes: there is no terminal to ask at")
	}
	a.print("End this session, and all that it leads? Another process may start before it has stopped. [y/N] ")
	answer := make(chan string, 1)
	go func() { // ends with the line, or with the process: a read of a terminal cannot be interrupted
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		answer <- strings.ToLower(line)
	}()
	select {
	case said := <-answer:
		if said := strings.TrimSpace(said); said == "y" || said == "yes" {
			return nil
		}
	case <-ctx.Done():
		a.print("\n")
	}
	return &exitError{statusFailed, errors.New("nothing was ended")}
}

// end ends the session s, and waits until the server is rid of it.
func (a *app) end(ctx context.Context, conn *pgx.Conn, t *target, s *session) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	told := false
	err := reading(ctx, conn, t.namespace, func(tx pgx.Tx, _ string) error {
		err := tx.QueryRow(ctx, sqlTerminate, int64(s.pid), *s.since, t.key).Scan(&told)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	switch {
	case code(err) == codeNoRight:
		return 0, &exitError{statusFailed, fmt.Errorf("GRANT pg_signal_backend to this role, or use the one of the session: %w", err)}
	case err != nil:
		return 0, unavailable(err)
	case !told:
		return 0, &exitError{statusFailed, errors.New("that session does not lead it any more: nothing was ended")}
	}
	now, err := away(ctx, conn, t, s)
	switch {
	case err != nil:
		return 0, err
	case now == s:
		return 0, &exitError{statusFailed, errors.New("the server was told to end the session, and has not yet: it may wait for the disk or the network")}
	case now != nil:
		a.print("ended; %s leads now\n", printable(now.describe()))
	default:
		a.print("ended; nobody has taken over yet\n")
	}
	return 0, nil
}
