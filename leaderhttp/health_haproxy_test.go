// SPDX-License-Identifier: MIT

package leaderhttp_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// haproxyConfig is that of docs/probes.md, with shorter times. A test compares the two.
const haproxyConfig = `
frontend writes
    bind %s
    default_backend leader

backend leader
    option httpchk GET /probes/leader?name=orders
    default-server check inter 100ms fall 1 rise 1
    server a %s
    server b %s
    server c %s

frontend reads
    bind %s
    default_backend ready

backend ready
    balance roundrobin
    option httpchk GET /probes/ready
    default-server check inter 100ms fall 1 rise 1
    server a %s
    server b %s
    server c %s
`

const haproxyDefaults = `
defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 10s
    timeout check 1s
    retries 0
`

func findHAProxy(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"haproxy", "/usr/sbin/haproxy", "/usr/local/sbin/haproxy"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" && runtime.GOOS == "linux" {
		t.Fatal("there is no HAProxy, and CI is set")
	}
	t.Skip("there is no HAProxy")
	return ""
}

// freeAddr is an address that nobody listened on a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

// startHAProxy runs HAProxy before the servers until the test ends.
func startHAProxy(t *testing.T, servers ...any) (writes, reads string) {
	t.Helper()
	program := findHAProxy(t)
	writes, reads = freeAddr(t), freeAddr(t)
	args := append([]any{writes}, servers...)
	args = append(append(args, reads), servers...)
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, haproxyDefaults+haproxyConfig, args...), 0o600))
	cmd := exec.CommandContext(t.Context(), program, "-db", "-f", file) // killed at the end of the test
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	return "http://" + writes, "http://" + reads
}

// app is a process as its users have it: writes only where it leads, by its own word and not by that of the balancer.
func app(t *testing.T, l *leader.Leader) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/probes/", leaderhttp.Health(l, leaderhttp.HealthOptions{}))
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, _ *http.Request) {
		if !l.IsLeading("orders") {
			http.Error(w, "sent to a standby", http.StatusMisdirectedRequest)
			return
		}
		_, _ = io.WriteString(w, l.Status().Node)
	})
	mux.HandleFunc("GET /orders", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, l.Status().Node) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// send sends one request, on a connection of its own. Without an answer the code is 0.
func send(t *testing.T, method, target string) (code int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, nil)
	require.NoError(t, err)
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error() // as long as HAProxy is starting
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

func TestHealthBehindHAProxy(t *testing.T) {
	fleet := healthFleet(t, "a", "b", "c")
	stop := contend(t, fleet[0], "orders")
	awaitLeading(t, fleet[0], "orders")
	contend(t, fleet[1], "orders")
	var servers []any
	for _, l := range fleet {
		servers = append(servers, app(t, l).Listener.Addr().String())
	}
	writes, reads := startHAProxy(t, servers...)

	// HAProxy takes a server for up until its first check. Until then, writes may come to a standby, which refuses them.
	settled := 0
	require.Eventually(t, func() bool {
		code, _ := send(t, http.MethodPost, writes+"/orders")
		if settled++; code != http.StatusOK {
			settled = 0
		}
		return settled == 10
	}, patience, 20*time.Millisecond)
	for range 50 {
		code, node := send(t, http.MethodPost, writes+"/orders")
		assert.Equal(t, http.StatusOK, code)
		assert.Equal(t, "a", node)
	}
	seen := readers(t, reads)
	assert.Equal(t, map[string]bool{"a": true, "b": true, "c": true}, seen, "standbys and idle processes serve reads")

	// A handover: refused by HAProxy, which knows of no leader, or by a process that does not lead; then done by the next.
	handedOver := time.Now()
	stop()
	refused := 0
	require.Eventually(t, func() bool {
		code, node := send(t, http.MethodPost, writes+"/orders")
		if code == http.StatusOK {
			return assert.Equal(t, "b", node)
		}
		assert.Contains(t, []int{http.StatusServiceUnavailable, http.StatusMisdirectedRequest}, code)
		refused++
		return false
	}, patience, 5*time.Millisecond)
	t.Logf("writes are done again after %v; %d were refused", time.Since(handedOver), refused)
	for range 50 {
		code, node := send(t, http.MethodPost, writes+"/orders")
		assert.Equal(t, http.StatusOK, code)
		assert.Equal(t, "b", node)
	}

	// The last one resigns: it is drained, and nobody gets writes.
	require.NoError(t, fleet[1].Resign(t.Context()))
	require.Eventually(t, func() bool {
		code, _ := send(t, http.MethodPost, writes+"/orders")
		return code == http.StatusServiceUnavailable
	}, patience, 20*time.Millisecond)
	require.Eventually(t, func() bool { return !readers(t, reads)["b"] }, patience, 20*time.Millisecond)
	assert.Equal(t, map[string]bool{"a": true, "c": true}, readers(t, reads))
}

// readers are the nodes that reads come to.
func readers(t *testing.T, reads string) map[string]bool {
	t.Helper()
	seen := make(map[string]bool)
	for range 12 {
		code, node := send(t, http.MethodGet, reads+"/orders")
		assert.Equal(t, http.StatusOK, code)
		seen[node] = true
	}
	return seen
}

// What the documentation shows is what is tested, but for the times and the addresses.
func TestHealthHAProxyConfigIsDocumented(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "probes.md"))
	require.NoError(t, err)
	for line := range strings.Lines(haproxyConfig) {
		line = strings.TrimRight(strings.NewReplacer("bind %s", "bind", "%s", "", "inter 100ms", "inter 1s").Replace(line), " \n")
		assert.Contains(t, string(doc), line)
	}
}
