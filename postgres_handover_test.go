// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresHandOver asks as docs/postgres.md says.
func TestPostgresHandOver(t *testing.T) {
	url := pgtest.URL(t)
	dbCheckLeaks(t, url)
	opts := dbTimings()
	opts.Retry = time.Minute // only a notification can be as fast
	a, b := dbLeader(t, leader.Postgres(url), opts), dbLeader(t, leader.Postgres(url), opts)
	cause := make(chan error, 1)
	run := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(run)
		_ = a.Run(ctx, "x", func(ctx context.Context) error {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil
		})
	}()
	defer func() {
		cancel()
		<-run
	}()
	dbLeads(t, a, "x")
	dbStart(t, b, "x")
	dbWithin(t, dbPatience, "b contends", func() bool { return dbTask(t, b, "x").State == leader.StateContending })
	key := leader.Key("public", "x")
	asked := time.Now()
	pgtest.Exec(t, url, "SELECT pg_notify($1, $2)", fmt.Sprintf("leader_%016x", uint64(leader.Key("public", ""))), fmt.Sprintf("resign:%016x", uint64(key)))
	require.ErrorIs(t, <-cause, leader.ErrHandOver)
	dbLeads(t, b, "x")
	t.Logf("handed over %v after the request", time.Since(asked))
	assert.Equal(t, leader.StateCooling, dbTask(t, a, "x").State)
	assert.NoError(t, a.Status().Err)
}
