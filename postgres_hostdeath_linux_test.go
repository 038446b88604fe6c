// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// hostOptions are in whole seconds where the settings of TCP are.
func hostOptions(timeout time.Duration) leader.Options {
	return leader.Options{
		Retry: 200 * time.Millisecond, Check: timeout / 10, Lease: timeout / 2, SessionTimeout: timeout,
	}
}

// hostRig is a holder on another host and a standby beside the server.
type hostRig struct {
	*procFleet
	remote          *pgtest.Remote
	dsn             string // from beside the server
	job             procJob
	holder, standby *procWorker
	admin           *pgx.Conn
	pid             uint32 // of the holder's session
}

func newHostRig(t *testing.T, server *pgtest.Server, opts leader.Options) *hostRig {
	t.Helper()
	remote := pgtest.NewRemote(t)
	server.Admit(remote)
	opts.Namespace = t.Name()
	r := &hostRig{procFleet: &procFleet{t: t}, remote: remote, dsn: server.Database(t)}
	r.job = procJob{
		Postgres: r.dsn, Options: opts, Names: []string{"a"},
		// All the time that it may take to stop, but for the slowness of the machine.
		Drain: opts.SessionTimeout - opts.Lease - 200*time.Millisecond,
	}
	there := r.job
	_, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	there.Postgres = strings.Replace(r.dsn, server.Addr(), net.JoinHostPort(remote.Here(), port), 1)
	r.holder = r.start(there, remote.Prefix()...)
	r.await(r.holder, "start", time.Time{})
	r.standby = r.start(r.job)
	r.await(r.standby, "ready", time.Time{})
	r.admin = pgtest.Connect(t, r.dsn)
	r.pid = r.lockedBy()
	addr := dbQuery[string](t, r.admin, "SELECT host(client_addr) FROM pg_stat_activity WHERE pid = $1", r.pid)
	require.Equal(t, remote.There(), addr, "the holder is there")
	return r
}

// lockedBy returns whose session has the lock, or 0.
func (r *hostRig) lockedBy() uint32 {
	r.t.Helper()
	return dbQuery[uint32](r.t, r.admin, `SELECT coalesce(max(pid), 0) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND ((classid::int8 << 32) | objid::int8) = $1`, leader.Key(r.t.Name(), "a"))
}

// death is how the holder's session ended, seen from the server's host.
type death struct {
	heard time.Time // the last byte
	owed  time.Time // the first one that was sent and not acknowledged; zero if there was none
	freed time.Time // the lock
}

// death waits for the end of the holder's session.
func (r *hostRig) death() (d death) {
	r.t.Helper()
	dbWithin(r.t, 10*r.job.Options.SessionTimeout, "the session ends", func() bool {
		owes := r.remote.Unacknowledged() > 0
		var nano *int64
		require.NoError(r.t, r.admin.QueryRow(r.t.Context(), `SELECT (SELECT (extract(epoch FROM state_change) * 1000000)::int8 * 1000
			FROM pg_stat_activity WHERE pid = $1 AND EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND locktype = 'advisory'))`, r.pid).Scan(&nano))
		d.freed = time.Now()
		if nano == nil {
			return true
		}
		d.heard = time.Unix(0, *nano)
		if owes && d.owed.IsZero() {
			d.owed = d.freed
		}
		return false
	})
	return d
}

// chatter returns a function that has another session release locks of the same namespace, after a pause and until the test ends:
// each release is a notification to all who listen.
func (r *hostRig) chatter() (start func(pause time.Duration)) {
	r.t.Helper()
	opts := r.job.Options
	opts.Node = "chatter"
	l, err := leader.New(leader.Postgres(r.dsn), opts)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	release := func() error {
		_, err := l.Try(ctx, "chatter", func(context.Context) error { return nil })
		return err
	}
	require.NoError(r.t, release(), "connect")
	var work sync.WaitGroup
	r.t.Cleanup(func() {
		cancel()
		work.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), procPatience)
		defer cancel()
		assert.NoError(r.t, l.Resign(ctx))
	})
	return func(pause time.Duration) {
		work.Go(func() { // until the cleanup
			for ctx.Err() == nil {
				select {
				case <-time.After(pause):
					_ = release() // ended by ctx, at the end
				case <-ctx.Done():
				}
				pause = 100 * time.Millisecond
			}
		})
	}
}

// hostDeath is a row of TestPostgresHostDeath.
type hostDeath struct {
	fault    pgtest.Fault
	name     string
	notified bool
	pause    time.Duration // before the first notification
}

// TestPostgresHostDeath is C10: the holder's host is gone, and nobody has closed its connection. The process lives on there
// unseen, and tells how that looks from its side.
func TestPostgresHostDeath(t *testing.T) {
	server := pgtest.Start(t, "listen_addresses=*")
	for _, row := range []hostDeath{
		{pgtest.LinkDown, "Quiet", false, 0},
		{pgtest.Silence, "Quiet", false, 0},
		{pgtest.LinkDown, "Notified", true, 0},
		{pgtest.Silence, "Notified", true, 0},
		{pgtest.Unreachable, "Notified", true, 0}, // without data to send, the kernel does not care why nothing comes
		{pgtest.Silence, "NotifiedLate", true, 1500 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%s/%s", row.fault, row.name), func(t *testing.T) {
			t.Parallel()
			testPostgresHostDeath(t, server, row)
		})
	}
}

