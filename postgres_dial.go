// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/oxygenhub/leader/internal/dialerr"
)

// hostTimeout bounds the connect to one host.
const hostTimeout = 5 * time.Second

// dial connects for locks.
func (p *postgres) dial(ctx context.Context, opts Options, clock *clock) (*pgSession, error) {
	return p.dialAs(ctx, applicationPrefix, opts, clock)
}

// dialAs connects. Credentials and addresses are asked for anew each time. prefix is for the application_name.
func (p *postgres) dialAs(ctx context.Context, prefix string, opts Options, clock *clock) (*pgSession, error) {
	config := p.config.Copy()
	if p.beforeConnect != nil {
		if err := p.beforeConnect(ctx, config); err != nil {
			return nil, fmt.Errorf("connect: BeforeConnect: %w", err)
		}
	}
	s := &pgSession{opts: opts, clock: clock, held: make(map[int64]struct{}), batch: maxBatch}
	s.adapt(config, prefix)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, refusedAtConnect(dialerr.New(err))
	}
	s.conn = conn
	s.fatal, s.spoken = nil, nil // of a host before the one that let us in
	s.connected.Store(true)
	s.wire.adopted.Store(true)
	if err := s.wire.SetDeadline(time.Time{}); err != nil {
		s.close() //nolint:contextcheck // also after ctx has ended
		return nil, fmt.Errorf("%w: the connection of the configured DialFunc has no deadlines, so waiting on it could not be interrupted: %w", ErrUnsupported, err)
	}
	return s, nil
}

// refusedAtConnect tells what no later try will change.
func refusedAtConnect(err *dialerr.Error) error {
	const undefinedObject = "42704"
	if !slices.ContainsFunc(err.Unwrap(), func(err error) bool { return sqlState(err) != undefinedObject }) {
		return fmt.Errorf("%w: the server does not know a parameter of the connection string: leave it out (for a schema, Options.Namespace or search_path): %w", ErrUnsupported, err)
	}
	return fmt.Errorf("connect: %w", err)
}

// sqlState returns the code of a server's error, or "" if err is none.
func sqlState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

// tooManyConnections reports whether a server has refused a connection because it has too many.
func tooManyConnections(err error) bool { return sqlState(err) == "53300" }

// adapt takes out of config, a copy, what would run code of the user inside the session or change its I/O.
func (s *pgSession) adapt(config *pgx.ConnConfig, prefix string) {
	config.Tracer = nil
	config.OnNotice = nil
	config.OnNotification = nil // set, it would make WaitForNotification return nothing
	config.AfterConnect = nil
	config.OnPgError = s.onPgError
	config.BuildFrontend = pgproto3.NewFrontend
	config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: c.Conn()} // an interrupt must not cost the connection
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec                   // poolers do not like named statements
	config.StatementCacheCapacity, config.DescriptionCacheCapacity = 8, 0 // of those that a session does over and over, see mode
	if config.ConnectTimeout <= 0 || config.ConnectTimeout > hostTimeout {
		config.ConnectTimeout = hostTimeout
	}
	if config.ValidateConnect == nil && severalHosts(config) {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if config.RuntimeParams == nil {
		config.RuntimeParams = make(map[string]string)
	}
	config.RuntimeParams["application_name"] = applicationName(prefix, s.opts.Node)
	lookup, dial, wrap := config.LookupFunc, config.DialFunc, config.AfterNetConnect
	names := make(map[string]string)
	config.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		addrs, err := lookup(ctx, host)
		for _, addr := range addrs {
			names[addr] = host
		}
		return addrs, err
	}
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if s.connected.Load() {
			return nil, net.ErrClosed // a cancel request of the driver: we have no use for it
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		s.host, s.address = peer(names, network, address)
		return &wire{Conn: conn, clock: s.clock}, nil
	}
	config.AfterNetConnect = s.afterNetConnect(wrap)
}

// afterNetConnect notes which connection the driver goes on with: not in DialFunc, which it also calls for cancel requests, on
// goroutines of its own.
func (s *pgSession) afterNetConnect(wrap func(context.Context, *pgconn.Config, net.Conn) (net.Conn, error)) func(context.Context, *pgconn.Config, net.Conn) (net.Conn, error) {
	return func(ctx context.Context, config *pgconn.Config, conn net.Conn) (net.Conn, error) {
		raw := conn
		if t, ok := conn.(*tls.Conn); ok {
			raw = t.NetConn()
		}
		s.wire = raw.(*wire)
		if wrap == nil {
			return conn, nil
		}
		wrapped, err := wrap(ctx, config, conn)
		if err != nil {
			return conn, err // the driver closes what it gets, also beside an error
		}
		return wrapped, nil
	}
}

// peer returns the host that address was looked up for, and the address as people know it.
func peer(names map[string]string, network, address string) (host, known string) {
	addr, port, err := net.SplitHostPort(address)
	if network == "unix" || err != nil {
		return "", address
	}
	for _, looked := range []string{addr, address} { // a lookup may tell the port, too
		if name, ok := names[looked]; ok {
			return name, net.JoinHostPort(name, port)
		}
	}
	return addr, address
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
func applicationName(prefix, node string) string {
	name := prefix + node
	for len(name) > 63 || !utf8.ValidString(name) {
		name = name[:min(len(name)-1, 63)]
	}
	return name
}
