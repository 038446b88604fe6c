// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestNewRefusesForeignConnectionStrings: what a newcomer may pass by mistake says so at once, and does not lead elsewhere.
func TestNewRefusesForeignConnectionStrings(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "it is empty (is DATABASE_URL set?)",
		" \n":                                 "for the PG* environment variables, PostgresConfig",
		"mysql://app:secret@host/app":         `it begins with "mysql:"`,
		"postgresql+asyncpg://app:secret@h/a": `it begins with "postgresql+asyncpg:"`,
		"jdbc:postgresql://host/app":          `it begins with "jdbc:"`,
		"sqlite:app.db":                       "pass the *sql.DB to SQLite",
		"sqlite:///secret/app.db":             "pass the *sql.DB to SQLite",
		"file:secret.db?mode=rwc":             "pass the *sql.DB to SQLite",
		"postgres://host:port/app":            "connection string: ",
	} {
		_, err := New(Postgres(text), Options{})
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, "leader: connection string: ", text)
		assert.NotContains(t, err.Error(), "secret")
	}
	for _, text := range []string{
		"postgres://app@host/app", "postgresql://host/app", "host=/var/run/postgresql", "host=h password='a://b'", "dbname=app user=x",
	} {
		_, err := New(Postgres(text), Options{})
		assert.NoError(t, err, text)
	}
}

// TestParametersOfThePoolAreLeftOut: with them the server would refuse each connect.
func TestParametersOfThePoolAreLeftOut(t *testing.T) {
	const text = "postgres://app@host/app?pool_max_conns=7&pool_max_conn_lifetime=1h&search_path=x"
	config, err := pgx.ParseConfig(text)
	require.NoError(t, err)
	pool, err := pgxpool.New(t.Context(), text) // does not connect
	require.NoError(t, err)
	defer pool.Close()
	for _, b := range []Backend{Postgres(text), PostgresConfig(config), PostgresPool(pool)} {
		assert.Equal(t, map[string]string{"search_path": "x"}, b.(*postgres).config.RuntimeParams)
	}
	assert.Contains(t, config.RuntimeParams, "pool_max_conns", "the caller's own is left alone")
}

func TestPostgresTakesParametersOfThePool(t *testing.T) {
	dsn := pgtest.URL(t)
	s := openSession(t, Postgres(dsn+"&pool_max_conns=7"), "a")
	assert.Equal(t, []int64{1}, take(t, s, 1))
}

// TestPostgresUnknownParameter: a mistake that no time heals ends Run.
func TestPostgresUnknownParameter(t *testing.T) {
	err := openBackend(t, Postgres(pgtest.URL(t)+"&schema=mine"))
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, `unrecognized configuration parameter "schema"`)
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
}

// TestPostgresPlace names the database and the server for people, and nobody's user or password.
func TestPostgresPlace(t *testing.T) {
	server := pgtest.Start(t)
	u, err := url.Parse(server.URL())
	require.NoError(t, err)
	u.User = url.UserPassword("postgres", "secret")
	_, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	for text, want := range map[string]string{
		u.String(): "postgres@" + server.Addr(),
		strings.Replace(u.String(), "127.0.0.1", "localhost", 1):                          "postgres@localhost:" + port,
		strings.Replace(u.String(), server.Addr(), "127.0.0.1:1,localhost:"+port, 1):      "postgres@localhost:" + port,
		strings.Replace(server.SocketURL(), "postgres@", "postgres:secret@", 1):           "",
		"host=localhost port=" + port + " user=postgres password=secret dbname=template1": "template1@localhost:" + port,
	} {
		place := openSession(t, Postgres(text), "a").about().place
		if want == "" {
			assert.Regexp(t, `^postgres@/.*/\.s\.PGSQL\.`+port+`$`, place)
			continue
		}
		assert.Equal(t, want, place)
	}
}

