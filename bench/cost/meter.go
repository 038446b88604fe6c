// SPDX-License-Identifier: MIT

package cost

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oxygenhub/leader"
)

// meter counts what passes over the connections that are dialed through it, to a server without TLS.
type meter struct {
	up, down   atomic.Int64 // bytes
	statements atomic.Int64
	tries      atomic.Int64 // statements that try to get locks
	// sent is told of each statement. It must not block. Nil: nobody is.
	sent func(try bool)
}

// reading is what a meter has counted.
type reading struct{ bytes, statements, tries int64 }

func (m *meter) read() reading {
	return reading{m.up.Load() + m.down.Load(), m.statements.Load(), m.tries.Load()}
}

func (r reading) minus(before reading) reading {
	return reading{r.bytes - before.bytes, r.statements - before.statements, r.tries - before.tries}
}

// config is for connections to url through the meter.
func (m *meter) config(url string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("meter: %w", err)
	}
	m.on(&config.Config)
	return config, nil
}

func (m *meter) on(config *pgconn.Config) {
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &meteredConn{TCPConn: conn.(*net.TCPConn), meter: m}, nil
	}
}

// backend is the library's, through the meter.
func (m *meter) backend(url string) (leader.Backend, error) {
	config, err := m.config(url)
	if err != nil {
		return nil, err
	}
	return leader.PostgresConfig(config), nil
}

// meteredConn is still a TCP connection: the library sets its time-outs.
type meteredConn struct {
	*net.TCPConn
	meter  *meter
	parser parser
	try    []byte // the name of the statement that tries to get locks, once it is prepared
}

func (c *meteredConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.meter.down.Add(int64(n))
	return n, err
}

// Write counts before it writes: who is told of an answer finds its statement counted.
func (c *meteredConn) Write(b []byte) (int, error) {
	c.meter.up.Add(int64(len(b)))
	n := c.parser.statements(b)
	c.meter.statements.Add(n)
	try := c.tries(b, n)
	if try {
		c.meter.tries.Add(1)
	}
	if n > 0 && c.meter.sent != nil {
		c.meter.sent(try)
	}
	return c.TCPConn.Write(b)
}

// tries reports whether what the driver writes, of n statements, tries to get locks. It writes a statement at once.
func (c *meteredConn) tries(b []byte, n int64) bool {
	written := bytes.Contains(b, []byte("pg_try_advisory_lock"))
	if n == 0 && written { // it is only prepared: Parse, a length of four bytes, and the name
		name, _, _ := bytes.Cut(b[5:], []byte{0})
		c.try = bytes.Clone(name)
	}
	return n > 0 && (written || len(c.try) > 0 && bytes.Contains(b, c.try))
}

// parser finds the messages in what a client sends. The first one has no type.
type parser struct {
	begun bool
	head  []byte // of a message whose length is not known yet
	rest  int    // bytes of the message that are to come
}

// statements counts the messages that have something executed: Execute, and Query with its text.
func (p *parser) statements(b []byte) (n int64) {
	for len(b) > 0 {
		if skip := min(p.rest, len(b)); skip > 0 {
			p.rest -= skip
			b = b[skip:]
			continue
		}
		whole := 5
		if !p.begun {
			whole = 4
		}
		take := min(whole-len(p.head), len(b))
		p.head, b = append(p.head, b[:take]...), b[take:]
		if len(p.head) < whole {
			break
		}
		p.rest = int(binary.BigEndian.Uint32(p.head[whole-4:])) - 4
		if p.begun && (p.head[0] == 'E' || p.head[0] == 'Q') {
			n++
		}
		p.begun, p.head = true, p.head[:0]
	}
	return n
}
