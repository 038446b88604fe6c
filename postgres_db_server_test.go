// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresStrangersNotifyHoldsUpNoName: a stranger's NOTIFY that waits at its commit holds a lock of the whole
// database, which every other NOTIFY needs. That costs a handover its speed, and nothing else.
func TestPostgresStrangersNotifyHoldsUpNoName(t *testing.T) {
	server := pgtest.Start(t)
	dbCheckLeaks(t, server.URL())
	conn, stranger := pgtest.Connect(t, server.URL()), pgtest.Connect(t, server.URL())
	opts := dbTimings()
	a, b := dbLeader(t, leader.Postgres(server.URL()), opts), dbLeader(t, leader.Postgres(server.URL()), opts)
	var others []string
	for i := range 5 {
		others = append(others, fmt.Sprint("other ", i))
		dbStart(t, a, others[i])
	}
	first := dbStart(t, a, "a")
	dbLeads(t, a, append(others, "a")...)
	second := dbStart(t, b, "a")
	dbConnected(t, b)
	events := a.Watch(t.Context())
	before := a.Status()

	pgtest.Exec(t, server.URL(), "CREATE TABLE strange (n int)")
	pgtest.Exec(t, server.URL(), "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
	dbQuery[bool](t, conn, "SELECT pg_reload_conf()")
	dbWithin(t, dbPatience, "the setting", func() bool {
		return dbQuery[string](t, conn, "SELECT current_setting('synchronous_standby_names')") == "nobody"
	})
	stuck := make(chan error, 1)
	var healed atomic.Bool
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	go func() { // the setting takes effect a moment after it is seen
		defer close(ended)
		var err error
		for err == nil && !healed.Load() {
			// The INSERT, because a NOTIFY alone writes nothing that a standby is waited for.
			_, err = stranger.Exec(ctx, "SET synchronous_commit = on; INSERT INTO strange VALUES (1); NOTIFY strange")
			time.Sleep(10 * time.Millisecond) // or all that listen have nothing else to do
		}
		stuck <- err
	}()
	waits := func() bool {
		return dbQuery[bool](t, conn, "SELECT coalesce(wait_event = 'SyncRep', false) FROM pg_stat_activity WHERE pid = $1", int32(stranger.PgConn().PID()))
	}
	dbWithin(t, dbPatience, "the stranger is stuck", waits)

	first.stop()
	returned := first.doneAt.Sub(time.Unix(0, first.returned.Load()))
	took := dbLeads(t, b, "a") + time.Since(first.doneAt)
	t.Logf("Run returned %v after the task; the standby led at most %v later", returned, took)
	const lockTimeout = 200 * time.Millisecond // of the notification
	assert.Less(t, returned, lockTimeout+dbSlack)
	assert.Less(t, took, opts.Retry*13/10+dbSlack)

	third := dbLeader(t, leader.Postgres(server.URL()), opts) // a new process can connect, and wait
	dbStart(t, third, "new")
	dbLeads(t, third, "new")
	dbStart(t, third, "a")
	second.stop()
	dbLeads(t, third, "a")
	dbHolds(t, time.Second, func() bool {
		for _, name := range others {
			if !a.IsLeading(name) {
				return false
			}
		}
		return true
	})
	after := a.Status()
	assert.Equal(t, before.Generation, after.Generation)
	assert.Equal(t, before.SessionPID, after.SessionPID)
	assert.Zero(t, after.Losses+b.Status().Losses)
	require.True(t, waits(), "it was stuck all the time")
	untold := false
	for len(events) > 0 {
		if e := <-events; e.Kind == leader.Untold {
			untold = true
		}
	}
	assert.True(t, untold, "and Watch says why handovers are slow")

	healed.Store(true)
	pgtest.Exec(t, server.URL(), "ALTER SYSTEM RESET synchronous_standby_names")
	dbQuery[bool](t, conn, "SELECT pg_reload_conf()")
	require.NoError(t, <-stuck)
}

// dbAuth has server ask for passwords, except on its socket.
func dbAuth(t *testing.T, server *pgtest.Server) {
	t.Helper()
	conn := pgtest.Connect(t, server.SocketURL())
	file := dbQuery[string](t, conn, "SHOW hba_file")
	require.NoError(t, os.WriteFile(file, []byte("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"), 0o600))
	dbQuery[bool](t, conn, "SELECT pg_reload_conf()")
	dbWithin(t, dbPatience, "passwords are asked for", func() bool {
		c, err := pgx.Connect(t.Context(), server.URL())
		if err == nil {
			c.Close(t.Context())
		}
		return err != nil
	})
}

// TestPostgresPasswords: they are asked for at each connect, and never told.
func TestPostgresPasswords(t *testing.T) {
	server := pgtest.Start(t, "password_encryption=scram-sha-256") // not the default before 14
	dbCheckLeaks(t, server.SocketURL())
	dbAuth(t, server)
	conn := pgtest.Connect(t, server.SocketURL())
	pgtest.Exec(t, server.SocketURL(), "CREATE ROLE app LOGIN PASSWORD 'first secret'")
	as := func(password string) string { return dbAs(t, server.URL(), "app", password) }

	config, err := pgxpool.ParseConfig(as("unset"))
	require.NoError(t, err)
	var mu sync.Mutex
	password := "first secret"
	var asked atomic.Int64
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		mu.Lock()
		defer mu.Unlock()
		asked.Add(1)
		c.Password = password
		return nil
	}
	config.AfterConnect = func(context.Context, *pgx.Conn) error { return errors.New("AfterConnect was called") }
	pool, err := pgxpool.NewWithConfig(t.Context(), config) // connects when it is used, which it never is
	require.NoError(t, err)
	defer pool.Close()
	l := dbLeader(t, leader.PostgresPool(pool), dbTimings())
	run := dbStart(t, l, "a")
	dbLeads(t, l, "a")
	require.EqualValues(t, 1, asked.Load())
	pgtest.Exec(t, server.SocketURL(), "ALTER ROLE app PASSWORD 'second secret'")
	dbProved(t, l)
	dbKill(t, conn, l)
	dbWithin(t, dbPatience, "the old password is refused", func() bool { return l.Status().Err != nil && asked.Load() > 1 })
	assert.NotContains(t, l.Status().Err.Error(), "secret")
	mu.Lock()
	password = "second secret"
	mu.Unlock()
	dbWithin(t, dbPatience, "the new one is used", func() bool { return run.terms.Load() == 2 })
	run.stop()
	require.NoError(t, dbResign(l))

	dead := strings.Replace(as("an open secret"), server.Addr(), "127.0.0.1:1", 1)
	nowhere := strings.Replace(as("an open secret"), server.Addr(), "host.invalid:5432", 1)
	for what, text := range map[string]string{
		"bad password": as("an open secret"), "unreachable": dead, "no such host": nowhere, "several hosts": strings.Replace(dead, "127.0.0.1:1", "127.0.0.1:1,"+server.Addr(), 1),
		"key=value": "host=127.0.0.1 port=1 user=app password='an open secret' dbname=postgres",
	} {
		log := &dbLog{}
		opts := dbTimings()
		opts.Logger = log.logger()
		l := dbLeader(t, leader.Postgres(text), opts)
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		events := l.Watch(ctx)
		_, err := l.Try(ctx, "a", func(context.Context) error { return nil })
		_, holderErr := l.Holder(ctx, "a")
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, what)
		require.Error(t, holderErr, what)
		require.NoError(t, dbResign(l))
		said := fmt.Sprintf("%v %+v %#v %v %+v %s", err, err, err, holderErr, l.Status(), log)
		for e := range events {
			said += fmt.Sprintf(" %v %+v", e, e)
		}
		assert.Contains(t, said, "connect", what)
		assert.NotContains(t, said, "secret", what)
	}
}

