// SPDX-License-Identifier: MIT

package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Replica runs a streaming replica of s, a server of its own, until the test of tb ends. It accepts connections that read, and has
// replayed what s had when Replica was called. s is stopped meanwhile, so its sessions end: that needs no pg_basebackup, which not
// every set of binaries has. Settings are as for [Start].
func (s *Server) Replica(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	ctx, cancel := bounded(tb)
	defer cancel()
	r, err := s.replicate(ctx, settings)
	if err != nil {
		tb.Fatalf("pgtest: replica: %v", err)
	}
	r.tb = tb
	tb.Cleanup(func() {
		if err := r.discard(); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	r.CatchUp(s)
	return r
}

// Promote makes a primary of a replica, as a failover tool does, and returns when it accepts writes.
func (s *Server) Promote() {
	s.tb.Helper()
	Exec(s.tb, s.SocketURL(), "SELECT pg_promote(true, $1)", int(patience.Seconds()))
	if s.InRecovery() {
		s.tb.Fatalf("pgtest: promote: still in recovery after %v", patience)
	}
}

// Follow makes a replica of primary out of a server that is stopped, and starts it. If it was a primary itself, it must have been
// stopped in mode fast, so that it had sent all that it wrote, before the other was promoted.
func (s *Server) Follow(primary *Server) {
	s.tb.Helper()
	if s.proc != nil {
		s.tb.Fatalf("pgtest: follow: the server runs")
	}
	if err := s.standBy(primary); err != nil {
		s.tb.Fatalf("pgtest: follow: %v", err)
	}
	s.Start()
}

// CatchUp returns when s has replayed all that primary has written so far.
func (s *Server) CatchUp(primary *Server) {
	s.tb.Helper()
	ctx, cancel := bounded(s.tb)
	defer cancel()
	var until string
	if err := primary.ask(ctx, "SELECT pg_current_wal_lsn()::text", &until); err != nil {
		s.tb.Fatalf("pgtest: catch up: %v", err)
	}
	for {
		var there bool
		err := s.ask(ctx, "SELECT coalesce(pg_last_wal_replay_lsn() >= '"+until+"', false)", &there)
		if there {
			return
		}
		if err == nil {
			err = fmt.Errorf("%s is not replayed", until)
		}
		select {
		case <-ctx.Done():
			s.tb.Fatalf("pgtest: catch up: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// InRecovery tells a replica from a primary.
func (s *Server) InRecovery() (recovery bool) {
	s.tb.Helper()
	ctx, cancel := bounded(s.tb)
	defer cancel()
	if err := s.ask(ctx, "SELECT pg_is_in_recovery()", &recovery); err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
	return recovery
}

func (s *Server) ask(ctx context.Context, sql string, answer any) error {
	conn, err := dial(ctx, s.SocketURL())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // the answer is what matters
	return conn.QueryRow(ctx, sql).Scan(answer)
}

// replicate makes a copy of s and starts it.
func (s *Server) replicate(ctx context.Context, settings []string) (*Server, error) {
	dir, err := os.MkdirTemp(shortTemp(), "pgtest")
	if err != nil {
		return nil, err
	}
	r := &Server{in: s.in, dir: dir}
	if err = give(dir); err == nil {
		err = r.copyOf(ctx, s)
	}
	for try := 0; err == nil && try < 3; try++ { // as in newServer
		if r.port, err = freePort(ctx); err != nil {
			break
		}
		if err = r.configure(append([]string{"hot_standby=on"}, settings...)); err != nil {
			break
		}
		if err = r.standBy(s); err != nil {
			break
		}
		if err = r.start(ctx); err == nil {
			return r, nil
		}
		if strings.Contains(r.Log(), "Address already in use") {
			err = nil
		}
	}
	_ = os.RemoveAll(dir) // the first error matters more
	if err == nil {
		err = fmt.Errorf("three ports were taken")
	}
	return nil, err
}

// copyOf fills the data folder from that of another server, which rests while it is copied.
func (s *Server) copyOf(ctx context.Context, from *Server) error {
	if err := from.stop("fast"); err != nil {
		return err
	}
	if err := copyData(ctx, from.data(), s.data()); err != nil {
		return err
	}
	return from.start(ctx)
}

// standBy has the server follow primary from its next start on.
func (s *Server) standBy(primary *Server) error {
	file := filepath.Join(s.data(), "postgresql.auto.conf")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const name = "primary_conninfo = "
	var conf strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, name) {
			conf.WriteString(line)
		}
	}
	fmt.Fprintf(&conf, "%s'host=%s port=%d user=postgres'\n", name, primary.dir, primary.port)
	signal := filepath.Join(s.data(), "standby.signal")
	if err := os.WriteFile(file, []byte(conf.String()), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		return err
	}
	return give(signal)
}

// Hosts returns the URL of s with the addresses of all servers in its place, in this order.
func Hosts(servers ...*Server) string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr()
	}
	u, err := url.Parse(servers[0].URL())
	if err != nil {
		panic("pgtest: hosts: not a URL")
	}
	u.Host = strings.Join(addrs, ",")
	return u.String()
}
