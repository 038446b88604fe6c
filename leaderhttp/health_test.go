// SPDX-License-Identifier: MIT

package leaderhttp_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"
)

// patience is for what should take a moment, on a busy machine.
const patience = 20 * time.Second

// healthFleet is a Leader for each node, on one SQLite file.
func healthFleet(tb testing.TB, nodes ...string) (leaders []*leader.Leader) {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "app.db")
	for _, node := range nodes {
		db, err := sql.Open("sqlite", file)
		require.NoError(tb, err)
		tb.Cleanup(func() { _ = db.Close() })
		leaders = append(leaders, healthLeader(tb, leader.SQLite(db), leader.Options{
			Terms: true, Node: node, Addr: node + ".internal:8080", Retry: 20 * time.Millisecond,
		}))
	}
	return leaders
}

func healthLeader(tb testing.TB, backend leader.Backend, opts leader.Options) *leader.Leader {
	tb.Helper()
	l, err := leader.New(backend, opts)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
		defer cancel()
		_ = l.Resign(ctx) // the test may have done so
	})
	return l
}

// contend runs a task that stops when it is told to, until the test ends or stop is called, which waits for it.
func contend(tb testing.TB, l *leader.Leader, name string) (stop func()) {
	tb.Helper()
	return contendWith(tb, l, name, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
}

func contendWith(tb testing.TB, l *leader.Leader, name string, task func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Run(ctx, name, task) // cancelled or resigned
	}()
	stop = func() {
		cancel()
		<-done
	}
	tb.Cleanup(stop)
	return stop
}

func awaitLeading(tb testing.TB, l *leader.Leader, name string) {
	tb.Helper()
	require.Eventually(tb, func() bool { return l.IsLeading(name) }, patience, 2*time.Millisecond)
}

// answer is what a probe gets.
type answer struct {
	code   int
	header http.Header
	text   string
	body   map[string]any
}

func ask(tb testing.TB, h http.Handler, method, target string) answer {
	tb.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return answer{code: w.Code, header: w.Result().Header, text: w.Body.String()}
}

func get(tb testing.TB, h http.Handler, target string) answer {
	tb.Helper()
	began := time.Now()
	a := ask(tb, h, http.MethodGet, target)
	assert.Less(tb, time.Since(began), time.Second, "a probe waited")
	require.NoError(tb, json.Unmarshal([]byte(a.text), &a.body), a.text)
	assert.Equal(tb, "application/json", a.header.Get("Content-Type"))
	assert.Equal(tb, "no-store", a.header.Get("Cache-Control"))
	return a
}

func TestHealthOfAnIdleProcess(t *testing.T) {
	l := healthFleet(t, "a")[0]
	h := leaderhttp.Health(l, leaderhttp.HealthOptions{Down: time.Nanosecond})
	for _, path := range []string{"/health", "/ready", "/some/where/health", "/health/"} {
		a := get(t, h, path)
		assert.Equal(t, http.StatusOK, a.code, path)
		assert.Equal(t, "idle", a.body["role"])
		assert.Equal(t, "a", a.body["node_id"])
		assert.Empty(t, a.body["leader"])
		assert.Nil(t, a.body["age_ms"])
	}
	a := get(t, h, "/leader?name=outbox")
	assert.Equal(t, http.StatusServiceUnavailable, a.code)
	assert.Equal(t, "not_leading", a.body["status"])
	assert.False(t, l.Status().Connected, "a probe has opened a session")
}

