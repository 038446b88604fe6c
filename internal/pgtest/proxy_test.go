// SPDX-License-Identifier: MIT

//go:build unix

package pgtest_test

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/oxygenhub/leader/internal/pgtest"
)

const (
	soon  = 10 * time.Second       // what must happen
	never = 100 * time.Millisecond // what must not
)

// peer is a server that keeps what it got, and says what it is told.
type peer struct {
	ln    net.Listener
	conns chan *net.TCPConn
}

func newPeer(t *testing.T) *peer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{ln: ln, conns: make(chan *net.TCPConn, 10)}
	go func() { // until the listener is closed
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			p.conns <- conn.(*net.TCPConn)
		}
	}()
	t.Cleanup(func() { ln.Close() })
	return p
}

// through returns both ends of a new connection through the proxy.
func (p *peer) through(t *testing.T, proxy *pgtest.Proxy) (client, server *net.TCPConn) {
	t.Helper()
	client = dialProxy(t, proxy)
	select {
	case server = <-p.conns:
	case <-time.After(soon):
		t.Fatal("the proxy does not connect")
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

func dialProxy(t *testing.T, proxy *pgtest.Proxy) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(soon))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v; want %q", got, err, want)
	}
}

// silent checks that conn brings nothing, not even its end.
func silent(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(never))
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
}

func over(t *testing.T, conn net.Conn, want error) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(soon))
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, want) {
		t.Fatalf("read %d bytes, %v; want %v", n, err, want)
	}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestProxyForwardsBothWays(t *testing.T) {
	peer := newPeer(t)
	proxy := pgtest.NewProxy(t, peer.ln.Addr().String())
	before := time.Now()
	client, server := peer.through(t, proxy)
	say(t, client, "ping")
	hear(t, server, "ping")
	say(t, server, "pong")
	hear(t, client, "pong")
	eventually(t, "LastDown", func() bool { return proxy.LastDown().After(before) })
	if !proxy.LastUp().After(before) || proxy.Conns() != 1 {
		t.Errorf("LastUp %v, %d connections", proxy.LastUp(), proxy.Conns())
	}
	client.CloseWrite()
	over(t, server, io.EOF)
	say(t, server, "bye")
	hear(t, client, "bye")
	server.Close()
	over(t, client, io.EOF)
	eventually(t, "no connection", func() bool { return proxy.Conns() == 0 })
}

func TestProxySwallowHidesBytesAndEnds(t *testing.T) {
	peer := newPeer(t)
	proxy := pgtest.NewProxy(t, peer.ln.Addr().String())
	ended, server1 := peer.through(t, proxy)
	reset, server2 := peer.through(t, proxy)
	spoken, server3 := peer.through(t, proxy)
	idle, server4 := peer.through(t, proxy)
	proxy.Swallow(true, true)
	ended.Close()
	reset.SetLinger(0)
	reset.Close()
	say(t, spoken, "lost")
	say(t, server3, "lost")
	for _, conn := range []net.Conn{server1, server2, server3, spoken} {
		silent(t, conn)
	}
	if !proxy.LastUp().IsZero() || proxy.Conns() != 2 {
		t.Errorf("LastUp %v, %d connections", proxy.LastUp(), proxy.Conns())
	}
	proxy.Heal()
	over(t, server1, io.EOF)
	over(t, server2, syscall.ECONNRESET)
	over(t, server3, syscall.ECONNRESET)
	over(t, spoken, syscall.ECONNRESET)
	say(t, idle, "still here")
	hear(t, server4, "still here")
}

func TestProxySwallowAcceptsNewConnections(t *testing.T) {
	peer := newPeer(t)
	proxy := pgtest.NewProxy(t, peer.ln.Addr().String())
	proxy.Swallow(true, false)
	client := dialProxy(t, proxy)
	say(t, client, "lost")
	silent(t, client)
	if len(peer.conns) != 0 || proxy.Accepted() != 1 {
		t.Errorf("%d connections at the server, %d accepted", len(peer.conns), proxy.Accepted())
	}
	proxy.Heal()
	over(t, client, syscall.ECONNRESET)

	proxy.Swallow(false, true)
	client, server := peer.through(t, proxy)
	say(t, client, "up")
	hear(t, server, "up")
	say(t, server, "down")
	silent(t, client)
}

