// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// dbRefused is the SQLSTATE with which the server refuses l, or "".
func dbRefused(l *leader.Leader) string {
	if refused, ok := errors.AsType[*pgconn.PgError](l.Status().Err); ok {
		return refused.Code
	}
	return ""
}

// TestPostgresServerFull: the server has no slot left, for one that wants to lead and for one that has led. Both get in when
// there is one (C29).
func TestPostgresServerFull(t *testing.T) {
	server := pgtest.Start(t, "max_connections=8", "superuser_reserved_connections=3")
	dbCheckLeaks(t, server.URL())
	admin := pgtest.Connect(t, server.URL())
	app := dbAs(t, server.URL(), dbRole(t, server.URL(), ""), "x")
	config, err := pgx.ParseConfig(app)
	require.NoError(t, err)
	proxy := pgtest.NewProxy(t, dbHostPort(config))
	log := &dbLog{}
	opts := dbTimings()
	opts.Logger = log.logger()
	a := dbLeader(t, leader.Postgres(app), dbTimings())
	b := dbLeader(t, leader.Postgres(proxy.URL(app)), opts)
	led := dbStart(t, a, "a")
	dbLeads(t, a, "a")

	var strangers []*pgx.Conn
	fill := func() {
		for {
			conn, err := pgx.Connect(t.Context(), app)
			if err != nil {
				var full *pgconn.PgError
				require.ErrorAs(t, err, &full)
				require.Equal(t, "53300", full.Code)
				return
			}
			strangers = append(strangers, conn)
			t.Cleanup(func() { conn.Close(context.Background()) })
		}
	}
	free := func() {
		require.NotEmpty(t, strangers)
		require.NoError(t, strangers[0].Close(t.Context()))
		strangers = strangers[1:]
	}
	fill()
	dbStart(t, b, "b")
	dbWithin(t, dbPatience, "b is refused", func() bool { return dbRefused(b) == "53300" })
	accepted := proxy.Accepted()
	dbHolds(t, 2*time.Second, func() bool { return a.IsLeading("a") && !b.IsLeading("b") && dbRefused(b) == "53300" })
	t.Logf("%d attempts in 2 s", proxy.Accepted()-accepted)
	assert.LessOrEqual(t, proxy.Accepted()-accepted, 25, "it backs off")
	free()
	t.Logf("b leads %v after a slot was free", dbLeads(t, b, "b"))
	assert.Equal(t, map[string]int{"database session not opened, retrying": 1, "database session opened": 1, "leadership gained": 1}, log.settled(t, b))

	// Whoever loses its session loses its slot too, unless it is the fastest to come back.
	pid := int32(a.Status().SessionPID)
	dbKill(t, admin, a)
	dbWithin(t, dbPatience, "its slot is free", func() bool {
		return dbQuery[int](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) == 0
	})
	taken := len(strangers)
	fill()
	if len(strangers) > taken {
		dbWithin(t, dbPatience, "a is refused", func() bool { return dbRefused(a) == "53300" })
		dbHolds(t, time.Second, func() bool { return !a.IsLeading("a") && b.IsLeading("b") })
		free()
	}
	dbWithin(t, dbPatience, "a leads again", func() bool { return led.terms.Load() == 2 && a.IsLeading("a") })
	assert.True(t, b.IsLeading("b"))
	assert.Zero(t, b.Status().Losses)
}

// TestPostgresAddressChanges: the name is looked up at each connect, and not kept.
func TestPostgresAddressChanges(t *testing.T) {
	before, after := pgtest.Start(t), pgtest.Start(t)
	dbCheckLeaks(t, after.URL())
	config, err := pgx.ParseConfig(strings.Replace(after.URL(), after.Addr(), "db.test:1", 1))
	require.NoError(t, err)
	var answer atomic.Pointer[string]
	var asked atomic.Int64
	at := func(addr string) { answer.Store(&addr) }
	config.LookupFunc = func(_ context.Context, host string) ([]string, error) {
		assert.Equal(t, "db.test", host)
		asked.Add(1)
		return []string{*answer.Load()}, nil
	}
	at(before.Addr())
	l := dbLeader(t, leader.PostgresConfig(config), dbTimings())
	run := dbStart(t, l, "a")
	dbLeads(t, l, "a")
	at(after.Addr())
	dbProved(t, l)
	require.EqualValues(t, 1, asked.Load(), "a session that lives is no reason to ask")
	assert.EqualValues(t, 1, run.terms.Load())
	before.Stop("fast")
	dbWithin(t, dbPatience, "it leads at the new address", func() bool { return run.terms.Load() == 2 && l.IsLeading("a") })
	assert.GreaterOrEqual(t, asked.Load(), int64(2))
	assert.Equal(t, 1, dbLocks(t, pgtest.Connect(t, after.URL())))
}