func TestHealthOfLeaderAndStandby(t *testing.T) {
	fleet := healthFleet(t, "a", "b")
	contend(t, fleet[0], "outbox")
	awaitLeading(t, fleet[0], "outbox")
	contend(t, fleet[1], "outbox")
	first := leaderhttp.Health(fleet[0], leaderhttp.HealthOptions{})
	second := leaderhttp.Health(fleet[1], leaderhttp.HealthOptions{})
	require.Eventually(t, func() bool { return get(t, second, "/health").body["leader"] == "a" }, patience, 5*time.Millisecond)

	term := get(t, first, "/leader?name=outbox").body["term"]
	assert.NotZero(t, term)
	for _, path := range []string{"/health", "/ready", "/leader?name=outbox", "/health?name=outbox"} {
		a := get(t, first, path)
		assert.Equal(t, http.StatusOK, a.code, path)
		assert.Equal(t, "leader", a.body["role"], path)
		assert.Equal(t, "ok", a.body["status"], path)
		assert.Equal(t, "outbox", a.body["name"], path)
		assert.Equal(t, true, a.body["connected"], path)

		b := get(t, second, path)
		assert.Equal(t, strings.HasPrefix(path, "/leader"), b.code == http.StatusServiceUnavailable, path)
		assert.Equal(t, "standby", b.body["role"], path)
		for _, a := range []answer{a, b} {
			assert.Equal(t, "a", a.body["leader"], path)
			assert.Equal(t, "a.internal:8080", a.body["leader_addr"], path)
			assert.Equal(t, term, a.body["term"], path)
			assert.NotNil(t, a.body["age_ms"], path)
		}
	}
	other := get(t, first, "/leader?name=other")
	assert.Equal(t, http.StatusServiceUnavailable, other.code)
	assert.Equal(t, "idle", other.body["role"])
	assert.Empty(t, other.body["leader"])
}

func TestHealthOfSeveralNames(t *testing.T) {
	fleet := healthFleet(t, "a", "b")
	contend(t, fleet[0], "one")
	awaitLeading(t, fleet[0], "one")
	contend(t, fleet[1], "two")
	awaitLeading(t, fleet[1], "two")
	contend(t, fleet[0], "two")
	h := leaderhttp.Health(fleet[0], leaderhttp.HealthOptions{})
	require.Eventually(t, func() bool { return get(t, h, "/health?name=two").body["leader"] == "b" }, patience, 5*time.Millisecond)
	a := get(t, h, "/health")
	assert.Equal(t, "leader", a.body["role"], "of something")
	assert.Empty(t, a.body["leader"])
	assert.Zero(t, a.body["term"])
	assert.Equal(t, "leader", get(t, h, "/health?name=one").body["role"])
	assert.Equal(t, "standby", get(t, h, "/health?name=two").body["role"])
}

func TestHealthWithAName(t *testing.T) {
	fleet := healthFleet(t, "a", "b")
	contend(t, fleet[0], "outbox")
	awaitLeading(t, fleet[0], "outbox")
	opts := leaderhttp.HealthOptions{Name: "outbox"}
	assert.Equal(t, http.StatusOK, get(t, leaderhttp.Health(fleet[0], opts), "/leader").code)
	idle := leaderhttp.Health(fleet[1], opts)
	assert.Equal(t, http.StatusServiceUnavailable, get(t, idle, "/leader").code)
	require.Eventually(t, func() bool { return get(t, idle, "/leader").body["leader"] == "a" }, patience, 5*time.Millisecond,
		"the name of the options is asked for without being contended for")
}

func TestHealthRefuses(t *testing.T) {
	l := healthFleet(t, "a")[0]
	h := leaderhttp.Health(l, leaderhttp.HealthOptions{})
	for target, code := range map[string]int{
		"/leader":       http.StatusBadRequest,
		"/leader?name=": http.StatusBadRequest,
		"/leader?name=" + strings.Repeat("x", 1025): http.StatusBadRequest,
		"/leader?name=%ff":                          http.StatusBadRequest,
		"/health?name=%ff":                          http.StatusBadRequest,
		"/":                                         http.StatusNotFound,
		"/healthy":                                  http.StatusNotFound,
		"/health/x":                                 http.StatusNotFound,
	} {
		assert.Equal(t, code, get(t, h, target).code, target)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		a := ask(t, h, method, "/health")
		assert.Equal(t, http.StatusMethodNotAllowed, a.code, method)
		assert.Equal(t, "GET, HEAD", a.header.Get("Allow"), method)
	}
}

