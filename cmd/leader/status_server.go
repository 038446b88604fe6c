// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oxygenhub/leader"
)

// fromServer asks a PostgreSQL server.
func (d *database) fromServer(ctx context.Context, f statusFlags, o *overviewOf) error {
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer goodbyeTo(conn) //nolint:contextcheck // also after ctx has ended
	var has bool
	err = reading(ctx, conn, f.namespace, func(tx pgx.Tx, namespace string) error {
		if namespace == "" {
			return errNoNamespace
		}
		o.Namespace = namespace
		var recovery bool
		if err := tx.QueryRow(ctx, `SELECT current_database()::text, pg_is_in_recovery()`).Scan(&o.Place, &recovery); err != nil {
			return err
		}
		if recovery {
			o.Notes = append(o.Notes, "this server is a replica, and the locks are on the primary: connect there to see who leads")
		}
		if err := o.readSessions(ctx, tx, f.names); err != nil {
			return err
		}
		// Asked of the catalog: an error would end the transaction.
		return tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relname = 'leader_terms' AND c.relkind IN ('r', 'p'))`, cmp.Or(f.schema, namespace)).Scan(&has)
	})
	o.Place = fmt.Sprintf("%s@%s", o.Place, d.host())
	if err != nil || !has {
		return err
	}
	schema := cmp.Or(f.schema, o.Namespace)
	err = reading(ctx, conn, o.Namespace, func(tx pgx.Tx, _ string) error { return o.readTerms(ctx, tx, schema, f.names) })
	if code(err) == codeNoRight {
		o.Notes = append(o.Notes, fmt.Sprintf("this role may not read %q.leader_terms, which has the names and terms: GRANT SELECT on it", schema))
		return nil
	}
	return err
}

// host is where the database is, for people.
func (d *database) host() string { return fmt.Sprintf("%s:%d", d.config.Host, d.config.Port) }

func goodbyeTo(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // nothing depends on it
}

// readSessions reads who holds what, and who holds nothing.
func (o *overviewOf) readSessions(ctx context.Context, tx pgx.Tx, names []string) error {
	o.names(names)
	keys := make([]int64, len(names))
	for i, name := range names {
		keys[i] = leader.Key(o.Namespace, name)
	}
	held, err := sessions(ctx, tx, keys)
	if err != nil {
		return err
	}
	for _, s := range held {
		l := o.lead(s.key)
		l.Held, l.Node, l.PID, l.From, l.Since = true, s.node, s.pid, s.client, s.since
		if !s.ours {
			l.Node = ""
		}
	}
	others, err := idle(ctx, tx)
	for _, s := range others {
		o.Standbys = append(o.Standbys, standby{s.node, s.pid, s.client})
	}
	return err
}

// readTerms reads the names and terms of the namespace, or of names only, if there are any.
func (o *overviewOf) readTerms(ctx context.Context, tx pgx.Tx, schema string, names []string) error {
	table := pgx.Identifier{schema, "leader_terms"}.Sanitize()
	rows, err := tx.Query(ctx, `SELECT key, name, term, node, addr, pid, taken_at, released_at IS NOT NULL, coalesce(ended, '')
		FROM `+table+` WHERE namespace = $1 AND ($2::text[] IS NULL OR name = ANY ($2::text[]))`, o.Namespace, names)
	if err != nil {
		return err
	}
	var t term
	_, err = pgx.ForEachRow(rows, []any{&t.key, &t.name, &t.term, &t.node, &t.addr, &t.pid, &t.taken, &t.released, &t.ended}, func() error {
		o.add(t)
		return nil
	})
	return err
}
