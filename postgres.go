// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var errProbe = errors.New("not dialed")

// postgres is the Backend of all three constructors.
type postgres struct {
	config        *pgx.ConnConfig
	beforeConnect func(context.Context, *pgx.ConnConfig) error
	err           error // of a bad argument, for New
}

// Postgres returns a [Backend] that keeps locks on the PostgreSQL server that connString, a URL or a list of key=value as
// for psql, leads to. [New] reports a bad one. With several hosts and no target_session_attrs, the first that accepts
// writes is used. The string must lead to the server itself or to a pooler in session mode; see docs/postgres.md.
//
// Parameters of pgxpool, as pool_max_conns, are left out, so that both can share one string.
func Postgres(connString string) Backend {
	if err := foreign(connString); err != nil {
		return &postgres{err: fmt.Errorf("connection string: %w", err)}
	}
	config, err := pgx.ParseConfig(connString)
	if err != nil {
		return &postgres{err: fmt.Errorf("connection string: %w", withoutQuotes(err))}
	}
	return newPostgres(config, nil)
}

// newPostgres takes over config. The server would refuse what is pgxpool's, at each connect.
func newPostgres(config *pgx.ConnConfig, beforeConnect func(context.Context, *pgx.ConnConfig) error) *postgres {
	maps.DeleteFunc(config.RuntimeParams, func(name, _ string) bool { return strings.HasPrefix(name, "pool_") })
	return &postgres{config: config, beforeConnect: beforeConnect}
}

// foreign finds the strings that the driver would take for something else: an empty one, for the PG* variables and its defaults,
// and any other URL, for a bad list of key=value.
func foreign(connString string) error {
	const remedy = "pass postgres://user@host/database or host=... dbname=..."
	connString = strings.TrimSpace(connString)
	scheme, _, isURL := strings.Cut(connString, ":")
	switch {
	case connString == "":
		return errors.New("it is empty (is DATABASE_URL set?): " + remedy + "; for the PG* environment variables, PostgresConfig")
	case !isURL || !regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`).MatchString(scheme), scheme == "postgres", scheme == "postgresql":
		return nil
	case slices.Contains([]string{"sqlite", "sqlite3", "file"}, scheme):
		return fmt.Errorf("it begins with %q, as SQLite's do: open it with database/sql, and pass the *sql.DB to SQLite", scheme+":")
	case strings.HasPrefix(connString, scheme+"://") || scheme == "jdbc":
		return fmt.Errorf("it begins with %q, which is not PostgreSQL's: %s", scheme+":", remedy)
	}
	return nil
}

// withoutQuotes leaves out of an error of ParseConfig what it quotes: the driver does not recognise every password in a
// malformed string.
func withoutQuotes(err error) error {
	if parse, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		parse.ConnString = "..."
	}
	return errors.New(regexp.MustCompile(`"(\\.|[^"\\])*"`).ReplaceAllString(err.Error(), `"..."`))
}

// PostgresConfig is [Postgres] for a config made by pgx.ParseConfig, of which it keeps a copy. What would run code inside the
// session is not taken: tracers, notice and notification handlers, AfterConnect.
func PostgresConfig(config *pgx.ConnConfig) Backend {
	if config == nil {
		return &postgres{err: errors.New("PostgresConfig: the config is nil")}
	}
	return newPostgres(config.Copy(), nil)
}

// PostgresPool is [Postgres] with the settings of pool, whose BeforeConnect is asked at each connect, for credentials
// that change. It never uses a connection of the pool, which may be closed meanwhile, and does not take AfterConnect: if that
// changes the search_path or the role, set Options.Namespace.
func PostgresPool(pool *pgxpool.Pool) Backend {
	if pool == nil {
		return &postgres{err: errors.New("PostgresPool: the pool is nil")}
	}
	config := pool.Config() // a copy
	return newPostgres(config.ConnConfig, config.BeforeConnect)
}

func (p *postgres) check(Options) error {
	if p.err != nil {
		return p.err
	}
	if p.config.DialFunc == nil || p.config.LookupFunc == nil || !parsed(p.config) {
		return errors.New("PostgresConfig: the config was not made by pgx.ParseConfig, or lacks the DialFunc or LookupFunc that it sets")
	}
	return nil
}

// parsed reports whether config was made by ParseConfig: pgx panics for any other at the time of the first connect.
func parsed(config *pgx.ConnConfig) (ok bool) {
	defer func() { ok = recover() == nil }()
	probe := config.Copy()
	probe.Tracer = nil
	probe.DialFunc = func(context.Context, string, string) (net.Conn, error) { return nil, errProbe }
	probe.LookupFunc = func(context.Context, string) ([]string, error) { return nil, errProbe }
	_, _ = pgx.ConnectConfig(context.Background(), probe)
	return true
}

func (p *postgres) expires() bool        { return true }
func (p *postgres) sqlite() bool         { return false }
func (p *postgres) retry() time.Duration { return time.Second }

// dialTimeout is for a dial with its set-up, once more for the second connection that a pooler is tested with, and for
// BeforeConnect.
func (p *postgres) dialTimeout() time.Duration {
	hosts := time.Duration(1 + len(p.config.Fallbacks))
	return 2*hosts*hostTimeout + setUpTimeout + affinityTimeout
}

// open connects, sets the session up, and tests that a lock on it is a lock.
func (p *postgres) open(ctx context.Context, opts Options, clock *clock) (session, error) {
	s, err := p.dial(ctx, opts, clock)
	if err != nil {
		return nil, err
	}
	err = s.setUp(ctx, func(ctx context.Context) (*pgSession, error) { return p.dial(ctx, opts, clock) })
	if err == nil {
		return s, nil
	}
	s.close() //nolint:contextcheck // also after ctx has ended
	if errors.Is(err, ErrUnsupported) {
		return nil, err
	}
	return nil, fmt.Errorf("set up the session: %w", err)
}
