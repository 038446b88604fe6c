// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// dialed connects without setting the session up.
func dialed(t *testing.T, url string) *pgSession {
	t.Helper()
	b := Postgres(url)
	opts, err := Options{}.withDefaults(b)
	require.NoError(t, err)
	s, err := b.(*postgres).dial(t.Context(), opts, &clock{epoch: time.Now()})
	require.NoError(t, err)
	t.Cleanup(s.close)
	_, err = s.meet(t.Context())
	require.NoError(t, err)
	return s
}

// TestPostgresPoolerSaysNothingBetweenStatements is the part of the self-test that every pool fails that shares sessions, and the
// last one: the parts before it, which mostly find such a pool first, are left out here.
func TestPostgresPoolerSaysNothingBetweenStatements(t *testing.T) {
	server := pgtest.Start(t)
	for _, mode := range []string{"transaction", "statement"} {
		for _, size := range []int{1, 5} {
			t.Run(fmt.Sprint(mode, size), func(t *testing.T) {
				t.Parallel() // most of it is waiting
				bouncer := server.Bounce(t, "pool_mode="+mode, fmt.Sprint("default_pool_size=", size))
				direct := server.Database(t)
				url := bouncer.URL(direct)
				stop := func() {}
				for _, busy := range []bool{false, true} {
					if busy {
						stop = pgtest.Hammer(t, url, 2*size)
					}
					s, other := dialed(t, url), dialed(t, url)
					err := s.attached(t.Context(), other)
					require.ErrorIs(t, err, ErrUnsupported, "busy %t", busy)
					t.Logf("busy %t: %v", busy, err)
				}
				stop()
				assert.Zero(t, listeners(t, url, size), "listening server processes")
			})
		}
	}
	t.Run("session", func(t *testing.T) {
		bouncer := server.Bounce(t, "pool_mode=session", "default_pool_size=2")
		url := bouncer.URL(server.Database(t))
		s, other := dialed(t, url), dialed(t, url)
		require.NoError(t, s.attached(t.Context(), other))
		var listening []string
		require.NoError(t, s.conn.QueryRow(t.Context(), "SELECT array(SELECT pg_listening_channels())").Scan(&listening))
		assert.Empty(t, listening)
	})
}

// TestPostgresSilenceOfTheNetworkIsNoProof: the test of a pooler that cannot be finished is tried again.
func TestPostgresSilenceOfTheNetworkIsNoProof(t *testing.T) {
	server := pgtest.Start(t)
	proxy := pgtest.NewProxy(t, server.Addr())
	direct := server.Database(t)
	s, other := dialed(t, proxy.URL(direct)), dialed(t, direct)
	_, err := s.conn.Exec(t.Context(), "LISTEN x")
	require.NoError(t, err)
	proxy.Swallow(true, true)
	ctx, cancel := context.WithTimeout(t.Context(), notifyTries*notifyTimeout+time.Second)
	defer cancel()
	_, err = s.hears(ctx, other, "x")
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrUnsupported)
}

// TestPostgresLocksAreAskedOfOurServerProcessOnly: on another, where a pooler may have led us, nothing is taken or given back.
func TestPostgresLocksAreAskedOfOurServerProcessOnly(t *testing.T) {
	url := pgtest.URL(t)
	s := openSession(t, Postgres(url), "a").(*pgSession)
	take(t, s, 1)
	own := s.info.pid
	s.info.pid = own + 1
	held, err := s.try([]int64{2})
	var over *sessionError
	require.ErrorAs(t, err, &over)
	require.ErrorIs(t, err, errMoved)
	assert.False(t, over.ended)
	assert.Empty(t, held)
	missing, err := s.unlock([]int64{1})
	require.ErrorIs(t, err, errMoved)
	assert.Empty(t, missing)
	_, err = s.prove()
	require.ErrorIs(t, err, errMoved)
	s.info.pid = own
	assert.Equal(t, 1, locks(t, url), "still held, and no other")
}

// listeners counts the server connections of a pool of size that listen.
func listeners(t *testing.T, url string, size int) int64 {
	t.Helper()
	var wg sync.WaitGroup
	var listening atomic.Int64
	for range size {
		conn, err := pgx.Connect(t.Context(), url+"&default_query_exec_mode=simple_protocol")
		require.NoError(t, err)
		wg.Go(func() {
			var n int64
			assert.NoError(t, conn.QueryRow(context.Background(), "SELECT count(*), pg_sleep(0.5)::text FROM pg_listening_channels()").Scan(&n, nil))
			listening.Add(n)
			_ = conn.Close(context.Background())
		})
	}
	wg.Wait()
	return listening.Load()
}