// TestDialErrorsAreOneLine: each thing once, with nothing of the configuration in reach, and the causes in reach.
func TestDialErrorsAreOneLine(t *testing.T) {
	refusal := (&fakeServer{refuse: fakeError("FATAL", "28P01", "password authentication failed for user \"someone\"")}).start(t)
	nowhere, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, nowhere.Close())
	for text, want := range map[string]string{
		// With TLS preferred, and without it: the same error twice.
		"postgres://app:secret@" + nowhere.Addr().String() + "/app?sslmode=prefer": "connect: " + nowhere.Addr().String() + ": dial error: dial tcp " + nowhere.Addr().String() + ": connect: connection refused",
		strings.Replace(refusal.url(), "someone@", "someone:secret@", 1): "connect: " + refusal.ln.Addr().String() +
			": server error: FATAL: password authentication failed for user \"someone\" (SQLSTATE 28P01)",
		// With TLS refused, and then an answer: the answer.
		strings.Replace(refusal.url(), "sslmode=disable", "sslmode=prefer", 1): "connect: " + refusal.ln.Addr().String() +
			": server error: FATAL: password authentication failed for user \"someone\" (SQLSTATE 28P01)",
	} {
		err := openBackend(t, Postgres(text))
		require.EqualError(t, err, want)
		var connectErr *pgconn.ConnectError
		assert.NotErrorAs(t, err, &connectErr, "it has the password")
		var pgErr *pgconn.PgError
		var opErr *net.OpError
		assert.True(t, errors.As(err, &pgErr) || errors.As(err, &opErr), "the cause")
	}
	err = openBackend(t, Postgres("postgres://app:secret@a.invalid,b.invalid/app"))
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "\n")
	assert.NotContains(t, err.Error(), "secret")
	var dnsErr *net.DNSError
	require.ErrorAs(t, err, &dnsErr)
}

// noDeadlines is a connection that cannot be interrupted, as some tunnels are.
type noDeadlines struct{ net.Conn }

func (noDeadlines) SetDeadline(time.Time) error { return errors.New("no deadlines") }

func TestPostgresConnectionsWithoutDeadlinesAreRefused(t *testing.T) {
	config, err := pgx.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return noDeadlines{conn}, err
	}
	err = openBackend(t, PostgresConfig(config))
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "DialFunc")
}

func TestPostgresConfigWithoutRuntimeParams(t *testing.T) {
	config, err := pgx.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	config.RuntimeParams = nil
	s := openSession(t, PostgresConfig(config), "a")
	assert.Equal(t, []int64{1}, take(t, s, 1))
}

// TestSettingsAreRoundedUp: a part of a millisecond must not become 0, which is no limit at all.
func TestSettingsAreRoundedUp(t *testing.T) {
	s := &pgSession{opts: Options{Lease: 20*time.Millisecond + 1, SessionTimeout: 100*time.Millisecond + 1}}
	values := make(map[string]string)
	for _, setting := range s.settings(140000) {
		values[setting[0]] = setting[1]
	}
	assert.Equal(t, "21", values["statement_timeout"])
	for _, name := range []string{"idle_session_timeout", "tcp_user_timeout", "idle_in_transaction_session_timeout"} {
		assert.Equal(t, "101", values[name], name)
	}
	assert.Equal(t, "1", values["tcp_keepalives_idle"])
	assert.Equal(t, "1", values["tcp_keepalives_count"])
}

// TestPostgresPoolerInFrontOfAReadOnlyServer: not usable now, as without a pooler, and nothing about a pooler's mode is concluded.
func TestPostgresPoolerInFrontOfAReadOnlyServer(t *testing.T) {
	server := pgtest.Start(t, "default_transaction_read_only=on")
	for _, mode := range []string{"session", "transaction"} {
		bouncer := server.Bounce(t, "pool_mode="+mode)
		err := openBackend(t, Postgres(bouncer.URL(server.URL())))
		require.ErrorContains(t, err, "the session is read-only", mode)
		require.NotErrorIs(t, err, ErrUnsupported, mode)
	}
}
