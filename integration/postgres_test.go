// SPDX-License-Identifier: MIT

package integration

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
)

func TestOneOfTwoLeadsAndHandsOver(t *testing.T) { onEachImage(t, testHandover) }

func testHandover(s *server) {
	t := s.t
	c := twoNodes(s)
	first := c.await(0, again)
	c.assertLeads(first)
	standby := c.other(first.node)
	assert.Equal(t, []string{task}, standby.Tasks())

	holder, err := standby.Holder(t.Context(), task)
	require.NoError(t, err)
	assert.Equal(t, first.node, holder.Node)

	ran, err := standby.Try(t.Context(), task, func(context.Context) error { return nil })
	require.NoError(t, err)
	assert.False(t, ran, "the lock is taken")

	close(c.nodes[first.node].finish)
	first = c.awaitEnd(0, time.Second)
	second := c.await(1, 5*time.Second)
	assert.Equal(t, standby.name, second.node)
	t.Logf("handover took %v", second.start.Sub(first.end).Round(10*time.Microsecond))
	c.assertLeads(second)
	<-c.nodes[first.node].done
	require.NoError(t, c.nodes[first.node].err, "Run returns what the task returned")

	require.NoError(t, standby.Resign(t.Context()))
	second = c.awaitEnd(1, time.Second)
	assert.ErrorIs(t, context.Cause(second.ctx), leader.ErrResigned)
	assert.Zero(t, s.query(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'`), "Resign gives the locks back")
}

func TestFrozenServerCostsTheLeadershipAfterTheLease(t *testing.T) { onEachImage(t, testFrozen) }

func testFrozen(s *server) {
	t := s.t
	c := twoNodes(s)
	leading := c.await(0, again)

	// A freeze that is shorter than the lease costs nothing: a proof is sent after it, and the same run goes on.
	s.pause()
	s.unpause()
	thawed := time.Now()
	c.poll(lease, func() bool {
		until, ok := leader.Deadline(leading.ctx)
		return ok && !until.Before(thawed.Add(lease))
	}, "no proof after a short freeze")
	require.NoError(t, context.Cause(leading.ctx))

	s.pause()
	frozen := time.Now()
	c.awaitLoss(0, frozen, lease+grace)
	require.Error(t, leader.Confirm(leading.ctx))
	_, other := c.span(1)
	require.False(t, other, "nobody can have taken over: the server is frozen")

	thawed = time.Now()
	s.unpause()
	c.awaitAgain(1, thawed)
	c.assertNoOverlap(t)

	// Once more, for longer than the server would have kept the session.
	s.pause()
	frozen = time.Now()
	c.awaitLoss(1, frozen, lease+grace)
	c.poll(sessionTimeout+3*grace, func() bool { return time.Since(frozen) > sessionTimeout+grace }, "time stood still")
	thawed = time.Now()
	s.unpause()
	c.awaitAgain(2, thawed)
}

func TestKilledServerStartsAgain(t *testing.T) { onEachImage(t, testKilled) }

func testKilled(s *server) {
	c := twoNodes(s)
	c.await(0, again)

	killed := time.Now()
	s.kill()
	c.awaitLoss(0, killed, grace) // the socket says so: no need to wait for the lease

	started := time.Now()
	s.start()
	c.awaitAgain(1, started)
}

func TestFastShutdownIsNotHeldUp(t *testing.T) { onEachImage(t, testStopped) }

func testStopped(s *server) {
	t := s.t
	c := twoNodes(s)
	c.await(0, again)

	stopped := time.Now()
	code := s.stop()
	t.Logf("the shutdown took %v", time.Since(stopped).Round(time.Millisecond))
	assert.Less(t, time.Since(stopped), lease+3*grace, "our sessions must not hold the shutdown up")
	assert.Zero(t, code, "a clean shutdown")
	c.awaitLoss(0, stopped, grace)

	started := time.Now()
	s.start()
	c.awaitAgain(1, started)
}

// By way of the host port the engine's forwarder ends the connection, although the server does not know of it and
// still holds the lock.
func TestNetworkCutBehindAForwarder(t *testing.T) {
	onEachImage(t, func(s *server) { testCut(s, twoNodes(s)) })
}

// By the container's own address nothing comes back at all: a black hole.
func TestNetworkCutIntoABlackHole(t *testing.T) { onEachImage(t, testBlackHole) }

func testBlackHole(s *server) {
	t := s.t
	address, err := s.address(t.Context())
	require.NoError(t, err)
	dialer := net.Dialer{Timeout: 2 * time.Second}
	conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(address, "5432"))
	if err != nil {
		t.Skipf("SKIPPED: no route to containers from here: %v", err)
	}
	conn.Close()
	config, err := pgx.ParseConfig(dsnAt("server.test", 5432))
	require.NoError(t, err)
	// The container may come back under another address.
	config.LookupFunc = func(ctx context.Context, _ string) ([]string, error) {
		address, err := s.address(ctx)
		return []string{address}, err
	}
	testCut(s, startCluster(t, func() leader.Backend { return leader.PostgresConfig(config) }, "a", "b"))
}

func testCut(s *server, c *cluster) {
	t := s.t
	c.await(0, again)
	s.cut()
	c.awaitLoss(0, time.Now(), lease+grace)
	_, other := c.span(1)
	require.False(t, other, "nobody can have taken over: there is no way to the server")
	mended := time.Now()
	s.mend()
	c.awaitAgain(1, mended)
}

func twoNodes(s *server) *cluster {
	s.t.Helper()
	return startCluster(s.t, func() leader.Backend { return leader.Postgres(s.url()) }, "a", "b")
}
