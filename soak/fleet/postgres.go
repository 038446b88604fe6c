// SPDX-License-Identifier: MIT

//go:build unix

package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/ledger"
	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/soak/history"
)

// newBase returns the database of an arena.
func newBase(c Config) (base, error) {
	switch c.Arena {
	case "direct":
		return &postgres{}, nil
	case "pooler":
		return &pooler{}, nil
	case "replica":
		return &replica{}, nil
	case "remote":
		return newRemote()
	case "sqlite":
		return &sqlite{}, nil
	}
	return nil, fmt.Errorf("arena %q: there are %s", c.Arena, strings.Join(Arenas(), ", "))
}

// settings of the servers. The lock table is small, so that it can be filled.
func settings() []string {
	return []string{
		"wal_level=logical", "max_connections=120", "max_locks_per_transaction=10", "max_prepared_transactions=0",
		"autovacuum=off", "log_checkpoints=off",
	}
}

// Server is a PostgreSQL server that several episodes share.
type Server struct {
	stage  *pgtest.Stage
	server *pgtest.Server
}

// NewServer starts one. Close ends it.
func NewServer(ctx context.Context, dir string, log func(string)) (*Server, error) {
	s := &Server{stage: pgtest.NewStage(ctx, "soak", dir, log)}
	return s, s.stage.Try(func() { s.server = pgtest.Start(s.stage, settings()...) })
}

// Close ends the server and removes its data.
func (s *Server) Close() error { return s.stage.End() }

// postgres is a server, and a proxy for each way of each place.
type postgres struct {
	fleet  *Fleet
	server *pgtest.Server
	url    string // of the database, without a proxy
	slot   logOf
	probe  *pgx.Conn // of load, nil when it is not connected
}

func (b *postgres) prepare(ctx context.Context, f *Fleet) error {
	b.fleet = f
	if err := b.serve(ctx); err != nil {
		return err
	}
	b.proxies(b.server.Addr())
	return nil
}

// proxies makes the places, whose Leaders reach the server by way of lock.
func (b *postgres) proxies(lock string) {
	f := b.fleet
	for id := range f.Places {
		f.places = append(f.places, &place{
			fleet: f, id: id + 1,
			lock: proxies{pgtest.NewProxy(f.stage, lock)}, app: proxies{pgtest.NewProxy(f.stage, b.server.Addr())},
		})
	}
}

// serve starts a server, if it is not a shared one, and makes a database that is ready for a fleet.
func (b *postgres) serve(ctx context.Context, more ...string) error {
	if f := b.fleet; f.Server != nil {
		b.server = f.Server.server
	} else {
		b.server = pgtest.Start(f.stage, append(settings(), more...)...)
	}
	b.url = b.server.Database(b.fleet.stage)
	pgtest.Exec(b.fleet.stage, b.url, ledger.SQL)
	pgtest.Exec(b.fleet.stage, b.url, leader.TermsSQL)
	b.slot = logOf{slot: fmt.Sprintf("soak_%x_%x", b.fleet.Seed, time.Now().UnixNano())}
	return b.with(ctx, func(conn *pgx.Conn) error { return b.slot.open(ctx, conn) })
}

// connect waits for the server, which may be starting, recovering or full.
func (b *postgres) connect(ctx context.Context) (*pgx.Conn, error) {
	for deadline := time.Now().Add(waits); ; {
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		conn, err := pgx.Connect(short, b.url)
		cancel()
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return conn, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// waits is how long the laboratory waits for a server that it knows to come back.
const waits = 20 * time.Second

// with calls do with a connection of its own.
func (b *postgres) with(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	return do(conn)
}

// hangUp closes a connection, which may be gone.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

func (b *postgres) urls(p *place) (lock, app string) { return p.lock.url(b.url), p.app.url(b.url) }
func (b *postgres) driver() string                   { return "" }
func (b *postgres) rest()                            {}

func (b *postgres) version() string {
	version := "?"
	_ = b.with(b.fleet.ctx, func(conn *pgx.Conn) error { return conn.QueryRow(b.fleet.ctx, "SHOW server_version").Scan(&version) })
	return "PostgreSQL " + version
}

func (b *postgres) led(ctx context.Context) (names int, err error) {
	err = b.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT count(DISTINCT name) FROM ledger").Scan(&names)
	})
	return names, err
}

// loadSQL is of the sessions that hold locks of names, or ask for them, and of no others.
const loadSQL = `SELECT count(*),
	(SELECT count(*) FROM pg_locks l JOIN pg_stat_activity h USING (pid) WHERE l.locktype = 'advisory' AND l.granted
		AND h.application_name LIKE 'leader/%' AND h.datname = current_database()),
	count(*) FILTER (WHERE a.backend_xmin IS NOT NULL AND a.wait_event_type = 'Lock'),
	count(*) FILTER (WHERE a.state LIKE 'idle in transaction%')
	FROM pg_stat_activity a WHERE a.application_name LIKE 'leader/%' AND a.datname = current_database()`

