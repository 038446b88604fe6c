// SPDX-License-Identifier: MIT

package pgtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// patience is how long a server may take to start or to stop. It is generous: several run on one slow machine.
const patience = 3 * time.Minute

// Server is a private PostgreSQL server on 127.0.0.1. Its methods are for one goroutine, that of the test.
type Server struct {
	tb   testing.TB // nil in the shared server, whose owner is Main
	in   install
	dir  string // the socket, data and log
	port int
	proc *process // nil while stopped
}

// Start runs a new server until the test ends. Each setting is a `name=value` for postgresql.conf. Unless the settings
// say otherwise fsync is off: the data outlives a kill of the server, not one of the machine. Without binaries it skips
// the test, or fails it when CI is set.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	s, err := newServer(tb.Context(), settings)
	if err != nil {
		absent(tb, err)
	}
	s.tb = tb
	tb.Cleanup(func() {
		if err := s.discard(); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	return s
}

// URL is for the superuser, on the database postgres, over TCP and without TLS.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", s.Addr())
}

// SocketURL is the same over the Unix socket.
func (s *Server) SocketURL() string {
	return fmt.Sprintf("postgres://postgres@/postgres?host=%s&port=%d", url.QueryEscape(s.dir), s.port)
}

// Addr is the server's host:port. It stays the same over Stop and Start.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Major is the server's major version.
func (s *Server) Major() int { return s.in.major }

// Database creates a database, which is dropped when the test of tb ends, and returns its URL.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	return createDatabase(tb, s.URL())
}

// Log is all that the server has logged.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Stop ends the server as pg_ctl does in mode smart, fast or immediate, and returns when it is gone.
func (s *Server) Stop(mode string) {
	s.tb.Helper()
	if err := s.stop(mode); err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
}

// Start runs a stopped server again, on the same port and data, and returns when it answers.
func (s *Server) Start() {
	s.tb.Helper()
	ctx, cancel := bounded(s.tb)
	defer cancel()
	if err := s.start(ctx); err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
}

// Restart is Stop(mode) and Start.
func (s *Server) Restart(mode string) {
	s.tb.Helper()
	s.Stop(mode)
	s.Start()
}

func newServer(ctx context.Context, settings []string) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	in, err := find(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(shortTemp(), "pgtest")
	if err != nil {
		return nil, err
	}
	s := &Server{in: in, dir: dir}
	if err = give(dir); err == nil {
		err = s.fill(ctx)
	}
	// Another process can take the free port before the server does.
	for try := 0; err == nil && try < 3; try++ {
		if s.port, err = freePort(ctx); err != nil {
			break
		}
		if err = s.configure(settings); err != nil {
			break
		}
		if err = s.start(ctx); err == nil {
			return s, nil
		}
		if strings.Contains(s.Log(), "Address already in use") {
			err = nil
		}
	}
	_ = s.remove() // the first error matters more
	if err == nil {
		err = fmt.Errorf("postgres: three ports were taken")
	}
	return nil, err
}

// shortTemp is a folder short enough for a socket's path, which may have about 100 bytes.
func shortTemp() string {
	if dir := os.TempDir(); len(dir) <= 60 {
		return dir
	}
	return "/tmp"
}

// freePort avoids the range from which clients get their ports: one of them could take the port while the server is
// stopped in the middle of a test.
func freePort(ctx context.Context) (int, error) {
	var err error
	for range 100 {
		port := 20000 + rand.IntN(10000)
		var ln net.Listener
		ln, err = (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, ln.Close()
		}
	}
	return 0, err
}

func (s *Server) data() string    { return filepath.Join(s.dir, "data") }
func (s *Server) logFile() string { return filepath.Join(s.dir, "log") }

func (s *Server) initdb(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, filepath.Join(s.in.bin, "initdb"), "-D", s.data(),
		"-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	cmd.Env = s.in.environ()
	cmd.Dir = s.dir
	if err := unprivileged(cmd); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// configure writes the settings into a file of their own, so that it can be written again with another port.
func (s *Server) configure(settings []string) error {
	conf := []string{
		"listen_addresses=127.0.0.1",
		"port=" + strconv.Itoa(s.port),
		"unix_socket_directories=" + s.dir,
		"fsync=off",
		"full_page_writes=off",
		"log_line_prefix=%m [%p] ",
	}
	var text strings.Builder
	for _, setting := range append(conf, settings...) {
		name, value, ok := strings.Cut(setting, "=")
		if !ok {
			return fmt.Errorf("setting %q is not name=value", setting)
		}
		fmt.Fprintf(&text, "%s = '%s'\n", strings.TrimSpace(name), strings.ReplaceAll(value, "'", "''"))
	}
	file := filepath.Join(s.data(), "postgresql.auto.conf")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return err
	}
	return give(file)
}

func (s *Server) start(ctx context.Context) error {
	if s.proc != nil {
		return fmt.Errorf("the server runs already")
	}
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the server has its own handle
	life := context.WithoutCancel(ctx) // ctx is for the start only
	cmd := exec.CommandContext(life, filepath.Join(s.in.bin, "postgres"), "-D", s.data())
	cmd.Env = s.in.environ()
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = log, log
	if s.proc, err = launch(life, cmd, s.dir); err != nil {
		return err
	}
	if err := s.await(ctx); err != nil {
		_ = s.stop("immediate") // the first error matters more
		return fmt.Errorf("start postgres: %w\n%s", err, s.Log())
	}
	return nil
}

// await returns when the server accepts connections.
func (s *Server) await(ctx context.Context) error {
	for {
		conn, err := pgx.Connect(ctx, s.SocketURL())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.proc.exited:
			return fmt.Errorf("it ended by itself: %w", s.proc.err)
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *Server) stop(mode string) error {
	if s.proc == nil {
		return nil
	}
	err := s.proc.stop(mode)
	if err == nil {
		s.proc = nil
	}
	return err
}

// discard ends the server and removes all that it wrote.
func (s *Server) discard() error {
	if s.tb != nil && s.tb.Failed() {
		s.tb.Logf("the log of PostgreSQL %d at %s ends with\n%s", s.Major(), s.Addr(), tail(s.Log(), 4000))
	}
	if err := s.stop("immediate"); err != nil {
		return err
	}
	return s.remove()
}

// tail returns whole lines of at most n bytes from the end of text.
func tail(text string, n int) string {
	if len(text) <= n {
		return text
	}
	_, text, _ = strings.Cut(text[len(text)-n:], "\n")
	return text
}
