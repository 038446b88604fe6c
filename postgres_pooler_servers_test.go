// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresPoolerOfAnotherServer: the second connection, to test the pooler with, may lead elsewhere, as in a failover. That
// says nothing about the pooler, and passes.
func TestPostgresPoolerOfAnotherServer(t *testing.T) {
	server, other := pgtest.Start(t), pgtest.Start(t)
	bouncer := server.Bounce(t, "pool_mode=session")
	config, err := pgx.ParseConfig(bouncer.URL(server.URL()))
	require.NoError(t, err)
	var dials atomic.Int64
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials.Add(1) == 2 {
			address = other.Addr()
		}
		return dial(ctx, network, address)
	}
	l := newLeader(t, PostgresConfig(config), faultOptions(t, "a"))
	events := l.Watch(t.Context())
	c := goRun(t.Context(), l, "x", obey)
	poll(t, soon, "x is led", func() bool { return l.IsLeading("x") })
	assert.EqualValues(t, 4, dials.Load())
	e := <-events
	assert.Equal(t, Unreachable, e.Kind)
	assert.ErrorContains(t, e.Err, "led to another server")
	require.NoError(t, l.Resign(t.Context()))
	<-c.done
}
