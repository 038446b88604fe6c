// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeServer speaks the protocol of PostgreSQL and is something else.
type fakeServer struct {
	ln      net.Listener
	version string
	pid     string                      // what pg_backend_pid() says
	refuse  *pgproto3.ErrorResponse     // of the start-up
	answer  func(sql string) fakeAnswer // to all but the first statement

	mu         sync.Mutex
	statements []string
	conns      int
}

// fakeAnswer is one row of text columns, or an error.
type fakeAnswer struct {
	row []string
	err *pgproto3.ErrorResponse
}

func fakeError(severity, code, message string) *pgproto3.ErrorResponse {
	return &pgproto3.ErrorResponse{Severity: severity, SeverityUnlocalized: severity, Code: code, Message: message}
}

// start serves until the test ends.
func (f *fakeServer) start(t *testing.T) *fakeServer {
	t.Helper()
	var err error
	f.ln, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { // until the listener is closed
		for {
			conn, err := f.ln.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns++
			f.mu.Unlock()
			wg.Go(func() { // until the client ends it
				f.serve(conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = f.ln.Close()
		wg.Wait()
	})
	return f
}

func (f *fakeServer) url() string {
	return "postgres://someone@" + f.ln.Addr().String() + "/app?sslmode=disable"
}

func (f *fakeServer) said() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.statements)
}

func (f *fakeServer) accepted() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conns
}

func (f *fakeServer) serve(conn net.Conn) {
	b := pgproto3.NewBackend(conn, conn)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	if f.refuse != nil {
		b.Send(f.refuse)
		_ = b.Flush()
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ParameterStatus{Name: "server_version", Value: "16.0"})
	b.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	b.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	b.Send(&pgproto3.BackendKeyData{ProcessID: 4711, SecretKey: []byte{1, 2, 3, 4}})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	sql := ""
	for b.Flush() == nil {
		msg, err := b.Receive()
		if err != nil {
			return
		}
		switch msg := msg.(type) {
		case *pgproto3.Terminate:
			f.note("goodbye")
			return
		case *pgproto3.Parse:
			sql = msg.Query
		case *pgproto3.Query:
			f.reply(b, msg.String, false)
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		case *pgproto3.Execute:
			f.reply(b, sql, true)
		case *pgproto3.Sync:
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		}
	}
}

func (f *fakeServer) note(statement string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statements = append(f.statements, statement)
}

// reply answers a statement, of which extended says how it came.
func (f *fakeServer) reply(b *pgproto3.Backend, sql string, extended bool) {
	f.note(sql)
	answer := fakeAnswer{row: []string{f.version, f.pid}}
	if sql != sqlWho {
		answer = f.answer(sql)
	}
	if answer.err != nil {
		b.Send(answer.err)
		return
	}
	if extended {
		b.Send(&pgproto3.ParseComplete{})
		b.Send(&pgproto3.BindComplete{})
	}
	fields, values := &pgproto3.RowDescription{}, &pgproto3.DataRow{}
	for _, value := range answer.row {
		fields.Fields = append(fields.Fields, pgproto3.FieldDescription{Name: []byte("c"), DataTypeOID: fakeType(value), DataTypeSize: -1, TypeModifier: -1})
		values.Values = append(values.Values, []byte(value))
	}
	b.Send(fields)
	b.Send(values)
	b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
}

// openBackend is one attempt to connect, and returns what it came to.
func openBackend(t *testing.T, b Backend) error {
	t.Helper()
	opts, err := Options{}.withDefaults(b)
	require.NoError(t, err)
	require.NoError(t, b.check(opts))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := b.open(ctx, opts, &clock{epoch: time.Now()})
	if s != nil {
		t.Cleanup(s.close)
	}
	return err
}

// fakeType is the type that a server would tell for value.
func fakeType(value string) uint32 {
	_, err := strconv.ParseInt(value, 10, 64)
	switch {
	case value == "t" || value == "f":
		return pgtype.BoolOID
	case err == nil:
		return pgtype.Int8OID
	}
	return pgtype.TextOID
}

const (
	fakeCockroach = "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27 01:53:43, go1.19.10)"
	fakeRedshift  = "PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2 20041017 (Red Hat 3.4.2-6.fc3), Redshift 1.0.48805"
	fakeYugabyte  = "PostgreSQL 15.12-YB-2.25.2.0-b0 on x86_64-pc-linux-gnu, compiled by clang version 19.1.0, 64-bit"
)

// TestLookalikesAreRefusedAtTheFirstStatement: nothing but the question who answers was asked, and the connection was ended
// politely.
func TestLookalikesAreRefusedAtTheFirstStatement(t *testing.T) {
	for want, version := range map[string]string{
		"CockroachDB, whose advisory locks do nothing":     fakeCockroach,
		"Amazon Redshift, which has no advisory locks":     fakeRedshift,
		"PostgreSQL 13 is the oldest that will do":         "PostgreSQL 12.22 on x86_64-pc-linux-gnu, compiled by gcc, 64-bit",
		"is PostgreSQL 11.2-YB-2.18.0.0-b0 on x86_64":      "PostgreSQL 11.2-YB-2.18.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang",
		"is PostgreSQL 9.5.0 on x86_64-unknown-linux-gnu ": "PostgreSQL 9.5.0 on x86_64-unknown-linux-gnu (Materialize v0.27.0)",
	} {
		f := (&fakeServer{version: version, pid: "9223372036854775807"}).start(t)
		err := openBackend(t, Postgres(f.url()))
		require.ErrorIs(t, err, ErrUnsupported, version)
		assert.ErrorContains(t, err, want)
		assert.True(t, strings.HasPrefix(err.Error(), "leader: unsupported: the server is "), "%v", err)
		poll(t, soon, "the goodbye", func() bool { return len(f.said()) > 1 })
		assert.Equal(t, []string{sqlWho, "goodbye"}, f.said())
	}
}

