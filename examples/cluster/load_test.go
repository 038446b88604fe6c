// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/leaderhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const loadClients = 8

// lossBound is how long a request may take at a process that runs: Lease, GateOptions.Grace and Check.
var lossBound = options.Lease + time.Second + options.Check

// Clients write through all three processes, which refuse, redirect and forward, while the leader is killed, frozen, cut
// off and restarted again and again.
func TestClusterLoad(t *testing.T) { testLoad(t, "") }

func TestClusterLoadPostgres(t *testing.T) { testLoad(t, pgtest.URL(t)) }

func testLoad(t *testing.T, url string) {
	t.Helper()
	t.Setenv(asProgram, "1")
	t.Setenv("DATABASE_URL", url)
	db, err := createDatabase(t.Context())
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.drop()) }()
	f := newFleet(db)
	f.quiet = true
	defer func() { assert.NoError(t, f.stop()) }() // again does nothing
	for i, mode := range []leaderhttp.Mode{leaderhttp.Refuse, leaderhttp.Redirect, leaderhttp.Forward} {
		require.NoError(t, f.start(settings{Name: names[i], Mode: mode, Recovery: 100 * time.Millisecond}))
		require.NoError(t, f.up(t.Context(), names[i]))
	}
	require.NoError(t, f.serves(t.Context(), nil))

	l := &stress{fleet: f, until: time.Now().Add(loadTime(t))}
	var clients sync.WaitGroup
	defer clients.Wait()
	for i := range loadClients {
		clients.Go(func() { l.client(t, i) })
	}
	for i := 0; i < 3 || time.Now().Before(l.until); i++ {
		switch {
		case i%3 == 1 && canFreeze:
			l.freeze(t, f.leader)
		case i%6 == 2 && db.postgres:
			l.cut(t)
		case i%3 == 2:
			l.restart(t, f.leader)
		default:
			l.kill(t, f.leader)
		}
		require.NoError(t, f.look(t.Context()))
	}
	clients.Wait()
	require.NoError(t, f.stop())
	l.report(t)
	p, err := prove(t.Context(), db.DB, l.acks, f.led)
	require.NoError(t, err)
	t.Logf("%+v", p)
	require.NoError(t, p.faults())
}

func loadTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("LEADER_TEST_LOAD")
	if text == "" {
		return 5 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}
