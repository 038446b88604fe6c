// SPDX-License-Identifier: MIT

package pgtest

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// A direction of a connection: up is client to server.
const (
	up = iota
	down
)

// mode is what happens to the bytes of one direction.
type mode int

const (
	forward mode = iota
	stall        // kept until Heal
	swallow      // read and thrown away
)

// Proxy is a TCP proxy on 127.0.0.1 whose network can be broken. All methods are safe for concurrent use, also from
// within the OnClient hook.
//
// It stands for a network that loses packets, yet the kernel still acknowledges what the proxy has read: keep-alive
// and TCP user timeout of either end see a living peer. What ends a silent session here is the server's
// idle_session_timeout; the kernel's own timers need a real firewall.
type Proxy struct {
	target string
	ln     net.Listener
	work   sync.WaitGroup // the accept loop and the links

	mu       sync.Mutex
	modes    [2]mode
	delay    time.Duration // of the direction down
	changed  chan struct{} // closed and replaced when modes or delay change
	links    map[*link]struct{}
	accepted int
	closed   bool
	onClient func(conn int, msg []byte)
	counts   map[byte]int64
	last     [2]time.Time
}

// NewProxy listens on a free port, and forwards to the host:port target until the test ends.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	ln, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("pgtest: proxy: %v", err)
	}
	p := &Proxy{
		target:  target,
		ln:      ln,
		changed: make(chan struct{}),
		links:   map[*link]struct{}{},
		counts:  map[byte]int64{},
	}
	p.work.Go(p.accept) // until the listener is closed
	tb.Cleanup(p.close)
	return p
}

// Addr is the proxy's host:port.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// URL returns a postgres:// URL with its host and port replaced by the proxy's. It panics if there is no such URL.
func (p *Proxy) URL(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		panic("pgtest: proxy: not a URL")
	}
	u.Host = p.Addr()
	query := u.Query()
	query.Del("host") // of a socket
	query.Del("port")
	u.RawQuery = query.Encode()
	return u.String()
}

// Swallow makes a black hole of the given directions and ends that of the others. Bytes are read and thrown away, on
// live connections and new ones; nothing is closed, and the end of one side is hidden from the other. New connections
// are accepted, and reach the server only if up is open. When the hole ends, connections that lost something are reset,
// for they make no sense any more; an end that was hidden is passed on. What was under way before is not recalled.
func (p *Proxy) Swallow(up, down bool) { p.set(swallow, up, down) }

// Stall keeps the bytes of the given directions until it ends, and then delivers them.
func (p *Proxy) Stall(up, down bool) { p.set(stall, up, down) }

// Delay lets everything from the server arrive d later, without limiting the throughput.
func (p *Proxy) Delay(d time.Duration) { p.change(func() { p.delay = d }) }

// Heal ends Swallow, Stall and Delay.
func (p *Proxy) Heal() { p.change(func() { p.modes, p.delay = [2]mode{}, 0 }) }

// Reset ends every connection with an RST to both sides, whatever the mode.
func (p *Proxy) Reset() { p.endAll(true) }

// CutFIN ends every connection in the orderly way towards both sides, whatever the mode.
func (p *Proxy) CutFIN() { p.endAll(false) }

// OnClient has f called with each chunk that a client sent, before it is passed on or swallowed: a fault that f sets
// applies to this chunk. A chunk may hold a part of a message or several. Connections count from 1. Calls for one
// connection are in order, for several they are concurrent. nil ends it.
func (p *Proxy) OnClient(f func(conn int, msg []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onClient = f
}

// LastUp is when bytes were last passed on to the server, LastDown to a client; zero if never.
func (p *Proxy) LastUp() time.Time { return p.lastTime(up) }

// LastDown is when bytes were last passed on to a client; zero if never.
func (p *Proxy) LastDown() time.Time { return p.lastTime(down) }

// Count is how many messages of a type of the frontend protocol clients have sent after their start-up, swallowed ones
// included: 'Q' query, 'P' parse, 'E' execute, 'X' terminate, ... TLS hides them.
func (p *Proxy) Count(typ byte) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[typ]
}

// Conns is the number of connections that their clients hold open.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var n int
	for l := range p.links {
		if !l.left && !l.ended {
			n++
		}
	}
	return n
}

// Accepted is the number of connections that there ever were.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

func (p *Proxy) lastTime(dir int) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[dir]
}

// set puts the wanted directions into mode m, and those out of it that are not wanted.
func (p *Proxy) set(m mode, wantUp, wantDown bool) {
	p.change(func() {
		for dir, want := range [2]bool{wantUp, wantDown} {
			if want {
				p.modes[dir] = m
			} else if p.modes[dir] == m {
				p.modes[dir] = forward
			}
		}
	})
}

// change makes a change, wakes all that wait for one, and ends the connections that cannot go on.
func (p *Proxy) change(f func()) {
	p.mu.Lock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
	var torn []*link
	for l := range p.links {
		if l.lost[up] && p.modes[up] != swallow || l.lost[down] && p.modes[down] != swallow {
			torn = append(torn, l)
		}
	}
	p.mu.Unlock()
	for _, l := range torn {
		l.end(true)
	}
}

func (p *Proxy) endAll(reset bool) {
	p.mu.Lock()
	all := make([]*link, 0, len(p.links))
	for l := range p.links {
		all = append(all, l)
	}
	p.mu.Unlock()
	for _, l := range all {
		l.end(reset)
	}
}

func (p *Proxy) accept() {
	for {
		conn, err := p.ln.Accept()
		if err != nil {
			return
		}
		if l := p.add(conn.(*net.TCPConn)); l != nil {
			p.work.Go(l.run) // until the connection has ended
		}
	}
}

// add registers a connection, or closes it if the proxy is closed.
func (p *Proxy) add(client *net.TCPConn) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = client.Close() // nobody is interested
		return nil
	}
	p.accepted++
	l := &link{p: p, id: p.accepted, client: client, gone: make(chan struct{})}
	p.links[l] = struct{}{}
	return l
}

func (p *Proxy) dial() (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	conn, err := dialer.DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.ln.Close() // it only ends the accept loop
	p.endAll(true)
	p.work.Wait()
}