// TestPostgresSeveralHosts: the one that takes writes is used, wherever it stands in the list.
func TestPostgresSeveralHosts(t *testing.T) {
	readOnly, server := pgtest.Start(t, "default_transaction_read_only=on"), pgtest.Start(t)
	dbCheckLeaks(t, server.URL())
	hosts := func(addrs ...string) string {
		return strings.Replace(server.URL(), server.Addr(), strings.Join(addrs, ","), 1)
	}
	l := dbLeader(t, leader.Postgres(hosts("127.0.0.1:1", readOnly.Addr(), server.Addr())), dbTimings())
	dbStart(t, l, "a")
	t.Logf("leads on the third host after %v", dbLeads(t, l, "a"))
	local := dbLeader(t, leader.Postgres(server.SocketURL()), dbTimings())
	h, err := local.Holder(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, l.Status().Node, h.Node, "it is on that server")

	socket := dbStart(t, local, "b") // over the Unix socket
	dbLeads(t, local, "b")
	dbStart(t, l, "b")
	socket.stop()
	assert.Less(t, dbLeads(t, l, "b"), dbTimings().Retry*13/10+dbSlack)

	only := dbLeader(t, leader.Postgres(readOnly.URL()), dbTimings())
	dbStart(t, only, "a")
	dbWithin(t, dbPatience, "the cause is named", func() bool {
		err := only.Status().Err
		return err != nil && strings.Contains(err.Error(), "read-only")
	})
	dbHolds(t, 500*time.Millisecond, func() bool { return !only.IsLeading("a") })
	conn := pgtest.Connect(t, readOnly.URL())
	dbQuery[string](t, conn, "SELECT set_config('default_transaction_read_only', 'off', false)")
	_, err = conn.Exec(t.Context(), "ALTER SYSTEM SET default_transaction_read_only = off")
	require.NoError(t, err)
	dbQuery[bool](t, conn, "SELECT pg_reload_conf()")
	t.Logf("leads %v after the server took writes", dbLeads(t, only, "a"))

	u, err := url.Parse(server.URL())
	require.NoError(t, err)
	u.RawQuery += "&target_session_attrs=any"
	choice := dbLeader(t, leader.Postgres(strings.Replace(u.String(), server.Addr(), readOnly.Addr()+","+server.Addr(), 1)), dbTimings())
	_, err = choice.Holder(t.Context(), "a")
	require.NoError(t, err)
	h, err = choice.Holder(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, only.Status().Node, h.Node, "the user's own choice counts")
}
