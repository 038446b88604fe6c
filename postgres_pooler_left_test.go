// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// mortal is a network that a process loses at once and for good, as when it is killed.
type mortal struct {
	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

func (m *mortal) dial(ctx context.Context, network, address string) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return nil, errors.New("killed")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		m.conns = append(m.conns, conn)
	}
	return conn, err
}

func (m *mortal) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
	for _, conn := range m.conns {
		conn.Close()
	}
}

// TestPostgresPoolerWithoutReset: a process that is killed behind a pooler that resets nothing leaves its session of the server to
// the next client, with its settings, its prepared statements and its locks.
func TestPostgresPoolerWithoutReset(t *testing.T) {
	server := pgtest.Start(t)
	bouncer := server.Bounce(t, "pool_mode=session", "default_pool_size=5", "server_reset_query=")
	direct := server.Database(t)
	conn := pgtest.Connect(t, direct)
	config, err := pgx.ParseConfig(bouncer.URL(direct))
	require.NoError(t, err)
	network := &mortal{}
	config.DialFunc = network.dial
	opts := dbTimings()
	opts.Node, opts.Lease = "killed", time.Second
	killed := dbLeader(t, leader.PostgresConfig(config), opts)
	dbStart(t, killed, "x")
	dbLeads(t, killed, "x")
	for range 3 { // from the second on they are prepared
		dbProved(t, killed)
	}
	pid := killed.Status().SessionPID
	network.kill()

	opts.Node = "next"
	next := dbLeader(t, leader.Postgres(bouncer.URL(direct)), opts)
	run := dbStart(t, next, "x")
	dbLeads(t, next, "x")
	require.Equal(t, pid, next.Status().SessionPID, "the session that was left")
	assert.Equal(t, "public", next.Status().Namespace)
	dbHolds(t, 2*time.Second, func() bool { return next.IsLeading("x") && next.Status().Err == nil })
	h, err := next.Holder(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, "next", h.Node)
	ran, err := next.Try(t.Context(), "y", func(context.Context) error { return nil })
	require.NoError(t, err)
	assert.True(t, ran)
	run.stop()
	assert.Zero(t, dbLocks(t, conn), "no lock was held twice")
	assert.Zero(t, next.Status().Losses)
}