func TestProxyStallDeliversLater(t *testing.T) {
	peer := newPeer(t)
	proxy := pgtest.NewProxy(t, peer.ln.Addr().String())
	client, server := peer.through(t, proxy)
	proxy.Stall(true, true)
	say(t, client, "up")
	client.CloseWrite()
	say(t, server, "down")
	silent(t, server)
	silent(t, client)
	late := dialProxy(t, proxy)
	say(t, late, "late")
	proxy.Heal()
	hear(t, server, "up")
	over(t, server, io.EOF)
	hear(t, client, "down")
	hear(t, <-peer.conns, "late")
}

func TestProxyDelayKeepsPace(t *testing.T) {
	peer := newPeer(t)
	proxy := pgtest.NewProxy(t, peer.ln.Addr().String())
	client, server := peer.through(t, proxy)
	const delay = 200 * time.Millisecond
	proxy.Delay(delay)
	start := time.Now()
	for range 10 {
		say(t, server, "x")
		time.Sleep(5 * time.Millisecond)
	}
	hear(t, client, "x")
	if took := time.Since(start); took < delay {
		t.Errorf("arrived after %v, want %v", took, delay)
	}
	hear(t, client, "xxxxxxxxx")
	if took := time.Since(start); took > 5*delay {
		t.Errorf("ten chunks took %v: the delays add up", took)
	}
	proxy.Delay(time.Hour)
	say(t, server, "y")
	silent(t, client)
	proxy.Heal()
	hear(t, client, "y")
}

func TestProxyCuts(t *testing.T) {
	peer := newPeer(t)
	proxy := pgtest.NewProxy(t, peer.ln.Addr().String())
	client, server := peer.through(t, proxy)
	proxy.Swallow(true, true)
	proxy.CutFIN()
	over(t, client, io.EOF)
	over(t, server, io.EOF)
	proxy.Heal()
	client, server = peer.through(t, proxy)
	proxy.Reset()
	over(t, client, syscall.ECONNRESET)
	over(t, server, syscall.ECONNRESET)
	if proxy.Conns() != 0 {
		t.Errorf("%d connections", proxy.Conns())
	}
}

func TestProxyCountsMessages(t *testing.T) {
	peer := newPeer(t)
	proxy := pgtest.NewProxy(t, peer.ln.Addr().String())
	var mu sync.Mutex
	var heard []byte
	proxy.OnClient(func(conn int, msg []byte) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, msg...)
	})
	all := slices.Concat(
		[]byte{0, 0, 0, 8, 4, 210, 22, 47},                     // asks for TLS
		[]byte{0, 0, 0, 13, 0, 3, 0, 0, 'u', 0, 'x', 0, 0},     // start-up
		[]byte{'Q', 0, 0, 0, 6, 'Q', 0},                        // a query named Q
		[]byte{'P', 0, 0, 0, 7, 0, 0, 0, 'E', 0, 0, 0, 5, 'Q'}, // parse, execute
		[]byte{'X', 0, 0, 0, 4},
	)
	for _, size := range []int{1, 3, len(all)} {
		client, _ := peer.through(t, proxy)
		for piece := range slices.Chunk(all, size) {
			say(t, client, string(piece))
		}
	}
	eventually(t, "3 of each", func() bool {
		return proxy.Count('Q') == 3 && proxy.Count('P') == 3 && proxy.Count('E') == 3 && proxy.Count('X') == 3
	})
	mu.Lock()
	defer mu.Unlock()
	if len(heard) != 3*len(all) {
		t.Errorf("the hook got %d bytes, want %d", len(heard), 3*len(all))
	}
}

func TestProxyURL(t *testing.T) {
	proxy := pgtest.NewProxy(t, "127.0.0.1:1")
	want := "postgres://me:secret@" + proxy.Addr() + "/db?sslmode=disable"
	for _, url := range []string{
		"postgres://me:secret@db.example:5432/db?sslmode=disable",
		"postgres://me:secret@/db?host=/tmp/socket&port=5433&sslmode=disable",
	} {
		if got := proxy.URL(url); got != want {
			t.Errorf("URL(%q) = %q, want %q", url, got, want)
		}
	}
}

func TestProxyResetsClientsOfADeadTarget(t *testing.T) {
	peer := newPeer(t)
	peer.ln.Close()
	proxy := pgtest.NewProxy(t, peer.ln.Addr().String())
	proxy.Stall(true, false) // or the reset can come before the dial returns
	client := dialProxy(t, proxy)
	proxy.Heal()
	over(t, client, syscall.ECONNRESET)
}