func TestHealthHead(t *testing.T) {
	l := healthFleet(t, "a")[0]
	h := leaderhttp.Health(l, leaderhttp.HealthOptions{})
	for target, code := range map[string]int{
		"/health": http.StatusOK, "/ready": http.StatusOK, "/status": http.StatusOK, "/leader?name=x": http.StatusServiceUnavailable,
	} {
		a := ask(t, h, http.MethodHead, target)
		assert.Equal(t, code, a.code, target)
		assert.Empty(t, a.text, target)
		assert.NotEmpty(t, a.header.Get("Content-Length"), target)
		assert.Equal(t, "no-store", a.header.Get("Cache-Control"), target)
	}
}

// Leading is not serving: a leader that is still reading its state gets no writes yet.
func TestHealthOfALeaderThatDoesNotServeYet(t *testing.T) {
	l := healthFleet(t, "a")[0]
	contend(t, l, "outbox")
	awaitLeading(t, l, "outbox")
	var serves atomic.Bool
	h := leaderhttp.Health(l, leaderhttp.HealthOptions{Serving: func(name string) bool { return name == "outbox" && serves.Load() }})
	a := get(t, h, "/leader?name=outbox")
	assert.Equal(t, http.StatusServiceUnavailable, a.code)
	assert.Equal(t, "leader", a.body["role"])
	assert.Equal(t, "not_serving", a.body["status"])
	assert.Equal(t, http.StatusOK, get(t, h, "/ready").code)
	serves.Store(true)
	assert.Equal(t, http.StatusOK, get(t, h, "/leader?name=outbox").code)
}

func TestHealthServingIsNotAskedWhereNobodyLeads(t *testing.T) {
	l := healthFleet(t, "a")[0]
	h := leaderhttp.Health(l, leaderhttp.HealthOptions{Serving: func(string) bool {
		t.Error("asked")
		return true
	}})
	assert.Equal(t, http.StatusServiceUnavailable, get(t, h, "/leader?name=outbox").code)
}

func TestHealthReadySaysNo(t *testing.T) {
	l := healthFleet(t, "a")[0]
	err := errors.New("the cache is not warm")
	h := leaderhttp.Health(l, leaderhttp.HealthOptions{Ready: func() error { return err }})
	a := get(t, h, "/ready")
	assert.Equal(t, http.StatusServiceUnavailable, a.code)
	assert.Equal(t, "the cache is not warm", a.body["reason"])
	assert.Equal(t, http.StatusOK, get(t, h, "/health").code)
	err = nil
	assert.Equal(t, http.StatusOK, get(t, h, "/ready").code)
}

// A task that was told to stop leads no more, however long it takes.
func TestHealthOfATaskThatStops(t *testing.T) {
	l := healthFleet(t, "a")[0]
	told, goOn := make(chan struct{}), make(chan struct{})
	stop := contendWith(t, l, "outbox", func(ctx context.Context) error {
		<-ctx.Done()
		close(told)
		<-goOn
		return nil
	})
	awaitLeading(t, l, "outbox")
	h := leaderhttp.Health(l, leaderhttp.HealthOptions{})
	assert.Equal(t, http.StatusOK, get(t, h, "/leader?name=outbox").code)
	stopped := make(chan struct{})
	go func() { // ends with stop
		defer close(stopped)
		stop()
	}()
	<-told
	a := get(t, h, "/leader?name=outbox")
	assert.Equal(t, http.StatusServiceUnavailable, a.code)
	assert.Equal(t, "standby", a.body["role"])
	close(goOn)
	<-stopped
}

