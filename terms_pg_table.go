// SPDX-License-Identifier: MIT

package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Codes of the server's errors.
const (
	undefinedTable        = "42P01"
	insufficientPrivilege = "42501"
	lockNotAvailable      = "55P03"
)

// sqlServer tells one running server from any other, also from its own copies.
const sqlServer = `(extract(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000000)::pg_catalog.int8::pg_catalog.text`

// readyTerms finds the table of terms, or makes it, before any lock is asked for that could not be used without it.
func (s *pgSession) readyTerms(ctx context.Context) error {
	s.info.schema = cmp.Or(s.opts.Schema, s.info.namespace)
	s.info.reads = true
	if err := s.conn.QueryRow(ctx, `SELECT `+sqlServer).Scan(&s.info.server); err != nil {
		return err
	}
	for made := false; ; made = true {
		found, err := s.checkTerms(ctx)
		if err != nil || found {
			return err
		}
		if made {
			return errors.New("leader_terms was made, and is not there")
		}
		if err := s.makeTerms(ctx, s.info.schema); err != nil {
			return err
		}
	}
}

// checkTerms tells whether the table is there, and what is wrong with it.
func (s *pgSession) checkTerms(ctx context.Context) (found bool, err error) {
	schema := s.info.schema
	var table uint32
	var rights []string
	var usage bool
	err = s.conn.QueryRow(ctx, `SELECT has_schema_privilege(n.oid, 'USAGE'), coalesce(c.oid, 0::oid)::int8,
			ARRAY(SELECT r FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS r WHERE NOT has_table_privilege(c.oid, r))
		FROM pg_namespace AS n LEFT JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = 'leader_terms'
			AND c.relkind IN ('r', 'p') WHERE n.nspname = $1`, schema).Scan(&usage, &table, &rights)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, fmt.Errorf("there is no schema %q for the table leader_terms: create it, or set Options.Schema to the schema that all processes of the fleet are to use", schema)
	case err != nil:
		return false, err
	case !usage:
		return false, fmt.Errorf("this role lacks the right USAGE on schema %q, where leader_terms is", schema)
	case table == 0:
		return false, nil
	case len(rights) > 0:
		return false, fmt.Errorf("this role lacks rights on %q.leader_terms: GRANT %s", schema, strings.Join(rights, ", "))
	}
	return true, s.checkColumns(ctx, table)
}

// checkColumns compares the layout with what [TermsSQL] makes.
func (s *pgSession) checkColumns(ctx context.Context, table uint32) error {
	rows, err := s.conn.Query(ctx, `SELECT attname::text || ' ' || format_type(atttypid, NULL)
		FROM pg_attribute WHERE attrelid = $1::int8::oid AND attnum > 0 AND NOT attisdropped`, int64(table))
	if err != nil {
		return err
	}
	has, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, column := range []string{
		"key bigint", "namespace text", "name text", "term bigint", "node text", "addr text", "pid bigint",
		"taken_at timestamp with time zone", "released_at timestamp with time zone", "ended text",
	} {
		if !slices.Contains(has, column) {
			return fmt.Errorf("the table %q.leader_terms has no column %q: it is not the one of leader.TermsSQL, or an older one", s.info.schema, column)
		}
	}
	var unique bool
	err = s.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid
			AND a.attnum = i.indkey[0] WHERE i.indrelid = $1::int8::oid AND i.indisunique AND i.indisvalid AND i.indnkeyatts = 1
			AND i.indpred IS NULL AND a.attname = 'key')`, int64(table)).Scan(&unique)
	if err == nil && !unique {
		err = fmt.Errorf("the table %q.leader_terms has no unique index on key: it is not the one of leader.TermsSQL", s.info.schema)
	}
	return err
}

// makeTerms makes the table. Processes that do so at once would fail, so they do it in turn.
func (s *pgSession) makeTerms(ctx context.Context, schema string) error {
	err := s.write(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '4s'"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", deriveKey("leader v1 table", schema)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, strings.Replace(TermsSQL, "leader_terms", termSite{schema: schema}.table(), 1))
		return err
	})
	if sqlState(err) == insufficientPrivilege {
		return fmt.Errorf("there is no table %q.leader_terms, and this role may not make it: run leader.TermsSQL in that schema as its owner, and GRANT SELECT, INSERT, UPDATE on it: %w", schema, err)
	}
	if err != nil {
		return fmt.Errorf("make the table %q.leader_terms: %w", schema, err)
	}
	return nil
}

// terms reads on the session itself: what it reads is what its locks stand for. Without a table no name has a term; who asks
// for all names is to know that there is none.
func (s *pgSession) terms(keys []int64) (map[int64]termRow, error) {
	where, arg := "t.key = ANY ($1::int8[])", any(keys)
	if keys == nil {
		where, arg = "t.namespace = $1", s.info.namespace
	}
	found := make(map[int64]termRow)
	rows, err := s.conn.Query(context.Background(), sqlTerms(s.info.schema, where), arg)
	if err != nil {
		return nil, s.orOver(err)
	}
	var key int64
	var row termRow
	var taken int64
	var released *int64
	_, err = pgx.ForEachRow(rows, []any{&key, &row.name, &row.term, &row.node, &row.addr, &row.pid, &taken, &released, &row.ended}, func() error {
		row.taken, row.released = time.UnixMilli(taken), time.Time{}
		if released != nil {
			row.released = time.UnixMilli(*released)
		}
		found[key] = row
		return nil
	})
	if sqlState(err) == undefinedTable && keys != nil {
		return found, nil
	}
	return found, s.orOver(err)
}
