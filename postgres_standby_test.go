// SPDX-License-Identifier: MIT

package leader_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresHotStandbyIsNotUsableNow, directly and through a pooler, where nothing is concluded about the pooler: a standby
// would grant locks that the primary knows nothing of. When it has been promoted, it is used.
func TestPostgresHotStandbyIsNotUsableNow(t *testing.T) {
	server := pgtest.Start(t)
	conn := pgtest.Connect(t, server.URL())
	signal := dbQuery[string](t, conn, "SELECT current_setting('data_directory') || '/standby.signal'")
	pgtest.Exec(t, server.URL(), "COPY (SELECT '') TO '"+signal+"'") // without a primary it replays what it has, and waits for more
	server.Restart("fast")
	require.True(t, dbQuery[bool](t, pgtest.Connect(t, server.URL()), "SELECT pg_is_in_recovery()"))

	bouncer := server.Bounce(t, "pool_mode=session")
	for _, url := range []string{server.URL(), bouncer.URL(server.URL())} {
		l := dbLeader(t, leader.Postgres(url), dbTimings())
		dbStart(t, l, "a")
		dbWithin(t, dbPatience, "the cause is named", func() bool {
			err := l.Status().Err
			return err != nil && strings.Contains(err.Error(), "the server is a standby")
		})
		assert.NotErrorIs(t, l.Status().Err, leader.ErrUnsupported)
		dbHolds(t, 300*time.Millisecond, func() bool { return !l.IsLeading("a") })
		require.NoError(t, dbResign(l))
	}
	l := dbLeader(t, leader.Postgres(bouncer.URL(server.URL())), dbTimings())
	dbStart(t, l, "a")
	dbWithin(t, dbPatience, "tried", func() bool { return l.Status().Err != nil })
	pgtest.Exec(t, server.URL(), "SELECT pg_promote()")
	t.Logf("leads %v after the promotion", dbLeads(t, l, "a"))
}
