// SPDX-License-Identifier: MIT

package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// dialing is the configuration of dsn, whose connections wrap makes.
func dialing(t *testing.T, dsn string, wrap func(net.Conn) net.Conn) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return wrap(conn), nil
	}
	return config
}

// ownTimeouts is a connection as of a network stack in user space: a deadline that has passed gives a net.Error of its own.
type ownTimeouts struct{ net.Conn }

type ownTimeout struct{}

func (*ownTimeout) Error() string   { return "i/o timeout" }
func (*ownTimeout) Timeout() bool   { return true }
func (*ownTimeout) Temporary() bool { return true }

func (c ownTimeouts) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = &net.OpError{Op: "read", Net: "tcp", Err: &ownTimeout{}}
	}
	return n, err
}

// TestPostgresTimeoutsOfAnotherKind: an interrupt is one, whatever the error looks like.
func TestPostgresTimeoutsOfAnotherKind(t *testing.T) {
	config := dialing(t, pgtest.URL(t), func(conn net.Conn) net.Conn { return ownTimeouts{conn} })
	l := newLeader(t, PostgresConfig(config), faultOptions(t, "a"))
	goRun(t.Context(), l, "x", obey)
	poll(t, soon, "x is led", func() bool { return l.IsLeading("x") })
	never(t, 5*faultCheck, "a loss", func() bool { return l.Status().Losses > 0 })
}

// hanging is a connection whose Write hangs, whatever becomes of the connection.
type hanging struct {
	net.Conn
	hang    *atomic.Bool
	release chan struct{}
	count   *atomic.Int32 // of writes that hang
}

func (c hanging) Write(b []byte) (int, error) {
	if c.hang.Load() {
		c.count.Add(1)
		<-c.release
	}
	return c.Conn.Write(b)
}

// TestPostgresWriteThatHangs costs the leadership after the lease, and no Resign its end: neither of the old connection, nor also
// of the next ones.
func TestPostgresWriteThatHangs(t *testing.T) {
	t.Run("Once", func(t *testing.T) { testWriteThatHangs(t, false) })
	t.Run("AlsoOfTheNext", func(t *testing.T) { testWriteThatHangs(t, true) })
}