func testPostgresHostDeath(t *testing.T, server *pgtest.Server, row hostDeath) {
	t.Helper()
	opts := hostOptions(3 * time.Second)
	r := newHostRig(t, server, opts)
	chat := func(time.Duration) {}
	if row.notified {
		chat = r.chatter()
	}
	cut := time.Now()
	r.remote.Cut(row.fault)
	chat(row.pause)
	d := r.death()
	started := r.await(r.standby, "start", cut).at()
	told := r.await(r.holder, "told", cut).at()
	r.await(r.holder, "drained", cut)
	t.Logf("PostgreSQL %d: told %v after the cut; data in doubt %v, freed %v, led on %v after the last byte", server.Major(),
		told.Sub(cut), max(-1, d.owed.Sub(d.heard)), d.freed.Sub(d.heard), started.Sub(d.heard))

	from, late := d.heard, time.Second
	if server.Major() < 14 && !d.owed.IsZero() {
		// Without idle_session_timeout, data that nobody acknowledges is what counts: it switches keepalives off.
		from = d.owed
		if row.fault == pgtest.Unreachable {
			late = opts.SessionTimeout // each ICMP message has the kernel set its timer anew, past the timeout
		}
	}
	if row.notified {
		assert.False(t, d.owed.IsZero(), "no notification was sent")
	}
	assert.Less(t, d.heard.Sub(cut), procSlack, "nothing passes")
	assert.Less(t, told.Sub(cut), opts.Lease+procSlack)
	assert.GreaterOrEqual(t, d.freed.Sub(d.heard), opts.SessionTimeout-20*time.Millisecond)
	assert.LessOrEqual(t, d.freed.Sub(from), opts.SessionTimeout+late)
	assert.Less(t, started.Sub(d.freed), opts.Retry*13/10+procSlack)
	assert.Equal(t, 2, r.exclusive())
}

// reconnected waits until the holder has a session again, another one.
func (r *hostRig) reconnected() {
	r.t.Helper()
	dbWithin(r.t, procPatience, "the holder is back", func() bool {
		return dbQuery[int](r.t, r.admin, `SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'leader/%'
			AND client_addr = $1::inet AND pid <> $2 AND query LIKE '%pg_try_advisory_lock(k)%'`, r.remote.There(), r.pid) == 1
	})
}

// leads waits until a worker leads that is not the one before.
func (r *hostRig) leads(before *procWorker) *procWorker {
	r.t.Helper()
	var now *procWorker
	dbWithin(r.t, procPatience, "another one leads", func() bool {
		for _, e := range r.all() {
			if e.Kind == "start" {
				now = r.workers[e.worker]
			}
		}
		return now != before
	})
	return now
}

// TestPostgresHostCutOff: the host of the holder comes back.
func TestPostgresHostCutOff(t *testing.T) {
	server := pgtest.Start(t, "listen_addresses=*")
	opts := hostOptions(3 * time.Second)
	t.Run("Blink", func(t *testing.T) { // much shorter than the lease
		t.Parallel()
		r := newHostRig(t, server, opts)
		r.remote.Cut(pgtest.Silence)
		time.Sleep(opts.Lease / 5) // that long it lasts
		r.remote.Mend()
		dbHolds(t, opts.SessionTimeout+time.Second, func() bool { return r.starts(r.standby) == 0 && r.starts(r.holder) == 1 })
		assert.Equal(t, r.pid, r.lockedBy(), "the same session")
		for _, e := range r.all() {
			assert.NotEqual(t, "late", e.Kind)
		}
	})
	t.Run("BeforeTheServerKnows", func(t *testing.T) { // the lease is over, the session is not
		t.Parallel()
		r := newHostRig(t, server, opts)
		cut := time.Now()
		r.remote.Cut(pgtest.Unreachable)
		r.await(r.holder, "told", cut)
		time.Sleep((opts.SessionTimeout - opts.Lease) / 2) // it lasts for some more time
		r.remote.Mend()
		r.await(r.holder, "drained", cut)
		dbWithin(t, procPatience, "somebody leads", func() bool { return r.starts(r.holder)+r.starts(r.standby) == 2 })
		r.handOver()
	})
	for _, fault := range []pgtest.Fault{pgtest.LinkDown, pgtest.Silence} {
		t.Run("AfterTheTakeover"+string(fault), func(t *testing.T) {
			t.Parallel()
			r := newHostRig(t, server, opts)
			cut := time.Now()
			r.remote.Cut(fault)
			r.await(r.standby, "start", cut)
			r.remote.Mend()
			mended := time.Now()
			r.reconnected()
			t.Logf("PostgreSQL %d: contends %v after the link is back", server.Major(), time.Since(mended))
			dbHolds(t, time.Second, func() bool { return r.starts(r.holder) == 1 && r.starts(r.standby) == 1 })
			r.handOver()
		})
	}
}

// handOver has who leads now leave, and the other one follow.
func (r *hostRig) handOver() {
	r.t.Helper()
	r.reconnected()
	first := r.leads(nil)
	first.signal(syscall.SIGTERM)
	second := r.leads(first)
	first.clean(r.t)
	second.signal(syscall.SIGTERM)
	second.clean(r.t)
	assert.Equal(r.t, 3, r.exclusive())
}