// C42: a rollout waits for the new process to be ready before it ends the old one, which leads until then.
func TestHealthLetsARolloutGoOn(t *testing.T) {
	fleet := healthFleet(t, "old", "new")
	contend(t, fleet[0], "outbox")
	awaitLeading(t, fleet[0], "outbox")
	before := leaderhttp.Health(fleet[0], leaderhttp.HealthOptions{})
	after := leaderhttp.Health(fleet[1], leaderhttp.HealthOptions{})
	contend(t, fleet[1], "outbox")
	require.Eventually(t, func() bool { return get(t, after, "/ready").body["role"] == "standby" }, patience, 5*time.Millisecond)
	assert.Equal(t, http.StatusOK, get(t, after, "/ready").code, "the rollout would hang")

	require.NoError(t, fleet[0].Resign(t.Context()))
	a := get(t, before, "/ready")
	assert.Equal(t, http.StatusServiceUnavailable, a.code)
	assert.Equal(t, "resigned", a.body["role"])
	assert.Equal(t, http.StatusOK, get(t, before, "/health").code, "it ends by itself, and is not to be killed")
	assert.Equal(t, http.StatusServiceUnavailable, get(t, before, "/leader?name=outbox").code)
	require.Eventually(t, func() bool { return get(t, after, "/leader?name=outbox").code == http.StatusOK }, patience, 5*time.Millisecond)
}

func TestHealthStatusIsPlain(t *testing.T) {
	fleet := healthFleet(t, "a", "b")
	contend(t, fleet[0], "outbox")
	awaitLeading(t, fleet[0], "outbox")
	contend(t, fleet[1], `<b>"`)
	h := leaderhttp.Health(fleet[1], leaderhttp.HealthOptions{})
	awaitLeading(t, fleet[1], `<b>"`)
	var a answer
	require.Eventually(t, func() bool {
		a = get(t, h, "/x/status")
		holders := a.body["known"].(map[string]any)["holders"].([]any)
		return len(holders) == 2 && holders[1].(map[string]any)["current"] == true
	}, patience, 5*time.Millisecond)
	assert.Equal(t, http.StatusOK, a.code)
	assert.Equal(t, "b", a.body["node_id"])
	assert.Equal(t, "", a.body["error"])
	task := a.body["tasks"].([]any)[0].(map[string]any)
	assert.Equal(t, `<b>"`, task["name"])
	assert.Equal(t, "leading", task["state"])
	assert.NotZero(t, task["term"])
	holder := a.body["known"].(map[string]any)["holders"].([]any)[1].(map[string]any)
	assert.Equal(t, "outbox", holder["name"])
	assert.Equal(t, "a", holder["node_id"])
	assert.Equal(t, "a.internal:8080", holder["addr"])
	since, err := time.Parse(time.RFC3339Nano, holder["since"].(string))
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), since, time.Minute)
}

// Names that an asker has made up are no questions to the database.
func TestHealthKeepsNoNamesOfStrangers(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "app.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	l := healthLeader(t, leader.SQLite(db), leader.Options{Retry: 20 * time.Millisecond}) // no terms: Known asks for what it is told
	h := leaderhttp.Health(l, leaderhttp.HealthOptions{})
	for _, path := range []string{"/leader", "/health", "/ready", "/status"} {
		get(t, h, path+"?name="+url.QueryEscape("made up"))
	}
	contend(t, l, "outbox")
	require.Eventually(t, func() bool {
		holders := l.Known().Holders
		assert.False(t, slices.ContainsFunc(holders, func(h leader.Holder) bool { return h.Name == "made up" }))
		return slices.ContainsFunc(holders, func(h leader.Holder) bool { return h.Name == "outbox" && h.Held })
	}, patience, 5*time.Millisecond)
}

func BenchmarkHealth(b *testing.B) {
	l := healthFleet(b, "a")[0]
	contend(b, l, "outbox")
	awaitLeading(b, l, "outbox")
	require.Eventually(b, func() bool { return l.Known("outbox").Err == nil }, patience, time.Millisecond)
	h := leaderhttp.Health(l, leaderhttp.HealthOptions{})
	for _, path := range []string{"/health", "/leader?name=outbox", "/status"} {
		b.Run(strings.Trim(path, "/"), func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
