// SPDX-License-Identifier: MIT

package leaderhttp_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/leaderhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nowhere is a backend whose server is not there.
func nowhere(t *testing.T) leader.Backend {
	t.Helper()
	config, err := pgx.ParseConfig("postgres://app:hunter2@127.0.0.1:1/app?sslmode=disable")
	require.NoError(t, err)
	return leader.PostgresConfig(config)
}

func healthProxy(t *testing.T, server string) *pgtest.Proxy {
	t.Helper()
	u, err := url.Parse(server)
	require.NoError(t, err)
	return pgtest.NewProxy(t, u.Host)
}

// C42: the database is down at the start.
func TestHealthWithoutADatabase(t *testing.T) {
	const down = 300 * time.Millisecond
	l := healthLeader(t, nowhere(t), leader.Options{Node: "a", Namespace: "app"})
	h := leaderhttp.Health(l, leaderhttp.HealthOptions{Down: down})
	patient := leaderhttp.Health(l, leaderhttp.HealthOptions{Down: -1})
	born := time.Now()
	require.Eventually(t, func() bool { return time.Since(born) > 2*down }, patience, 5*time.Millisecond)
	assert.Equal(t, http.StatusOK, get(t, h, "/health").code, "idle: there need not be a session")

	began := time.Now()
	contend(t, l, "outbox")
	require.Eventually(t, func() bool { return len(l.Status().Tasks) == 1 }, patience, time.Millisecond)
	if a := get(t, h, "/health"); time.Since(began) < down {
		assert.Equal(t, http.StatusOK, a.code, "the time without work counts")
	}
	require.Eventually(t, func() bool { return get(t, h, "/health").code == http.StatusServiceUnavailable }, patience, 5*time.Millisecond)
	assert.GreaterOrEqual(t, time.Since(began), down)
	a := get(t, h, "/ready")
	assert.Equal(t, http.StatusServiceUnavailable, a.code)
	assert.Equal(t, "unhealthy", a.body["status"])
	assert.Equal(t, "standby", a.body["role"])
	assert.Equal(t, false, a.body["connected"])
	assert.Empty(t, a.body["leader"])
	assert.Equal(t, http.StatusServiceUnavailable, get(t, h, "/leader?name=outbox").code)
	assert.Equal(t, http.StatusOK, get(t, patient, "/health").code)

	status := get(t, h, "/status")
	assert.NotEmpty(t, status.body["error"])
	assert.NotContains(t, status.text, "hunter2")
	page := ask(t, leaderhttp.Page(l), http.MethodGet, "/").text
	assert.Contains(t, page, "no session")
	assert.Contains(t, page, "not known")
	assert.NotContains(t, page, "hunter2")

	require.NoError(t, l.Resign(t.Context()))
	assert.Equal(t, http.StatusOK, get(t, h, "/health").code, "it is ending")
}

