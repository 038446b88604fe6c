// SPDX-License-Identifier: MIT

package pgtest

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// link is one connection through a Proxy: for each direction a goroutine that reads, at once, and one that writes,
// when the proxy lets it. In between, bytes wait in a channel.
//
// Only the reader of a side decides that this side has ended; its last chunk says so, and goes the way of the others.
// So a hole hides ends as well as bytes, and a failed write needs no care.
type link struct {
	p      *Proxy
	id     int
	client *net.TCPConn
	gone   chan struct{} // closed by end
	wire   wire          // of the reader up

	// Guarded by p.mu.
	server *net.TCPConn // nil until dialled
	lost   [2]bool      // a direction has lost bytes: nothing more may pass
	left   bool         // the client has closed
	ended  bool
	reset  bool // how it ended
}

// chunk is what one Read returned.
type chunk struct {
	data []byte
	at   time.Time
	err  error // the side has ended; data is empty
}

func (l *link) run() {
	var work sync.WaitGroup
	ups := make(chan chunk, 64)
	work.Go(func() { l.read(up, l.client, ups) })
	if server := l.connect(ups); server != nil {
		downs := make(chan chunk, 64)
		work.Go(func() { l.read(down, server, downs) })
		var writers sync.WaitGroup
		writers.Go(func() { l.write(up, server, ups) })
		writers.Go(func() { l.write(down, l.client, downs) })
		writers.Wait()
	}
	l.end(false)
	work.Wait()
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	delete(l.p.links, l)
}

// connect reaches the server as soon as the direction up is open. In a black hole it never does: it then throws away
// what comes until the link ends, and returns nil.
func (l *link) connect(ups <-chan chunk) *net.TCPConn {
	if !l.pass(up, chunk{}) {
		for {
			select {
			case <-ups:
			case <-l.gone:
				return nil
			}
		}
	}
	server, err := l.p.dial()
	if err != nil {
		l.end(true)
		return nil
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.ended {
		hangUp(server, l.reset) // the end came while we dialled
		return nil
	}
	l.server = server
	return server
}

// read passes on what comes from a side until it ends.
func (l *link) read(dir int, from *net.TCPConn, out chan<- chunk) {
	for {
		buf := make([]byte, 16<<10)
		n, err := from.Read(buf)
		now := time.Now()
		if n > 0 {
			if dir == up {
				l.seen(buf[:n])
			}
			if !l.send(out, chunk{data: buf[:n], at: now}) {
				return
			}
		}
		if err == nil {
			continue
		}
		if dir == up {
			l.p.mu.Lock()
			l.left = true
			l.p.mu.Unlock()
		}
		l.send(out, chunk{at: now, err: err})
		return
	}
}

func (l *link) send(out chan<- chunk, c chunk) bool {
	select {
	case out <- c:
		return true
	case <-l.gone:
		return false
	}
}

// seen counts the client's messages and calls the hook.
func (l *link) seen(data []byte) {
	types := l.wire.feed(data)
	l.p.mu.Lock()
	for _, typ := range types {
		l.p.counts[typ]++
	}
	hook := l.p.onClient
	l.p.mu.Unlock()
	if hook != nil {
		hook(l.id, data)
	}
}

// write delivers what may pass until the other side has ended. An orderly end closes this direction only; anything else
// is an RST, to both sides.
func (l *link) write(dir int, to *net.TCPConn, in <-chan chunk) {
	for {
		var c chunk
		select {
		case c = <-in:
		case <-l.gone:
			return
		}
		if !l.pass(dir, c) {
			continue
		}
		switch {
		case c.err == nil:
			_, _ = to.Write(c.data) // a failure shows at the reader of that side
		case errors.Is(c.err, io.EOF):
			_ = to.CloseWrite() // it may have ended too
			return
		default:
			l.end(true)
			return
		}
	}
}

// pass waits until c may be delivered. It is false if c is swallowed, or the link has ended.
func (l *link) pass(dir int, c chunk) bool {
	for {
		l.p.mu.Lock()
		m, changed := l.p.modes[dir], l.p.changed
		closing := c.err != nil
		if m == swallow && !closing {
			l.lost[dir] = true
		}
		lost := l.lost[dir]
		var wait time.Duration
		if dir == down {
			wait = time.Until(c.at.Add(l.p.delay))
		}
		open := m == forward && !lost
		if open && wait <= 0 && len(c.data) > 0 {
			// Under the same lock as the mode: once Swallow has returned, this does not move any more.
			l.p.last[dir] = time.Now()
		}
		l.p.mu.Unlock()
		if lost && !closing {
			return false
		}
		if open && wait <= 0 {
			return true
		}
		var due <-chan time.Time
		if open {
			due = time.After(wait)
		}
		select {
		case <-changed:
		case <-due:
		case <-l.gone:
			return false
		}
	}
}

// end closes both sides. Further calls do nothing.
func (l *link) end(reset bool) {
	l.p.mu.Lock()
	if l.ended {
		l.p.mu.Unlock()
		return
	}
	l.ended, l.reset = true, reset
	server := l.server
	l.p.mu.Unlock()
	close(l.gone)
	hangUp(l.client, reset)
	if server != nil {
		hangUp(server, reset)
	}
}

// hangUp sends an RST or a FIN. The FIN comes first and alone: Close with unread bytes sends an RST.
func hangUp(conn *net.TCPConn, reset bool) {
	if reset {
		_ = conn.SetLinger(0) // fails only on a dead connection, as do the next two
	} else {
		_ = conn.CloseWrite()
	}
	_ = conn.Close()
}
