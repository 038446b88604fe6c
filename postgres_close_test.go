// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// stubborn is a connection whose Close blocks, as that of TLS does while its goodbye cannot be sent.
type stubborn struct {
	net.Conn
	release chan struct{}
}

func (c *stubborn) Close() error {
	<-c.release
	return c.Conn.Close()
}

// TestPostgresCloseThatBlocks is G9: the Close of a configured DialFunc's connection delays nothing.
func TestPostgresCloseThatBlocks(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	release := make(chan struct{})
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &stubborn{conn, release}, err
	}
	l := newLeader(t, PostgresConfig(config), faultOptions(t, "a"))
	r := &recorder{}
	goRun(t.Context(), l, "x", r.task("a", "x", nil))
	for n := range 3 {
		poll(t, soon, "x is led", func() bool { return l.IsLeading("x") })
		poll(t, soon, "the generation", func() bool { return l.Status().Generation == uint64(n) })
		_, err = pgtest.Connect(t, dsn).Exec(t.Context(), "SELECT pg_terminate_backend($1)", l.Status().SessionPID)
		require.NoError(t, err)
		poll(t, soon, "the loss is seen", func() bool { return l.Status().Generation == uint64(n+1) })
	}
	poll(t, soon, "x is led", func() bool { return l.IsLeading("x") })
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	began := time.Now()
	require.NoError(t, l.Resign(ctx))
	assert.Less(t, time.Since(began), 2*time.Second+slack)
	close(release)
}
