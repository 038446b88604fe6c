// SPDX-License-Identifier: MIT

// Package pgtest gives tests a PostgreSQL server, and a network that fails on demand.
//
// A test that needs any server calls [URL]; one that stops or configures the server calls [Start]. [NewProxy] goes
// between a client and a server. Servers are found by LEADER_TEST_POSTGRES_URL (URL only; "none" skips whatever needs
// PostgreSQL, also in CI), LEADER_TEST_POSTGRES_BIN, pg_config and Debian's folders, in this order.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// shared is the server behind URL.
var shared struct { //nolint:gochecknoglobals // one server per test binary, for all tests
	mu     sync.Mutex
	server *Server
	err    error
}

// Main runs the tests and then stops the server that URL started. Call it as os.Exit(pgtest.Main(m)) in TestMain.
// Without it the server ends with the test binary too, a moment later.
func Main(m *testing.M) int {
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		return code
	}
	if err := shared.server.discard(); err != nil {
		fmt.Fprintf(os.Stderr, "pgtest: %v\n", err)
		return max(code, 1)
	}
	return code
}

// URL returns the URL of a new, empty database, which is dropped when the test ends. It lies in the server of
// LEADER_TEST_POSTGRES_URL, or else in one that all tests of the binary share. Without either it skips the test, or
// fails it when CI is set.
func URL(tb testing.TB) string {
	tb.Helper()
	if admin := os.Getenv(envURL); admin != "" && admin != noPostgres {
		return createDatabase(tb, admin)
	}
	server, err := sharedServer()
	if err != nil {
		absent(tb, err)
	}
	return server.Database(tb)
}

func sharedServer() (*Server, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = newServer(context.Background(), nil)
	}
	return shared.server, shared.err
}

// Connect opens a connection for a test to observe or disturb with. It is closed when the test ends.
func Connect(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	ctx, cancel := bounded(tb)
	defer cancel()
	conn, err := dial(ctx, url)
	if err != nil {
		tb.Fatalf("pgtest: connect: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := bounded(tb)
		defer cancel()
		_ = conn.Close(ctx) // the test may have killed it
	})
	return conn
}

// Exec runs sql on a connection of its own. Without arguments it may be several statements.
func Exec(tb testing.TB, url, sql string, args ...any) {
	tb.Helper()
	ctx, cancel := bounded(tb)
	defer cancel()
	if err := run(ctx, url, sql, args...); err != nil {
		tb.Fatalf("pgtest: %s: %v", sql, err)
	}
}

func run(ctx context.Context, url, sql string, args ...any) error {
	conn, err := dial(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql, args...)
	return errors.Join(err, conn.Close(ctx))
}

func dial(ctx context.Context, url string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return pgx.Connect(ctx, url)
}

// bounded is a context that also serves in cleanups, which run after the end of tb's own.
func bounded(tb testing.TB) (context.Context, context.CancelFunc) {
	tb.Helper()
	return context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
}

// createDatabase makes a database beside the one of admin. template0 as its template, because nobody can be connected
// to that one, which CREATE DATABASE would refuse.
func createDatabase(tb testing.TB, admin string) string {
	tb.Helper()
	u, err := url.Parse(admin)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		tb.Fatalf("pgtest: %s is not a postgres:// URL", envURL) // which may hold a password: not printed
	}
	name := fmt.Sprintf("leader_test_%08x", rand.Uint32())
	Exec(tb, admin, "CREATE DATABASE "+name+" TEMPLATE template0")
	tb.Cleanup(func() {
		ctx, cancel := bounded(tb)
		defer cancel()
		// The server may be stopped or gone; if it is not, it soon will be, or it has one small database too many.
		_ = run(ctx, admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	})
	u.Path = "/" + name
	return u.String()
}