func testWriteThatHangs(t *testing.T, next bool) {
	t.Helper()
	var hang atomic.Bool
	var dials, hung atomic.Int32
	release := make(chan struct{})
	config := dialing(t, pgtest.URL(t), func(conn net.Conn) net.Conn {
		if dials.Add(1) > 1 && !next {
			return conn
		}
		return hanging{Conn: conn, hang: &hang, release: release, count: &hung}
	})
	l := newLeader(t, PostgresConfig(config), faultOptions(t, "a"))
	goRun(t.Context(), l, "x", obey)
	poll(t, soon, "x is led", func() bool { return l.IsLeading("x") })
	hang.Store(true)
	poll(t, soon, "a loss", func() bool { return l.Status().Losses > 0 })
	if next {
		poll(t, soon, "a dial hangs", func() bool { return hung.Load() > 1 })
	} else {
		poll(t, soon, "x is led again", func() bool { return l.IsLeading("x") })
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	require.NoError(t, l.Resign(ctx))
	close(release)
}

// TestPostgresAfterNetConnectThatFails, as functions do, must not end the process: the driver closes what it gets.
func TestPostgresAfterNetConnectThatFails(t *testing.T) {
	config, err := pgx.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	config.AfterNetConnect = func(context.Context, *pgconn.Config, net.Conn) (net.Conn, error) {
		return nil, errors.New("no")
	}
	require.ErrorContains(t, openBackend(t, PostgresConfig(config)), "no")
}

func TestConfigWithoutFunctions(t *testing.T) {
	for _, take := range []func(*pgx.ConnConfig){
		func(c *pgx.ConnConfig) { c.DialFunc = nil },
		func(c *pgx.ConnConfig) { c.LookupFunc = nil },
	} {
		config, err := pgx.ParseConfig("postgres://a@127.0.0.1/x")
		require.NoError(t, err)
		take(config)
		_, err = New(PostgresConfig(config), Options{})
		require.ErrorContains(t, err, "DialFunc or LookupFunc")
	}
}

// TestOneHostOfTwoThatDoesNotKnowAParameter: the other one is down for a moment, so that is nothing final.
func TestOneHostOfTwoThatDoesNotKnowAParameter(t *testing.T) {
	f := (&fakeServer{refuse: fakeError("FATAL", "42704", `unrecognized configuration parameter "transaction_timeout"`)}).start(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	down := ln.Addr().String()
	require.NoError(t, ln.Close())
	err = openBackend(t, Postgres("postgres://u@"+f.ln.Addr().String()+","+down+"/app?sslmode=disable&transaction_timeout=0"))
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrUnsupported)
}

// TestPoolerErrorIsNotFinal: PgBouncer has one SQLSTATE for all its errors.
func TestPoolerErrorIsNotFinal(t *testing.T) {
	said := "server conn crashed?"
	answer := func(sql string) fakeAnswer {
		switch {
		case sql == sqlWhere:
			return fakeAnswer{row: []string{"f", "off", "160000", "app", "public"}}
		case strings.Contains(sql, "BEGIN"):
			return fakeAnswer{err: fakeError("FATAL", "08P01", said)}
		}
		return fakeAnswer{row: []string{"1000"}} // the process id
	}
	f := (&fakeServer{version: "PostgreSQL 16.1", pid: "1000", answer: answer}).start(t)
	err := openBackend(t, Postgres(f.url()))
	require.ErrorContains(t, err, said)
	require.NotErrorIs(t, err, ErrUnsupported)
	said = "transaction blocks not allowed in statement pooling mode"
	require.ErrorIs(t, openBackend(t, Postgres(f.url())), ErrUnsupported)
}

// TestPostgresPoolerWhoseServerCrashes, while it is tested, is not refused for good.
func TestPostgresPoolerWhoseServerCrashes(t *testing.T) {
	server := pgtest.Start(t)
	bouncer := server.Bounce(t, "pool_mode=session")
	proxy := pgtest.NewProxy(t, bouncer.Addr())
	u, err := url.Parse(bouncer.URL(server.URL()))
	require.NoError(t, err)
	u.Host = proxy.Addr()
	admin := pgtest.Connect(t, server.URL())
	var once sync.Once
	proxy.OnClient(func(_ int, msg []byte) {
		if bytes.Contains(msg, []byte("BEGIN READ ONLY")) {
			once.Do(func() {
				_, err := admin.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
					WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
				assert.NoError(t, err)
			})
		}
	})
	err = openBackend(t, Postgres(u.String()))
	require.Error(t, err)
	t.Log(err)
	require.NotErrorIs(t, err, ErrUnsupported)
	require.NoError(t, openBackend(t, Postgres(u.String())))
}

// TestPostgresHolderOfAPreparedTransaction: an application's lock, of no process.
func TestPostgresHolderOfAPreparedTransaction(t *testing.T) {
	server := pgtest.Start(t, "max_prepared_transactions=2")
	dsn := server.Database(t)
	l := newLeader(t, Postgres(dsn), faultOptions(t, "a"))
	conn := pgtest.Connect(t, dsn)
	_, err := conn.Exec(t.Context(), fmt.Sprintf("BEGIN; SELECT pg_advisory_xact_lock(%d); PREPARE TRANSACTION 'p'", Key(t.Name(), "x")))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	h, err := l.Holder(ctx, "x")
	require.NoError(t, err)
	assert.Equal(t, Holder{Name: "x", Held: true}, h)
	_, err = conn.Exec(context.Background(), "ROLLBACK PREPARED 'p'")
	require.NoError(t, err)
	poll(t, soon, "x is free", func() bool {
		h, err := l.Holder(ctx, "x")
		return err == nil && h == Holder{Name: "x"}
	})
}
