// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresDisconnect: the server has no session of a standby that is to keep none but while it asks, and it leads all the
// same, under a term of its own, when it is its turn.
func TestPostgresDisconnect(t *testing.T) {
	url := pgtest.URL(t)
	dbCheckLeaks(t, url)
	admin := pgtest.Connect(t, url)
	opts := dbTimings()
	opts.Terms, opts.Node = true, "holder"
	holder := dbLeader(t, leader.Postgres(url), opts)
	led := dbStart(t, holder, "x")
	dbLeads(t, holder, "x")
	opts.Node, opts.Disconnect, opts.Retry = "standby", true, 400*time.Millisecond
	standby := dbLeader(t, leader.Postgres(url), opts)
	run := dbStart(t, standby, "x")
	dbWithin(t, dbPatience, "rests", func() bool { return standby.Status().Resting })

	const sessions = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'leader/standby'`
	samples, without, changes, last := 0, 0, 0, 0
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); samples++ {
		n := dbQuery[int](t, admin, sessions)
		if n == 0 {
			without++
		}
		if n != last {
			changes++
		}
		last = n
		time.Sleep(time.Millisecond)
	}
	assert.Greater(t, float64(without)/float64(samples), 0.5, "of the time without a session")
	assert.GreaterOrEqual(t, changes, 4, "it comes back to ask")
	assert.Zero(t, run.terms.Load())

	before := holder.Status().Tasks[0].Term
	led.stop()
	took := dbLeads(t, standby, "x")
	assert.Less(t, took, 480*time.Millisecond+time.Second, "within Retry, and the time of a busy machine")
	assert.Greater(t, dbTask(t, standby, "x").Term, before)
	pid := standby.Status().SessionPID
	dbHolds(t, 1500*time.Millisecond, func() bool { s := standby.Status(); return s.Connected && s.SessionPID == pid })

	dbKill(t, admin, standby)
	dbWithin(t, dbPatience, "leads again", func() bool { return run.terms.Load() == 2 && standby.IsLeading("x") })

	ctx, cancel := context.WithTimeout(t.Context(), dbPatience)
	defer cancel()
	_, err := standby.Try(ctx, "y", func(context.Context) error { return nil })
	require.NoError(t, err)
}