// Aurora DSQL is known by its name, or by what it lacks: its version says PostgreSQL 16.
func TestDSQLIsRefused(t *testing.T) {
	lacks := func(sql string) fakeAnswer {
		if sql == sqlWhere {
			return fakeAnswer{row: []string{"f", "off", "160000", "postgres", "public"}}
		}
		return fakeAnswer{err: fakeError("ERROR", "0A000", "function pg_try_advisory_lock not supported")}
	}
	f := (&fakeServer{version: "PostgreSQL 16", pid: "4711", answer: lacks}).start(t)
	err := openBackend(t, Postgres(f.url()))
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "the server lacks what session locks need")
	require.ErrorContains(t, err, "function pg_try_advisory_lock not supported (SQLSTATE 0A000)")

	for _, host := range []string{"abcdef.dsql.us-east-1.on.aws", "abcdef.dsql-fnh4.eu-west-2.on.aws"} {
		config, err := pgx.ParseConfig("postgres://admin@" + host + "/postgres?sslmode=disable")
		require.NoError(t, err)
		config.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"192.0.2.1"}, nil }
		config.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, f.ln.Addr().String())
		}
		err = openBackend(t, PostgresConfig(config))
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "Amazon Aurora DSQL")
	}
}

// TestWhatTheServerLacksIsFinal: an error that no time heals ends Run, any other is retried.
func TestWhatTheServerLacksIsFinal(t *testing.T) {
	for code, final := range map[string]bool{
		"42883": true, "0A000": true, "42704": true, "42P01": true, "42601": true, // undefined function, unsupported, unknown setting, no table, syntax
		"42501": false, "53300": false, "57014": false, "25006": false, "XX000": false,
	} {
		refuses := func(string) fakeAnswer { return fakeAnswer{err: fakeError("ERROR", code, "no")} }
		f := (&fakeServer{version: "PostgreSQL 16.1", pid: "4711", answer: refuses}).start(t)
		err := openBackend(t, Postgres(f.url()))
		require.ErrorContains(t, err, code)
		if final {
			assert.ErrorIs(t, err, ErrUnsupported, code)
		} else {
			assert.NotErrorIs(t, err, ErrUnsupported, code)
		}
	}
}

// TestRunReturnsAtALookalike: the error reaches the caller of Run, who is not left to wait.
func TestRunReturnsAtALookalike(t *testing.T) {
	f := (&fakeServer{version: fakeCockroach, pid: "1"}).start(t)
	l, err := New(Postgres(f.url()), Options{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err = l.Run(ctx, "a", func(context.Context) error {
		t.Error("the task ran")
		return nil
	})
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "CockroachDB CCL v23.1.11")
	require.NoError(t, l.Resign(t.Context()))
	assert.Equal(t, 1, f.accepted())
}

// TestYugabyteIsWarnedOf in the log and in Watch.
func TestYugabyteIsWarnedOf(t *testing.T) {
	full := func(sql string) fakeAnswer {
		switch {
		case sql == sqlWhere:
			return fakeAnswer{row: []string{"f", "off", "150012", "yugabyte", "public"}}
		case strings.Contains(sql, "unnest"): // a try: not free
			return fakeAnswer{row: []string{"1", "f"}}
		case strings.Contains(sql, "count"):
			return fakeAnswer{row: []string{"1"}}
		}
		return fakeAnswer{row: []string{"t"}}
	}
	f := (&fakeServer{version: fakeYugabyte, pid: "4711", answer: full}).start(t)
	l, err := New(Postgres(f.url()), Options{})
	require.NoError(t, err)
	events := l.Watch(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ran, err := l.Try(ctx, "a", func(context.Context) error { return nil })
	require.NoError(t, err)
	assert.False(t, ran)
	e := <-events
	assert.Equal(t, Connected, e.Kind)
	assert.ErrorContains(t, e.Err, "the server is YugabyteDB (PostgreSQL 15.12-YB-2.25.2.0-b0")
	assert.Equal(t, "yugabyte@"+f.ln.Addr().String(), l.Status().Place)
	require.NoError(t, l.Resign(t.Context()))
}

// TestUnknownParametersAreFinal: nobody but who wrote the connection string can heal that.
func TestUnknownParametersAreFinal(t *testing.T) {
	f := (&fakeServer{refuse: fakeError("FATAL", "42704", `unrecognized configuration parameter "schema"`)}).start(t)
	err := openBackend(t, Postgres(f.url()+"&schema=mine"))
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, `unrecognized configuration parameter "schema" (SQLSTATE 42704)`)
	require.ErrorContains(t, err, "Options.Namespace or search_path")
}