// TestPostgresDeadHostCostsFiveSeconds: a host that does not answer, first in the list, is given up after 5 s.
func TestPostgresDeadHostCostsFiveSeconds(t *testing.T) {
	const hostTimeout = 5 * time.Second
	url := pgtest.URL(t)
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	hole := pgtest.NewProxy(t, dbHostPort(config))
	hole.Swallow(true, true)
	dbCheckLeaks(t, url)
	l := dbLeader(t, leader.Postgres(strings.Replace(url, dbHostPort(config), hole.Addr()+","+dbHostPort(config), 1)), dbTimings())
	start := time.Now()
	dbStart(t, l, "a")
	dbLeads(t, l, "a")
	took := time.Since(start)
	t.Logf("leads on the second host after %v", took)
	assert.GreaterOrEqual(t, took, hostTimeout-100*time.Millisecond)
	assert.Less(t, took, hostTimeout+2*dbSlack)
	assert.Equal(t, 1, hole.Accepted(), "in one attempt")
}

// TestPostgresServerStarting: a server that answers 57P03 for as long as its recovery takes is tried again, and no error is
// final. It waits here for an archive that does not answer.
func TestPostgresServerStarting(t *testing.T) {
	server := pgtest.Start(t)
	dbCheckLeaks(t, server.URL())
	l, run, log := dbLogged(t, server.URL())
	log.settled(t, l)

	admin := pgtest.Connect(t, server.URL())
	data := dbQuery[string](t, admin, "SHOW data_directory")
	for _, sql := range []string{
		"ALTER SYSTEM SET hot_standby = off",
		"ALTER SYSTEM SET restore_command = 'until test -e answer; do sleep 0.05; done; false'",
	} {
		pgtest.Exec(t, server.URL(), sql)
	}
	require.NoError(t, admin.Close(t.Context()))
	server.Stop("fast")
	dbWithin(t, dbPatience, "nothing answers", func() bool { return l.Status().Err != nil && dbRefused(l) == "" })
	require.NoError(t, os.WriteFile(filepath.Join(data, "recovery.signal"), nil, 0o644))
	up := make(chan struct{})
	t.Cleanup(func() {
		assert.NoError(t, os.WriteFile(filepath.Join(data, "answer"), nil, 0o644))
		<-up
	})
	go func() { // until the server is up, or a minute has passed
		defer close(up)
		server.Start()
	}()
	dbWithin(t, dbPatience, "the server says that it starts", func() bool { return dbRefused(l) == "57P03" })
	dbHolds(t, 2*time.Second, func() bool { return !l.IsLeading("a") && dbRefused(l) == "57P03" })
	require.NoError(t, os.WriteFile(filepath.Join(data, "answer"), nil, 0o644))
	<-up
	started := time.Now()
	dbWithin(t, dbPatience, "leads again", func() bool { return run.terms.Load() == 2 && l.IsLeading("a") })
	t.Logf("leads %v after the server was up", time.Since(started))
	counts := log.settled(t, l)
	dbTroubles(t, counts)
	assert.Equal(t, map[string]int{"database session lost": 1, "leadership lost": 1, "database session opened": 1, "leadership gained": 1}, counts)
}

