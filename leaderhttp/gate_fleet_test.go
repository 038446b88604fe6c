// SPDX-License-Identifier: MIT

package leaderhttp_test

import (
	"context"
	"database/sql"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"
)

const (
	gateName = "orders"
	soon     = 10 * time.Second // a deadline of the tests, never waited for
	often    = 5 * time.Millisecond
)

// gateNode is a process of a fleet: a Leader, and a server whose handler can be set at any time.
type gateNode struct {
	l      *leader.Leader
	server *httptest.Server
	addr   string
	mux    *http.ServeMux
}

// gateFleet is the database file that all nodes of a test share.
type gateFleet struct {
	t    *testing.T
	path string
}

func newGateFleet(t *testing.T) *gateFleet {
	t.Helper()
	return &gateFleet{t, filepath.Join(t.TempDir(), "test.db")}
}

// node starts a process. Its address is that of its server, if opts says nothing else.
func (f *gateFleet) node(name string, opts leader.Options) *gateNode {
	f.t.Helper()
	db, err := f.db()
	require.NoError(f.t, err)
	f.t.Cleanup(func() { assert.NoError(f.t, db.Close()) })
	return startGateNode(f.t, leader.SQLite(db), name, opts)
}

func (f *gateFleet) db() (*sql.DB, error) {
	return sql.Open("sqlite", f.path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)")
}

func startGateNode(t *testing.T, backend leader.Backend, name string, opts leader.Options) *gateNode {
	t.Helper()
	n := &gateNode{mux: http.NewServeMux()}
	n.server = httptest.NewUnstartedServer(n.mux)
	n.server.EnableHTTP2 = true
	n.addr = n.server.Listener.Addr().String()
	opts.Node, opts.Terms, opts.Retry, opts.Check = name, true, 20*time.Millisecond, 50*time.Millisecond
	if opts.Addr == "" {
		opts.Addr = n.addr
	}
	var err error
	n.l, err = leader.New(backend, opts)
	require.NoError(t, err)
	n.server.Start()
	t.Cleanup(func() {
		n.server.CloseClientConnections()
		n.server.Close()
		n.resign(t)
	})
	return n
}

// gate puts next behind a gate at the root of the server.
func (n *gateNode) gate(next http.HandlerFunc, opts leaderhttp.GateOptions) {
	n.mux.Handle("/", leaderhttp.Gate(n.l, gateName, next, opts))
}

func (n *gateNode) resign(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	assert.NoError(tb, n.l.Resign(ctx))
}

// lead makes n lead, and returns a function that ends that and waits for it.
func (n *gateNode) lead(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { // ends with ctx, or by Resign
		defer close(ended)
		_ = n.l.Run(ctx, gateName, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
	}()
	t.Cleanup(cancel)
	require.Eventually(t, func() bool { return n.l.IsLeading(gateName) }, soon, often)
	return func() {
		cancel()
		<-ended
	}
}

// knows waits until n knows that node leads; "" means nobody.
func (n *gateNode) knows(t *testing.T, node string) leader.Holder {
	t.Helper()
	var h leader.Holder
	require.Eventually(t, func() bool {
		v := n.l.Known(gateName)
		h = v.Holders[0]
		return v.Err == nil && h.Current == (node != "") && h.Node == node
	}, soon, often, "%s leads", node)
	return h
}

// lose has the lock of the leader vanish: it notices at its next Check.
func (f *gateFleet) lose() {
	f.t.Helper()
	lost := 0
	require.NoError(f.t, filepath.WalkDir(f.path+".leader", func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".lock") {
			lost++
			return os.Remove(path)
		}
		return err
	}))
	require.NotZero(f.t, lost)
}

// client makes a client that follows nothing, with connections of its own.
func gateClient(tb testing.TB) *http.Client {
	tb.Helper()
	transport := &http.Transport{DisableCompression: true}
	tb.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// do sends a request and reads the answer. Headers are pairs.
func do(tb testing.TB, method, url, body string, headers ...string) (*http.Response, string) {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), method, url, strings.NewReader(body))
	require.NoError(tb, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := gateClient(tb).Do(r)
	require.NoError(tb, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(tb, err)
	return resp, string(text)
}

// say returns a handler that answers with text, and with the term that it has.
func say(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := leader.TermOf(r.Context()); ok {
			_, _ = io.WriteString(w, text+" leads")
			return
		}
		_, _ = io.WriteString(w, text)
	}
}

func newTLSServer(h http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	return server
}
