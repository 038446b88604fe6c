// SPDX-License-Identifier: MIT

package leader

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// switcher is a pooler at its simplest: it can put another server session under a client that rests between two statements.
type switcher struct {
	target string
	ln     net.Listener
	work   sync.WaitGroup

	mu       sync.Mutex
	start    []byte   // what the first client said to open its session
	client   net.Conn // the first
	upstream net.Conn // its server session
	all      []net.Conn
}

func newSwitcher(t *testing.T, target string) *switcher {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &switcher{target: target, ln: ln}
	s.work.Go(func() { // until the listener is closed
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			s.work.Go(func() { s.serve(client) }) // until the client has gone
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		s.mu.Lock()
		for _, conn := range s.all {
			_ = conn.Close()
		}
		s.mu.Unlock()
		s.work.Wait()
	})
	return s
}

func (s *switcher) dial(client net.Conn) net.Conn {
	conn, err := net.Dial("tcp", s.target)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, conn, client)
	return conn
}

// serve passes on what client says to its server session of the moment.
func (s *switcher) serve(client net.Conn) {
	defer client.Close()
	upstream := s.dial(client)
	if upstream == nil {
		return
	}
	buf := make([]byte, 64<<10)
	n, err := client.Read(buf) // the start-up packet is small, and comes in one piece
	if err != nil {
		return
	}
	s.mu.Lock()
	first := s.start == nil
	if first {
		s.start, s.client, s.upstream = bytes.Clone(buf[:n]), client, upstream
	}
	s.mu.Unlock()
	opened := upstream
	s.work.Go(func() { s.answer(client, opened) }) // until the session has ended
	for err == nil {
		if first {
			s.mu.Lock()
			upstream = s.upstream
			s.mu.Unlock()
		}
		if _, err = upstream.Write(buf[:n]); err == nil {
			n, err = client.Read(buf)
		}
	}
	_ = upstream.Close()
}

func (s *switcher) answer(client, upstream net.Conn) {
	_, _ = io.Copy(client, upstream)
	s.mu.Lock()
	current := client != s.client || upstream == s.upstream
	s.mu.Unlock()
	if current {
		_ = client.Close()
	}
}

// swap opens a session as the first client did, and gives it to that client. It returns the old one.
func (s *switcher) swap(t *testing.T) (old net.Conn) {
	t.Helper()
	s.mu.Lock()
	start, client := s.start, s.client
	s.mu.Unlock()
	next := s.dial(client)
	require.NotNil(t, next)
	_, err := next.Write(start)
	require.NoError(t, err)
	for head := make([]byte, 5); head[0] != 'Z'; { // ready for a query
		_, err := io.ReadFull(next, head)
		require.NoError(t, err)
		_, err = io.CopyN(io.Discard, next, int64(binary.BigEndian.Uint32(head[1:]))-4)
		require.NoError(t, err)
	}
	s.mu.Lock()
	old, s.upstream = s.upstream, next
	s.mu.Unlock()
	s.work.Go(func() { s.answer(client, next) }) // until the session has ended
	return old
}

// TestPostgresSessionSwitched is a pooler that appears later, as when a name comes to lead to one: the connection is fine, and
// another server session answers on it, which holds none of the locks.
func TestPostgresSessionSwitched(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	var version int
	require.NoError(t, pgtest.Connect(t, dsn).QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int").Scan(&version))
	for _, kept := range []bool{true, false} {
		t.Run(map[bool]string{true: "OldSessionKept", false: "OldSessionClosed"}[kept], func(t *testing.T) {
			t.Parallel()
			if kept && version < 140000 {
				t.Skip("nothing ends a session there that is silent behind a pooler")
			}
			testPostgresSessionSwitched(t, dsn, kept)
		})
	}
}

func testPostgresSessionSwitched(t *testing.T, dsn string, kept bool) {
	t.Helper()
	pooler := newSwitcher(t, hostOf(t, dsn))
	proxy := pgtest.NewProxy(t, pooler.ln.Addr().String()) // for its URL, and to know when the session rests
	a := newLeader(t, Postgres(proxy.URL(dsn)), changeOptions(t, "a"))
	b := newLeader(t, Postgres(dsn), changeOptions(t, "b"))
	r := &recorder{}
	goRun(t.Context(), a, "x", r.task("a", "x", nil))
	r.await(t, "x", "a")
	goRun(t.Context(), b, "x", r.task("b", "x", nil))
	poll(t, soon, "b contends", contends(b, "x"))
	pid := a.Status().SessionPID

	answered := func(from time.Time) func() bool {
		return func() bool { return proxy.LastUp().After(from) && proxy.LastDown().After(proxy.LastUp()) }
	}
	poll(t, soon, "an answer", answered(time.Now()))
	last := time.Now()
	old := pooler.swap(t)
	if !kept {
		require.NoError(t, old.Close())
	}
	at := time.Now()
	poll(t, soon, "the task is told", func() bool { return !r.of("x", "a")[0].told.IsZero() })
	was := r.of("x", "a")[0]
	assert.ErrorIs(t, was.cause, ErrLost)
	assert.ErrorIs(t, was.cause, errMoved)
	assert.ErrorContains(t, was.cause, "pooler")
	assert.Less(t, was.told.Sub(at), changeNotice)
	poll(t, changeOptions(t, "").SessionTimeout+redial, "led again", func() bool { return len(r.running("x")) == 1 })
	next := r.get(nil)[1]
	t.Logf("told after %v: %v; led again after %v on %s, overlap %v", was.told.Sub(at), was.cause, next.start.Sub(at), next.node, r.overlap())
	if kept { // nobody talks in the old session any more, so the server ends it: not before its time
		assert.GreaterOrEqual(t, next.start.Sub(last), changeOptions(t, "").SessionTimeout-changeCheck)
		assert.Zero(t, r.overlap())
	} else {
		assert.LessOrEqual(t, r.overlap(), changeNotice)
	}
	poll(t, redial, "a has a session again", func() bool { s := a.Status(); return s.Connected && s.SessionPID != pid })
}