// TestPostgresFleetComesBackSpread is C29: a server is down for 10 s, and what comes back after it must not come at once. It
// counts what the server has logged.
func TestPostgresFleetComesBackSpread(t *testing.T) {
	const clients, names = 100, 10
	server := pgtest.Start(t, "max_connections=130", "log_connections=on")
	dbCheckLeaks(t, server.URL())
	opts := leader.Options{Node: "fleet"}
	var fleet []*leader.Leader
	var led atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	for range clients {
		l := dbLeader(t, leader.Postgres(server.URL()), opts)
		fleet = append(fleet, l)
		for n := range names {
			runs.Go(func() {
				l.Run(ctx, fmt.Sprint("name ", n), func(ctx context.Context) error {
					led.Add(1)
					defer led.Add(-1)
					<-ctx.Done()
					return nil
				})
			})
		}
	}
	connected := func() (n int) {
		for _, l := range fleet {
			if l.Status().Connected {
				n++
			}
		}
		return n
	}
	// Not more often, or the looking takes all the time that there is.
	seldom := func(cond func() bool) func() bool {
		var next time.Time
		var last bool
		return func() bool {
			if now := time.Now(); now.After(next) {
				last, next = cond(), now.Add(100*time.Millisecond)
			}
			return last
		}
	}
	all := seldom(func() bool { return connected() == clients && led.Load() == names })
	dbWithin(t, 3*dbPatience, "all are connected", all)
	mark := time.Now()
	dbWithin(t, dbPatience, "all are proved, or their pauses grow", seldom(func() bool {
		return !slices.ContainsFunc(fleet, func(l *leader.Leader) bool {
			age := l.Status().ProofAge
			return age < 0 || age > time.Since(mark)
		})
	}))
	before := len(server.Log())
	server.Stop("fast")
	dbWithin(t, 2*dbSlack, "all know", seldom(func() bool { return connected() == 0 && led.Load() == 0 }))
	dbHolds(t, 10*time.Second, seldom(func() bool { return connected() == 0 && led.Load() == 0 }))
	server.Start()
	dbWithin(t, 3*dbPatience, "all are connected again", all)

	line := regexp.MustCompile(`(?m)^(\S+ \S+) \S+ \[\d+\] LOG:  connection authorized: .*application_name=leader/fleet`)
	var first, last time.Time
	buckets := make(map[int64]int)
	n, most := 0, 0
	for _, match := range line.FindAllStringSubmatch(server.Log()[before:], -1) {
		at, err := time.Parse("2006-01-02 15:04:05.000", match[1])
		require.NoError(t, err)
		if n++; first.IsZero() {
			first = at
		}
		last = at
		bucket := at.UnixMilli() / 100
		buckets[bucket]++
		most = max(most, buckets[bucket])
	}
	t.Logf("%d connects within %v of the first one; at most %d in 100 ms", n, last.Sub(first), most)
	assert.GreaterOrEqual(t, n, clients)
	assert.LessOrEqual(t, most, clients/5)

	// The steady rate: a try per Retry for each that waits, a proof per Check for each.
	conn := pgtest.Connect(t, server.URL())
	commits := func() int {
		return dbQuery[int](t, conn, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
	}
	const window = 5 * time.Second
	from := commits()
	dbHolds(t, window, all)
	rate := float64(commits()-from) / window.Seconds()
	t.Logf("%.0f transactions a second", rate)
	assert.LessOrEqual(t, rate, 1.5*1.5*clients, "the server counts with a delay")
	assert.Positive(t, rate)
	cancel()
	runs.Wait()
}

// TestPostgresNamespaces is C38 (a, b, d): what is apart does not meet. Two namespaces of one database, and one namespace in
// two databases of one server, lead the same name at once; and what happens in one wakes nobody in the other.
func TestPostgresNamespaces(t *testing.T) {
	url, other := pgtest.URL(t), pgtest.URL(t)
	dbCheckLeaks(t, url)
	opts := dbTimings()
	opts.Retry = time.Minute // who is awake earlier was woken
	start := func(namespace, url string) (*leader.Leader, *dbRun) {
		opts := opts
		opts.Namespace = namespace
		l := dbLeader(t, leader.Postgres(url), opts)
		return l, dbStart(t, l, "a")
	}
	app, _ := start("app", url)
	dbLeads(t, app, "a")
	crm, _ := start("crm", url)
	dbLeads(t, crm, "a")
	elsewhere, _ := start("app", other)
	dbLeads(t, elsewhere, "a")
	assert.True(t, app.IsLeading("a") && crm.IsLeading("a"))
	name := func(text string) string {
		config, err := pgx.ParseConfig(text)
		require.NoError(t, err)
		return config.Database + "@" + dbHostPort(config)
	}
	for l, want := range map[*leader.Leader][2]string{app: {"app", name(url)}, crm: {"crm", name(url)}, elsewhere: {"app", name(other)}} {
		assert.Equal(t, want, [2]string{l.Status().Namespace, l.Status().Place}, "Status says where")
	}

	// By the search_path, as services that know nothing of each other are.
	for _, schema := range []string{"one", "two"} {
		pgtest.Exec(t, url, "CREATE SCHEMA "+schema+"; GRANT USAGE ON SCHEMA "+schema+" TO PUBLIC")
		l, _ := start("", dbAs(t, url, dbRole(t, url, "", "search_path="+schema), "x"))
		dbLeads(t, l, "a")
		assert.Equal(t, schema, l.Status().Namespace)
	}

	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	opts.Check, opts.Lease, opts.SessionTimeout = 30*time.Second, 40*time.Second, 50*time.Second // so that only a try is sent
	standby := func(namespace string) (*leader.Leader, *pgtest.Proxy) {
		proxy := pgtest.NewProxy(t, dbHostPort(config))
		l, _ := start(namespace, proxy.URL(url))
		dbWithin(t, dbPatience, "it has asked, and is quiet", func() bool {
			return dbTask(t, l, "a").State == leader.StateContending && time.Since(proxy.LastDown()) > 300*time.Millisecond
		})
		return l, proxy
	}
	next, _ := standby("app")
	_, quiet := standby("crm")
	sent := quiet.LastUp()
	require.NoError(t, dbResign(app))
	assert.Less(t, dbLeads(t, next, "a"), 2*dbSlack, "who waits for the name is told")
	dbHolds(t, 500*time.Millisecond, func() bool { return crm.IsLeading("a") && elsewhere.IsLeading("a") })
	assert.Equal(t, sent, quiet.LastUp(), "who waits for another is not")
}
