// SPDX-License-Identifier: MIT

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// envBouncer names the program to use instead of the first pgbouncer that is found.
const envBouncer = "LEADER_TEST_PGBOUNCER"

// Bouncer is a PgBouncer on 127.0.0.1, in front of a [Server]. Its methods are for one goroutine, that of the test.
type Bouncer struct {
	tb     testing.TB
	server *Server
	bin    string
	dir    string
	port   int
	proc   *process
}

// Bounce runs a PgBouncer in front of s until the test ends. Each setting is a `name=value` for pgbouncer.ini, as
// pool_mode=transaction. Without the program it skips the test, or fails it when CI is set.
func (s *Server) Bounce(tb testing.TB, settings ...string) *Bouncer {
	tb.Helper()
	b := &Bouncer{tb: tb, server: s, bin: findBouncer(tb)}
	var err error
	if b.dir, err = os.MkdirTemp(shortTemp(), "pgtest"); err == nil {
		err = give(b.dir)
	}
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the log of PgBouncer ends with\n%s", tail(b.Log(), 4000))
		}
		b.Stop()
		_ = os.RemoveAll(b.dir)
	})
	for try := 0; ; try++ { // another process can take the free port before PgBouncer does
		if b.port, err = freePort(tb.Context()); err != nil {
			break
		}
		b.configure(settings)
		if err = b.start(); err == nil || try == 2 || !strings.Contains(b.Log(), "Address already in use") {
			break
		}
	}
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	return b
}

// findBouncer returns the program, or ends the test.
func findBouncer(tb testing.TB) string {
	tb.Helper()
	if bin := os.Getenv(envBouncer); bin != "" {
		return bin
	}
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} { // Debian's is on no user's PATH
		if bin, err := exec.LookPath(name); err == nil {
			return bin
		}
	}
	const absent = "pgtest: no pgbouncer found: install it, or set " + envBouncer
	if os.Getenv("CI") != "" {
		tb.Fatal(absent)
	}
	tb.Skip(absent)
	return ""
}

// Version is the version of PgBouncer, 118 for 1.18.
func (b *Bouncer) Version() int {
	b.tb.Helper()
	out, err := exec.CommandContext(b.tb.Context(), b.bin, "--version").CombinedOutput()
	match := regexp.MustCompile(`PgBouncer (\d+)\.(\d+)`).FindSubmatch(out)
	if err != nil || match == nil {
		b.tb.Fatalf("pgtest: %s --version: %v\n%s", b.bin, err, out)
	}
	major, _ := strconv.Atoi(string(match[1])) // digits
	minor, _ := strconv.Atoi(string(match[2]))
	return 100*major + minor
}

// URL leads through PgBouncer to the database of url, which must be one of its server.
func (b *Bouncer) URL(url string) string {
	b.tb.Helper()
	if !strings.Contains(url, b.server.Addr()) {
		b.tb.Fatalf("pgtest: %s is not on the server behind this PgBouncer", url)
	}
	return strings.Replace(url, b.server.Addr(), b.Addr(), 1)
}

// Addr is the host:port of PgBouncer. It stays the same over Stop and Start.
func (b *Bouncer) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// Log is all that PgBouncer has logged.
func (b *Bouncer) Log() string {
	text, err := os.ReadFile(b.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Reload has PgBouncer take new settings, as its operator would, and returns when it has.
func (b *Bouncer) Reload(settings ...string) {
	b.tb.Helper()
	b.configure(settings)
	before := strings.Count(b.Log(), reloaded)
	if err := b.proc.reload(); err != nil {
		b.tb.Fatalf("pgtest: reload PgBouncer: %v", err)
	}
	for deadline := time.Now().Add(patience); strings.Count(b.Log(), reloaded) == before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.tb.Fatalf("pgtest: PgBouncer did not reload\n%s", tail(b.Log(), 4000))
		}
	}
}

