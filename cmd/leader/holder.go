// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oxygenhub/leader"
)

// lookGap is how often the server is asked whether a holder is gone.
const lookGap = 50 * time.Millisecond

// target is a name whose holder is to go.
type target struct {
	db        string
	name      string
	namespace string
	key       int64 // once the namespace is known
}

func (t *target) define(fs *flag.FlagSet) {
	fs.StringVar(&t.db, "db", "", "")
	fs.StringVar(&t.name, "name", "", "")
	fs.StringVar(&t.namespace, "namespace", "", "")
}

// open returns the database of a target on PostgreSQL.
func (a *app) openTarget(ctx context.Context, fs *flag.FlagSet, t *target) (*pgx.Conn, error) {
	switch {
	case t.name == "":
		return nil, usagef("%s: --name is missing", fs.Name())
	case fs.NArg() > 0:
		return nil, unexpected(fs, fs.Arg(0))
	}
	t.db = a.conceal(fs, t.db)
	db, err := a.database(t.db, false)
	if err != nil {
		return nil, err
	}
	defer db.close()
	if db.config == nil {
		return nil, db.notHere(ctx, t)
	}
	return db.connect(ctx)
}

// notHere names the process that has a lock on SQLite, which nobody else can take from it.
func (d *database) notHere(ctx context.Context, t *target) error {
	o, err := d.overview(ctx, statusFlags{namespace: t.namespace, names: []string{t.name}})
	if err != nil {
		return err
	}
	if len(o.Leads) == 0 || !o.Leads[0].Held {
		return nobody(t.name)
	}
	return &exitError{statusUnsupported, fmt.Errorf("on SQLite a lock ends with its process: stop process %d (%s), which leads %q",
		o.Leads[0].PID, printable(o.Leads[0].Node), t.name)}
}

func nobody(name string) error { return &exitError{statusFailed, fmt.Errorf("nobody leads %q", name)} }

// find returns the session that holds the lock of t, or nil.
func find(ctx context.Context, conn *pgx.Conn, t *target) (*session, error) {
	var found *session
	err := reading(ctx, conn, t.namespace, func(tx pgx.Tx, namespace string) error {
		if namespace == "" {
			return errNoNamespace
		}
		var recovery bool
		if err := tx.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&recovery); err != nil {
			return err
		}
		if recovery {
			return &exitError{statusUnavailable, errors.New("this server is a replica: connect to the primary, where the locks are")}
		}
		t.namespace, t.key = namespace, leader.Key(namespace, t.name)
		all, err := sessions(ctx, tx, []int64{t.key})
		for _, s := range all {
			if s.key == t.key {
				found = &s
			}
		}
		return err
	})
	if err != nil {
		return nil, unavailable(err)
	}
	return found, nil
}

// away waits until s does not hold the lock of t any more, and returns who does by then: nil if nobody, s if ctx has ended before.
func away(ctx context.Context, conn *pgx.Conn, t *target, s *session) (*session, error) {
	for {
		now, err := find(ctx, conn, t)
		switch {
		case ctx.Err() != nil:
			return s, nil //nolint:nilerr // the question was cut short
		case err != nil:
			return nil, err
		case now == nil || now.pid != s.pid || !same(now.since, s.since):
			return now, nil
		}
		select {
		case <-time.After(lookGap):
		case <-ctx.Done():
			return s, nil
		}
	}
}

func same(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}
