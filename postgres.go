// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
)

// hostTimeout bounds the connect to one host.
const hostTimeout = 5 * time.Second

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
func Postgres(connString string) Backend {
	config, err := pgx.ParseConfig(connString)
	if err != nil {
		return &postgres{err: fmt.Errorf("connection string: %w", withoutQuotes(err))}
	}
	return &postgres{config: config}
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
	return &postgres{config: config.Copy()}
}

// PostgresPool is [Postgres] with the settings of pool, whose BeforeConnect is asked at each connect, for credentials
// that change. It never uses a connection of the pool, which may be closed meanwhile, and does not take AfterConnect: if that
// changes the search_path or the role, set Options.Namespace.
func PostgresPool(pool *pgxpool.Pool) Backend {
	if pool == nil {
		return &postgres{err: errors.New("PostgresPool: the pool is nil")}
	}
	config := pool.Config() // a copy
	return &postgres{config: config.ConnConfig, beforeConnect: config.BeforeConnect}
}

func (p *postgres) check(Options) error {
	if p.err != nil {
		return p.err
	}
	if !parsed(p.config) {
		return errors.New("PostgresConfig: the config was not made by pgx.ParseConfig")
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
func (p *postgres) retry() time.Duration { return time.Second }

// dialTimeout leaves the time of one more host for BeforeConnect and for setting the session up.
func (p *postgres) dialTimeout() time.Duration {
	return hostTimeout * time.Duration(2+len(p.config.Fallbacks))
}

// open connects and sets the session up. Credentials and addresses are asked for anew each time.
func (p *postgres) open(ctx context.Context, opts Options, clock *clock) (session, error) {
	config := p.config.Copy()
	if p.beforeConnect != nil {
		if err := p.beforeConnect(ctx, config); err != nil {
			return nil, fmt.Errorf("connect: BeforeConnect: %w", err)
		}
	}
	s := &pgSession{opts: opts, clock: clock, held: make(map[int64]struct{}), batch: maxBatch}
	s.adapt(config)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	s.conn = conn
	s.fatal = nil // of a host before the one that let us in
	s.connected.Store(true)
	s.wire.adopted.Store(true)
	if err := s.wire.SetDeadline(time.Time{}); err != nil {
		s.close() //nolint:contextcheck // also after ctx has ended
		return nil, fmt.Errorf("%w: the connection of the configured DialFunc has no deadlines, so waiting on it could not be interrupted: %w", ErrUnsupported, err)
	}
	if err := s.setUp(ctx); err != nil {
		s.close() //nolint:contextcheck // also after ctx has ended
		return nil, fmt.Errorf("set up the session: %w", err)
	}
	return s, nil
}

// adapt takes out of config, a copy, what would run code of the user inside the session or change its I/O.
func (s *pgSession) adapt(config *pgx.ConnConfig) {
	config.Tracer = nil
	config.OnNotice = nil
	config.OnNotification = nil // set, it would make WaitForNotification return nothing
	config.AfterConnect = nil
	config.OnPgError = s.onPgError
	config.BuildFrontend = pgproto3.NewFrontend
	config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()} // an interrupt must not cost the connection
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // poolers do not like named statements
	config.StatementCacheCapacity, config.DescriptionCacheCapacity = 0, 0
	if config.ConnectTimeout <= 0 || config.ConnectTimeout > hostTimeout {
		config.ConnectTimeout = hostTimeout
	}
	if config.ValidateConnect == nil && severalHosts(config) {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if config.RuntimeParams == nil {
		config.RuntimeParams = make(map[string]string)
	}
	config.RuntimeParams["application_name"] = applicationName(s.opts.Node)
	dial, wrap := config.DialFunc, config.AfterNetConnect
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if s.connected.Load() {
			return nil, net.ErrClosed // a cancel request of the driver: we have no use for it
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &wire{Conn: conn, clock: s.clock}, nil
	}
	// Not in DialFunc, which the driver also calls for cancel requests, on goroutines of its own.
	config.AfterNetConnect = func(ctx context.Context, config *pgconn.Config, conn net.Conn) (net.Conn, error) {
		raw := conn
		if t, ok := conn.(*tls.Conn); ok {
			raw = t.NetConn()
		}
		s.wire = raw.(*wire)
		if wrap == nil {
			return conn, nil
		}
		return wrap(ctx, config, conn)
	}
}

// severalHosts tells a list of hosts from the fallbacks of one host that differ in TLS.
func severalHosts(config *pgx.ConnConfig) bool {
	for _, f := range config.Fallbacks {
		if f.Host != config.Host || f.Port != config.Port {
			return true
		}
	}
	return false
}

const applicationPrefix = "leader/"

// applicationName is how the session is seen in pg_stat_activity, where names end after 63 bytes.
func applicationName(node string) string {
	name := applicationPrefix + node
	for len(name) > 63 || !utf8.ValidString(name) {
		name = name[:min(len(name)-1, 63)]
	}
	return name
}

// settings are made by SET, never as start-up parameters, which some poolers refuse. No keepalive ends the session before
// SessionTimeout: that would free its locks.
func (s *pgSession) settings(version int) [][2]string {
	ms := func(d time.Duration) string {
		return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
	}
	timeout := s.opts.SessionTimeout
	seconds := func(d time.Duration) int64 { return int64(max((d+time.Second-1)/time.Second, 1)) }
	// Between two probes Linux does not look whether tcp_user_timeout is over, so they are close. It allows 127 of them.
	idle, interval := seconds(timeout/2), seconds(timeout/200)
	count := max((seconds(timeout)-idle+interval-1)/interval, 1)
	settings := [][2]string{
		{"search_path", "pg_catalog, pg_temp"}, // nobody's functions but the server's
		{"statement_timeout", ms(s.opts.Lease)},
		{"lock_timeout", "200"},
		{"idle_in_transaction_session_timeout", ms(timeout)},
		{"synchronous_commit", "off"},
		{"jit", "off"}, // where a role has it for all statements, each of ours took 0.1 s and more to compile
		{"tcp_keepalives_idle", strconv.FormatInt(idle, 10)},
		{"tcp_keepalives_interval", strconv.FormatInt(interval, 10)},
		{"tcp_keepalives_count", strconv.FormatInt(count, 10)},
		{"tcp_user_timeout", ms(timeout)}, // unanswered data, as a notification, switches keepalives off
	}
	if version >= 140000 {
		settings = append(settings, [2]string{"idle_session_timeout", ms(timeout)})
	}
	return settings
}

// setUp makes the session ready and tests that a lock on it is a lock.
func (s *pgSession) setUp(ctx context.Context) error {
	var readOnly string
	var recovery bool
	var version int
	var schema *string
	if err := s.conn.QueryRow(ctx, sqlWhere).Scan(&s.info.pid, &recovery, &readOnly, &version, &s.info.place, &schema); err != nil {
		return err
	}
	if recovery || readOnly != "off" {
		return unusable(recovery)
	}
	s.info.namespace = s.opts.Namespace
	switch {
	case s.info.namespace != "":
	case schema == nil:
		return fmt.Errorf("%w: this role has no current schema to take the namespace from: set Options.Namespace", ErrUnsupported)
	default:
		s.info.namespace = *schema
	}
	names, values := make([]string, 0, 10), make([]string, 0, 10)
	for _, setting := range s.settings(version) {
		names, values = append(names, setting[0]), append(values, setting[1])
	}
	if err := s.set(ctx, names, values); err != nil {
		return err
	}
	if version >= 140000 {
		// Some platforms refuse it: the server then notices a dead client between two statements only.
		check := strconv.FormatInt(s.opts.Check.Milliseconds(), 10)
		if err := s.set(ctx, []string{"client_connection_check_interval"}, []string{check}); s.conn.IsClosed() {
			return err
		}
	}
	s.channel = fmt.Sprintf("leader_%016x", uint64(Key(s.info.namespace, "")))
	if _, err := s.conn.Exec(ctx, "LISTEN "+s.channel); err != nil {
		return err
	}
	return s.selfTest(ctx)
}

// selfTest takes a lock that nobody else knows of, looks for it, and gives it back.
func (s *pgSession) selfTest(ctx context.Context) error {
	key := rand.Int64()
	var got, gone bool
	var n int
	s.info.proved = s.clock.read()
	if err := s.conn.QueryRow(ctx, `SELECT pg_catalog.pg_try_advisory_lock($1)`, key).Scan(&got); err != nil {
		return err
	}
	if err := s.conn.QueryRow(ctx, `SELECT pg_catalog.count(*)`+sqlOurs+` AND `+sqlKey+` = $1`, key).Scan(&n); err != nil {
		return err
	}
	if err := s.conn.QueryRow(ctx, `SELECT pg_catalog.pg_advisory_unlock($1)`, key).Scan(&gone); err != nil {
		return err
	}
	if !got || n != 1 || !gone {
		return fmt.Errorf("%w: a lock that was taken here is not held here (taken %t, seen %d times, given back %t): connect to the server itself, or through a pooler in session mode", ErrUnsupported, got, n, gone)
	}
	return nil
}

// unusable says why a server that answers cannot be used now.
func unusable(recovery bool) error {
	if recovery {
		return errors.New("the server is a standby, in recovery: it would grant locks that the primary knows nothing of")
	}
	return errors.New("the session is read-only (default_transaction_read_only of the server, the database or the role)")
}