func (b *postgres) load(ctx context.Context) (e history.Event, err error) {
	if b.probe == nil {
		if b.probe, err = pgx.Connect(ctx, b.url); err != nil {
			b.probe = nil
			return e, err
		}
	}
	err = b.probe.QueryRow(ctx, loadSQL).Scan(&e.Backends, &e.Locks, &e.Snapshots, &e.Open)
	if err != nil {
		_ = b.probe.Close(ctx) // the next one may do better
		b.probe = nil
	}
	for _, p := range b.fleet.places {
		for _, proxy := range p.lock { // each statement is one of these: of the simple protocol, or of the extended one
			e.Statements += proxy.Count('Q') + proxy.Count('E')
		}
	}
	return e, err
}

// commits reads the server's log.
func (b *postgres) commits(ctx context.Context) (commits []history.Commit, err error) {
	b.forget()
	err = b.with(ctx, func(conn *pgx.Conn) error {
		err := b.quiet(ctx, conn)
		if err == nil {
			commits, err = b.slot.read(ctx, conn)
		}
		return err
	})
	return commits, err
}

// forget ends the connection of load.
func (b *postgres) forget() {
	if b.probe != nil {
		hangUp(b.probe)
		b.probe = nil
	}
}

// quiet returns when the last transaction of the fleet has ended: who was killed may have left one.
func (b *postgres) quiet(ctx context.Context, conn *pgx.Conn) error {
	const busy = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND (application_name LIKE 'ledger/%' OR application_name LIKE 'leader-terms/%') AND state <> 'idle'`
	for deadline, n := time.Now().Add(10*time.Second), 1; n > 0; time.Sleep(10 * time.Millisecond) {
		if err := conn.QueryRow(ctx, busy).Scan(&n); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d transactions of a fleet that is gone go on", n)
		}
	}
	return nil
}

func (b *postgres) terminate(ctx context.Context, apps func() []string) (now func() error, err error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	// Not pg_stat_activity, whose tables are shared by all databases: it takes locks, which may all be taken.
	const sql = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_get_activity(NULL) WHERE application_name = ANY($1)
		AND datid = (SELECT datid FROM pg_stat_get_activity(pg_backend_pid()))`
	if _, err = conn.Prepare(ctx, "terminate", sql); err != nil { // from here on it needs little
		hangUp(conn)
		return nil, err
	}
	return func() error {
		defer hangUp(conn)
		_, err := conn.Exec(ctx, "terminate", apps())
		if conn.IsClosed() { // the server has ended all sessions
			return nil
		}
		return err
	}, nil
}

func (b *postgres) stop(mode string) error {
	b.server.Stop(mode)
	return nil
}

func (b *postgres) start() error {
	b.server.Start()
	return nil
}

func (b *postgres) crashBackend(ctx context.Context) error {
	err := b.with(ctx, func(conn *pgx.Conn) error {
		if err := syscall.Kill(int(conn.PgConn().PID()), syscall.SIGKILL); err != nil {
			return err
		}
		for { // until this session has ended, and all others with it
			if _, err := conn.Exec(ctx, "SELECT pg_sleep(0.01)"); err != nil {
				return nil //nolint:nilerr // as it should
			}
		}
	})
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(waits); ; { // until it has recovered: at first it may not yet know that it has to
		err := b.with(ctx, func(conn *pgx.Conn) error { return conn.Ping(ctx) })
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (b *postgres) fillLocks(ctx context.Context) (empty func() error, err error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	empty = func() error {
		hangUp(conn) // the end of the session frees them, however it ends
		return nil
	}
	for n, step := 0, 256; step > 0; n += step { // what a statement that fails has taken stays taken
		_, err := conn.Exec(ctx, "SELECT count(pg_advisory_lock(7, g)) FROM generate_series($1::int, $2::int) g", n, n+step-1)
		var full *pgconn.PgError
		switch {
		case err == nil:
		case errors.As(err, &full) && full.Code == "53200":
			step /= 2
		default:
			return nil, errors.Join(err, empty())
		}
	}
	return empty, nil
}

func (b *postgres) readOnly(ctx context.Context, on bool) error {
	return b.with(ctx, func(conn *pgx.Conn) error {
		sql := "ALTER SYSTEM RESET default_transaction_read_only"
		if on {
			sql = "ALTER SYSTEM SET default_transaction_read_only = on"
		}
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "SELECT pg_reload_conf()")
		return err
	})
}

// What this arena does not have.

func (b *postgres) bounce(bool) error             { return errors.ErrUnsupported }
func (b *postgres) promote(context.Context) error { return errors.ErrUnsupported }
func (b *postgres) cut(int, string) error         { return errors.ErrUnsupported }
func (b *postgres) mend(int) error                { return errors.ErrUnsupported }

func (b *postgres) fillDisk() (func() error, error) { return nil, errors.ErrUnsupported }