// C42: a standby that is cut off turns unhealthy within a bound, and knows of no leader from then on. No probe waits.
func TestHealthPostgresCutOff(t *testing.T) {
	server := pgtest.URL(t)
	proxy := healthProxy(t, server)
	opts := leader.Options{
		Namespace: "public", Terms: true, Retry: 50 * time.Millisecond, Check: 100 * time.Millisecond, Lease: 600 * time.Millisecond,
		SessionTimeout: 2 * time.Second,
	}
	node := func(name, url string) *leader.Leader {
		opts.Node, opts.Addr = name, name+":80"
		return healthLeader(t, leader.Postgres(url), opts)
	}
	a, b := node("a", server), node("b", proxy.URL(server))
	contend(t, a, "outbox")
	awaitLeading(t, a, "outbox")
	contend(t, b, "outbox")
	const down = 400 * time.Millisecond
	first := leaderhttp.Health(a, leaderhttp.HealthOptions{Down: down})
	second := leaderhttp.Health(b, leaderhttp.HealthOptions{Down: down})
	knows := func() bool {
		h := get(t, second, "/health")
		return h.code == http.StatusOK && h.body["leader"] == "a" && h.body["leader_addr"] == "a:80"
	}
	require.Eventually(t, knows, patience, 5*time.Millisecond)

	proxy.Swallow(true, true)
	cut := time.Now()
	var slowest, unknown time.Duration
	require.Eventually(t, func() bool {
		began := time.Now()
		h := get(t, second, "/health")
		slowest = max(slowest, time.Since(began))
		if unknown == 0 && h.body["leader"] == "" {
			unknown = time.Since(cut)
		}
		return h.code == http.StatusServiceUnavailable
	}, patience, 2*time.Millisecond)
	unhealthy := time.Since(cut)
	t.Logf("no leader is named after %v, unhealthy after %v, slowest probe %v", unknown, unhealthy, slowest)
	assert.LessOrEqual(t, unhealthy, opts.Lease+down+2*time.Second, "Lease + Down, and a busy machine")
	assert.NotZero(t, unknown, "a leader was named to the end")
	h := get(t, second, "/ready")
	assert.Equal(t, http.StatusServiceUnavailable, h.code)
	assert.Empty(t, h.body["leader"])
	assert.Empty(t, h.body["leader_addr"])
	assert.Zero(t, h.body["term"])
	assert.GreaterOrEqual(t, h.body["age_ms"], float64(down.Milliseconds()), "what it knew is that old")
	assert.Contains(t, ask(t, leaderhttp.Page(b), http.MethodGet, "/").text, `<span class="pill warn">not known</span>`)

	assert.Equal(t, http.StatusOK, get(t, first, "/health").code)
	assert.Equal(t, http.StatusOK, get(t, first, "/leader?name=outbox").code)

	proxy.Heal()
	require.Eventually(t, knows, patience, 10*time.Millisecond)
}

// A leader whose database stands still does not lead when its lease has ended, and its probes say so at once.
func TestHealthPostgresFrozenDatabase(t *testing.T) {
	server := pgtest.URL(t)
	proxy := healthProxy(t, server)
	l := healthLeader(t, leader.Postgres(proxy.URL(server)), leader.Options{
		Node: "a", Namespace: "public", Retry: 50 * time.Millisecond, Check: 100 * time.Millisecond, Lease: 600 * time.Millisecond, SessionTimeout: 2 * time.Second,
	})
	contend(t, l, "outbox")
	awaitLeading(t, l, "outbox")
	h := leaderhttp.Health(l, leaderhttp.HealthOptions{})
	assert.Equal(t, http.StatusOK, get(t, h, "/leader?name=outbox").code)
	proxy.Stall(true, true)
	frozen := time.Now()
	require.Eventually(t, func() bool { return get(t, h, "/leader?name=outbox").code == http.StatusServiceUnavailable }, patience, 2*time.Millisecond)
	assert.Less(t, time.Since(frozen), 600*time.Millisecond+time.Second)
	assert.Empty(t, get(t, h, "/leader?name=outbox").body["leader"])
	proxy.Heal()
	require.Eventually(t, func() bool { return get(t, h, "/leader?name=outbox").code == http.StatusOK }, patience, 5*time.Millisecond)
}

// A process that has resigned is ending, and not to be killed for a session that is missing, while a task still stops.
func TestHealthPostgresResignedWithoutASession(t *testing.T) {
	server := pgtest.URL(t)
	proxy := healthProxy(t, server)
	l := healthLeader(t, leader.Postgres(proxy.URL(server)), leader.Options{
		Namespace: "public", Check: 100 * time.Millisecond, Lease: 300 * time.Millisecond, SessionTimeout: time.Second,
	})
	goOn := make(chan struct{})
	contendWith(t, l, "outbox", func(context.Context) error {
		<-goOn
		return nil
	})
	t.Cleanup(func() { close(goOn) }) // before the cleanup that waits for the task
	awaitLeading(t, l, "outbox")
	h := leaderhttp.Health(l, leaderhttp.HealthOptions{Down: time.Millisecond})
	proxy.Swallow(true, true)
	require.Eventually(t, func() bool { return get(t, h, "/health").code == http.StatusServiceUnavailable }, patience, 2*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, l.Resign(ctx), "its task has not returned")
	a := get(t, h, "/health")
	assert.Equal(t, http.StatusOK, a.code)
	assert.Equal(t, "resigned", a.body["role"])
	assert.Equal(t, false, a.body["connected"])
	assert.Equal(t, http.StatusServiceUnavailable, get(t, h, "/ready").code)
}