// reloaded is what PgBouncer logs at a SIGHUP, which it heeds in the same step.
const reloaded = "got SIGHUP, re-reading config"

// Stop ends PgBouncer at once, and with it all connections through it.
func (b *Bouncer) Stop() {
	b.tb.Helper()
	if b.proc == nil {
		return
	}
	if err := b.proc.stop("immediate"); err != nil {
		b.tb.Errorf("pgtest: stop PgBouncer: %v", err)
	}
	b.proc = nil
}

// Start runs a stopped PgBouncer again, on the same port, with new settings.
func (b *Bouncer) Start(settings ...string) {
	b.tb.Helper()
	b.configure(settings)
	if err := b.start(); err != nil {
		b.tb.Fatalf("pgtest: %v", err)
	}
}

func (b *Bouncer) file() string    { return filepath.Join(b.dir, "pgbouncer.ini") }
func (b *Bouncer) logFile() string { return filepath.Join(b.dir, "log") }

// configure writes the settings. Everybody may connect, as to the server itself.
func (b *Bouncer) configure(settings []string) {
	b.tb.Helper()
	host, port, err := net.SplitHostPort(b.server.Addr())
	users := filepath.Join(b.dir, "users")
	conf := append([]string{
		"[databases]",
		"* = host=" + host + " port=" + port,
		"[pgbouncer]",
		"listen_addr=127.0.0.1",
		"listen_port=" + strconv.Itoa(b.port),
		"unix_socket_dir=",
		"auth_type=trust",
		"auth_file=" + users,
		"admin_users=postgres",
		"max_client_conn=500",
	}, settings...)
	for file, text := range map[string]string{b.file(): strings.Join(conf, "\n") + "\n", users: "\"postgres\" \"\"\n"} {
		err = errors.Join(err, os.WriteFile(file, []byte(text), 0o600), give(file))
	}
	if err != nil {
		b.tb.Fatalf("pgtest: %v", err)
	}
}

func (b *Bouncer) start() error {
	log, err := os.OpenFile(b.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the program has its own handle
	ctx, cancel := bounded(b.tb)
	defer cancel()
	life := context.WithoutCancel(ctx) // ctx is for the start only
	cmd := exec.CommandContext(life, b.bin, b.file())
	cmd.Dir = b.dir
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := launch(life, cmd, b.dir)
	if err != nil {
		return err
	}
	for {
		if err = b.answers(ctx); err == nil {
			b.proc = proc
			return nil
		}
		select {
		case <-proc.exited:
			err = fmt.Errorf("it ended by itself: %w", proc.err)
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
			continue
		}
		_ = proc.stop("immediate") // the first error matters more
		return fmt.Errorf("start PgBouncer: %w\n%s", err, b.Log())
	}
}

// answers asks the console, which needs no connection to the server: that would change what the test finds.
func (b *Bouncer) answers(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, "postgres://postgres@"+b.Addr()+"/pgbouncer?sslmode=disable&default_query_exec_mode=simple_protocol")
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// Hammer has clients run short transactions through url, one of a PgBouncer, until stop is called. It returns when they are at
// work.
func Hammer(tb testing.TB, url string, clients int) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	var done atomic.Int64
	for range clients {
		conn, err := dial(ctx, url+"&default_query_exec_mode=simple_protocol")
		if err != nil {
			stop()
			tb.Fatalf("pgtest: %v", err)
		}
		whole := context.WithoutCancel(ctx) // no transaction is cut off
		wg.Go(func() {                      // until stop
			for ctx.Err() == nil {
				if _, err := conn.Exec(whole, "SELECT pg_sleep(0.001)"); err != nil {
					tb.Errorf("pgtest: hammer: %v", err)
					break
				}
				done.Add(1)
			}
			_ = conn.Close(whole)
		})
	}
	for deadline := time.Now().Add(patience); done.Load() <= int64(clients); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			stop()
			tb.Fatal("pgtest: the others are not at work")
		}
	}
	return stop
}
