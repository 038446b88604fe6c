// SPDX-License-Identifier: MIT

package leaderhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gatePair returns a, which leads, and b, which knows it, both with next behind their gates.
func gatePair(t *testing.T, next http.HandlerFunc, opts leaderhttp.GateOptions) (f *gateFleet, a, b *gateNode, stop func()) {
	t.Helper()
	f = newGateFleet(t)
	a, b = f.node("a", leader.Options{}), f.node("b", leader.Options{})
	a.gate(next, opts)
	b.gate(next, opts)
	stop = a.lead(t)
	b.knows(t, "a")
	return f, a, b, stop
}

// raw sends a request line as it is, and returns the answer.
func raw(t *testing.T, addr, line string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(soon)))
	_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\n\r\n", line)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	return resp
}

func TestGateRedirects(t *testing.T) {
	_, a, b, _ := gatePair(t, say("next"), leaderhttp.GateOptions{Mode: leaderhttp.Redirect})
	b.mux.Handle("/api/", http.StripPrefix("/api/", leaderhttp.Gate(b.l, gateName, say("next"), leaderhttp.GateOptions{Mode: leaderhttp.Redirect})))
	bare := httptest.NewServer(leaderhttp.Gate(b.l, gateName, say("next"), leaderhttp.GateOptions{Mode: leaderhttp.Redirect}))
	defer bare.Close()
	run := func(addr, target, want string) {
		t.Helper()
		resp := raw(t, addr, "POST "+target)
		assert.Equal(t, http.StatusTemporaryRedirect, resp.StatusCode, target)
		assert.Equal(t, "http://"+a.addr+want, resp.Header.Get("Location"), target)
		assert.Equal(t, a.addr, resp.Header.Get("Leader-Addr"), target)
		assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"), target)
		u, err := url.Parse(resp.Header.Get("Location"))
		require.NoError(t, err)
		assert.Equal(t, a.addr, u.Host, target)
	}
	for target, want := range map[string]string{
		"/x?b=2&a=1;c": "/x?b=2&a=1;c", "/a%2Fb%20c?q=%00%zz": "/a%2Fb%20c?q=%00%zz", "/?": "/",
		"/ü": "/%C3%BC", "/../../x": "/../../x", "http://evil.com/y?z": "/y?z", "http://evil.com": "/",
		"http://u:p@evil.com:1/y#": "/y%23", "//evil.com/x": "//evil.com/x", "///evil.com": "///evil.com",
		"/%5Cevil.com": "/%5Cevil.com", `/\evil.com`: "/%5Cevil.com",
	} {
		run(bare.Listener.Addr().String(), target, want)
	}
	// What is behind StripPrefix gets "@evil.com/".
	run(b.addr, "/api/@evil.com/", "/api/@evil.com/")
	run(b.addr, "/api/.evil.com/", "/api/.evil.com/")
}

// A rewritten URL without a slash, in a request that no server has made.
func TestGateRedirectsToTheLeaderOnly(t *testing.T) {
	_, a, b, _ := gatePair(t, say("next"), leaderhttp.GateOptions{Mode: leaderhttp.Redirect})
	gate := leaderhttp.Gate(b.l, gateName, say("next"), leaderhttp.GateOptions{Mode: leaderhttp.Redirect})
	for _, path := range []string{"@evil.com/", ".evil.com", ":80@evil.com", "*", "", "//evil.com", "\r\nX: y", "%"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		r.RequestURI, r.URL = "", &url.URL{Path: path}
		w := httptest.NewRecorder()
		gate.ServeHTTP(w, r)
		u, err := url.Parse(w.Header().Get("Location"))
		require.NoError(t, err)
		assert.Equal(t, a.addr, u.Host, path)
		assert.Nil(t, u.User, path)
		assert.NotContains(t, w.Header().Get("Location"), "\n")
	}
}

// A client that follows gets there with its body, in one hop.
func TestGateRedirectIsFollowed(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }
	_, a, b, _ := gatePair(t, echo, leaderhttp.GateOptions{Mode: leaderhttp.Redirect})
	client := gateClient(t)
	hops := 0
	client.CheckRedirect = func(*http.Request, []*http.Request) error { hops++; return nil }
	resp, err := client.Post(b.server.URL+"/x", "", strings.NewReader("hello"))
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(body))
	assert.Equal(t, 1, hops)
	assert.Equal(t, a.addr, resp.Request.URL.Host)
}

// heard is what the leader gets to see of a forwarded request.
type heard struct {
	Host, URI, Body string
	Header          http.Header
}

func tell(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Own", "1")
	w.Header().Set("Keep-Alive", "hop")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(heard{r.Host, r.RequestURI, string(body), r.Header})
}

func TestGateForwards(t *testing.T) {
	_, a, b, _ := gatePair(t, tell, leaderhttp.GateOptions{Mode: leaderhttp.Forward})
	ask := func(headers ...string) (got heard) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.server.URL+"//x%2Fy?b=2&a=1;c=%zz", strings.NewReader("hello"))
		require.NoError(t, err)
		r.Host = "shop.example"
		for i := 0; i < len(headers); i += 2 {
			r.Header.Add(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		r.RequestURI, r.RemoteAddr = r.URL.RequestURI(), "198.51.100.7:1234"
		leaderhttp.Gate(b.l, gateName, say("no"), leaderhttp.GateOptions{Mode: leaderhttp.Forward}).ServeHTTP(w, r)
		require.Equal(t, http.StatusCreated, w.Code, w.Body.String())
		assert.Equal(t, "1", w.Header().Get("X-Own"))
		assert.Empty(t, w.Header().Get("Keep-Alive"))
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		return got
	}
	a.mux = nil
	a.server.Config.Handler = leaderhttp.Gate(a.l, gateName, http.HandlerFunc(tell), leaderhttp.GateOptions{Mode: leaderhttp.Forward})
	got := ask("Connection", "X-Hop", "X-Hop", "1", "Te", "trailers", "X-Kept", "1", "Authorization", "Bearer x")
	assert.Equal(t, "shop.example", got.Host)
	assert.Equal(t, "//x%2Fy?b=2&a=1;c=%zz", got.URI)
	assert.Equal(t, "hello", got.Body)
	assert.NotContains(t, got.Header, "X-Hop")
	assert.Equal(t, "1", got.Header.Get("X-Kept"))
	assert.Equal(t, "Bearer x", got.Header.Get("Authorization"))
	assert.Equal(t, "b", got.Header.Get("Leader-Forwarded"))
	assert.Equal(t, "198.51.100.7", got.Header.Get("X-Forwarded-For"))
	assert.Equal(t, "http", got.Header.Get("X-Forwarded-Proto"))
	assert.Equal(t, "shop.example", got.Header.Get("X-Forwarded-Host"))
	got = ask("X-Forwarded-For", "192.0.2.1", "X-Forwarded-For", "192.0.2.2", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "outer.example",
		"Forwarded", "for=192.0.2.1")
	assert.Equal(t, "192.0.2.1, 192.0.2.2, 198.51.100.7", strings.Join(got.Header.Values("X-Forwarded-For"), ", "))
	assert.Equal(t, "https", got.Header.Get("X-Forwarded-Proto"))
	assert.Equal(t, "outer.example", got.Header.Get("X-Forwarded-Host"))
	assert.Equal(t, "for=192.0.2.1", got.Header.Get("Forwarded"))
}

// Which node forwards is a header that other processes read: no name breaks it.
func TestGateForwardsUnderAnyNode(t *testing.T) {
	f := newGateFleet(t)
	a, b := f.node("a", leader.Options{}), f.node("b\r\nX: y, ü", leader.Options{})
	a.gate(tell, leaderhttp.GateOptions{})
	b.gate(tell, leaderhttp.GateOptions{Mode: leaderhttp.Forward})
	a.lead(t)
	b.knows(t, "a")
	_, body := do(t, "POST", b.server.URL, "")
	var got heard
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	assert.Equal(t, "b%0D%0AX:%20y%2C%20%C3%BC", got.Header.Get(leaderhttp.HeaderForwarded))
}

// The leader's address leads back to b, as when somebody has mixed up the addresses of a proxy: one hop, and no more.
func TestGateForwardsOnce(t *testing.T) {
	f := newGateFleet(t)
	var b *gateNode
	var hops atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hops.Add(1)
		httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: b.addr}).ServeHTTP(w, r)
	}))
	defer front.Close()
	a := f.node("a", leader.Options{Addr: front.URL})
	b = f.node("b", leader.Options{})
	c := f.node("c", leader.Options{}) // the other standby: c -> front -> b
	for _, mode := range []leaderhttp.Mode{leaderhttp.Forward, leaderhttp.Redirect} {
		b.mux.Handle(fmt.Sprintf("/%d", mode), leaderhttp.Gate(b.l, gateName, say("b"), leaderhttp.GateOptions{Mode: mode}))
		c.mux.Handle(fmt.Sprintf("/%d", mode), leaderhttp.Gate(c.l, gateName, say("c"), leaderhttp.GateOptions{Mode: leaderhttp.Forward}))
	}
	a.lead(t)
	for _, n := range []*gateNode{b, c} {
		n.knows(t, "a")
	}
	for i, target := range []string{b.server.URL + "/2", c.server.URL + "/2", c.server.URL + "/1"} {
		resp, body := do(t, "POST", target, "")
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, target)
		assert.Contains(t, body, `"NOT_LEADER"`)
		assert.Equal(t, int64(i+1), hops.Load(), target)
	}
	for _, by := range []string{"x", ""} { // a proxy may have emptied it
		resp, _ := do(t, "POST", b.server.URL+"/2", "", leaderhttp.HeaderForwarded, by)
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		assert.Equal(t, int64(3), hops.Load())
	}
}

func TestGateForwardsStreams(t *testing.T) {
	steps := make(chan string)
	_, _, b, stop := gatePair(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "12") // httputil flushes by itself what has none
		for {
			select {
			case s := <-steps:
				_, _ = io.WriteString(w, s)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				_, _ = io.WriteString(w, "bye")
				return
			}
		}
	}, leaderhttp.GateOptions{Mode: leaderhttp.Forward})
	first := make(chan struct{})
	go func() {
		steps <- "one"
		close(first)
	}()
	resp := open(t, gateClient(t), "POST", b.server.URL, nil)
	within(t, first)
	buf := make([]byte, 3)
	_, err := io.ReadFull(resp.Body, buf)
	require.NoError(t, err)
	for _, s := range []string{"two", "six"} {
		steps <- s
		_, err := io.ReadFull(resp.Body, buf)
		require.NoError(t, err)
		assert.Equal(t, s, string(buf))
	}
	stop()
	rest, err := io.ReadAll(resp.Body)
	assert.NoError(t, err)
	assert.Equal(t, "bye", string(rest), "the last word is forwarded, too")
}

func TestGateForwardsABigUpload(t *testing.T) {
	_, _, b, _ := gatePair(t, func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		_, _ = fmt.Fprintf(w, "%d %v %x", n, err, sum.Sum(nil))
	}, leaderhttp.GateOptions{Mode: leaderhttp.Forward})
	content := make([]byte, 64<<20)
	for i := 0; i < len(content); i += 512 {
		content[i] = byte(rand.Uint32())
	}
	for _, body := range []io.Reader{bytes.NewReader(content), io.MultiReader(bytes.NewReader(content))} { // with and without a length
		resp := open(t, gateClient(t), "PUT", b.server.URL, body)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("%d <nil> %x", len(content), sha256.Sum256(content)), string(got))
	}
}

func TestGateForwardsUpgrades(t *testing.T) {
	f, _, b, _ := gatePair(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, buffers, err := w.(http.Hijacker).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		_, _ = buffers.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = buffers.Flush()
		_, _ = io.Copy(conn, buffers)
	}, leaderhttp.GateOptions{Mode: leaderhttp.Forward, Grace: 50 * time.Millisecond})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.server.URL, nil)
	require.NoError(t, err)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	resp, err := gateClient(t).Do(r)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	conn := resp.Body.(io.ReadWriteCloser)
	defer conn.Close()
	for _, s := range []string{"one", "two"} {
		_, err := io.WriteString(conn, s)
		require.NoError(t, err)
		got := make([]byte, 3)
		_, err = io.ReadFull(conn, got)
		require.NoError(t, err)
		assert.Equal(t, s, string(got))
	}
	f.lose()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, conn)
		close(ended)
	}()
	within(t, ended)
}

// silent is a server that takes connections and requests, and says what it is told to.
func silent(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() { // ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			go serve(conn)
		}
	}()
	return listener.Addr().String()
}

func TestGateTellsWhatItCouldNotForward(t *testing.T) {
	for name, test := range map[string]struct {
		addr   string
		status int
		code   string
		end    bool // the leadership ends meanwhile
	}{
		"nobody listens": {"", http.StatusServiceUnavailable, "NOT_LEADER", false},
		"no such host":   {"nowhere.invalid:80", http.StatusServiceUnavailable, "NOT_LEADER", false},
		"breaks off": {silent(t, func(conn net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_ = conn.Close()
		}), http.StatusBadGateway, "LEADER_UNREACHABLE", false},
		"talks nonsense": {silent(t, func(conn net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, "what?\r\n\r\n")
		}), http.StatusBadGateway, "LEADER_UNREACHABLE", false},
		"says nothing": {silent(t, func(net.Conn) {}), http.StatusBadGateway, "LEADER_UNREACHABLE", true},
	} {
		t.Run(name, func(t *testing.T) {
			if test.addr == "" {
				listener, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				test.addr = listener.Addr().String()
				require.NoError(t, listener.Close())
			}
			f := newGateFleet(t)
			a, b := f.node("a", leader.Options{Addr: test.addr}), f.node("b", leader.Options{})
			b.gate(say("b"), leaderhttp.GateOptions{Mode: leaderhttp.Forward, Grace: 50 * time.Millisecond})
			stop := a.lead(t)
			term := b.knows(t, "a").Term
			done := make(chan string, 1)
			var resp *http.Response
			go func() {
				var body string
				resp, body = do(t, "POST", b.server.URL, "hello")
				done <- body
			}()
			if test.end {
				select {
				case <-done:
					require.Fail(t, "it did not wait for the leader")
				case <-time.After(300 * time.Millisecond):
				}
				stop()
			}
			body := within(t, done)
			assert.Equal(t, test.status, resp.StatusCode)
			assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
			assert.Equal(t, test.status == http.StatusServiceUnavailable, resp.Header.Get("Retry-After") != "")
			var got struct {
				Error struct {
					Code string
					Addr string      `json:"leader_addr"`
					Term leader.Term `json:"term"`
				}
			}
			require.NoError(t, json.Unmarshal([]byte(body), &got))
			assert.Equal(t, test.code, got.Error.Code)
			if test.end { // nobody leads any more
				test.addr, term = "", 0
			}
			assert.Equal(t, test.addr, got.Error.Addr)
			assert.Equal(t, term, got.Error.Term)
		})
	}
}

// The leader hangs in the middle of an answer, and its host is gone.
func TestGateEndsAForwardedStreamWithTheTerm(t *testing.T) {
	addr := silent(t, func(conn net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
	})
	f := newGateFleet(t)
	a, b := f.node("a", leader.Options{Addr: addr}), f.node("b", leader.Options{})
	b.gate(say("b"), leaderhttp.GateOptions{Mode: leaderhttp.Forward, Grace: -1})
	a.lead(t)
	b.knows(t, "a")
	resp := open(t, gateClient(t), "POST", b.server.URL, nil)
	_, err := io.ReadFull(resp.Body, make([]byte, 3))
	require.NoError(t, err)
	f.lose()
	_, err = io.Copy(io.Discard, resp.Body)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// A standby that has resigned, as in a rolling restart, knows of no leader any more: what it forwards goes on all the same.
func TestGateForwardsOnAfterResign(t *testing.T) {
	const grace = 50 * time.Millisecond
	proceed := make(chan struct{})
	_, _, b, _ := gatePair(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "one ")
		_ = http.NewResponseController(w).Flush()
		<-proceed
		_, _ = io.WriteString(w, "two")
	}, leaderhttp.GateOptions{Mode: leaderhttp.Forward, Grace: grace})
	resp := open(t, gateClient(t), "POST", b.server.URL, nil)
	_, err := io.ReadFull(resp.Body, make([]byte, 4))
	require.NoError(t, err)
	b.resign(t)
	time.AfterFunc(500*time.Millisecond, func() { close(proceed) }) // several looks, and grace, later
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "two", string(rest))
}

// A standby that is cut off from the database for a while, or was frozen, has lost sight of a leader that leads on.
func TestGateForwardsOnAfterABlackout(t *testing.T) {
	const grace = time.Second
	f := newGateFleet(t)
	db, err := f.db()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	a, b := f.node("a", leader.Options{}), startGateNode(t, leader.SQLite(db), "b", leader.Options{Lease: 200 * time.Millisecond})
	proceed := make(chan struct{})
	a.gate(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "one ")
		_ = http.NewResponseController(w).Flush()
		<-proceed
		_, _ = io.WriteString(w, "two")
	}, leaderhttp.GateOptions{})
	b.gate(say("b"), leaderhttp.GateOptions{Mode: leaderhttp.Forward, Grace: grace})
	a.lead(t)
	b.knows(t, "a")
	resp := open(t, gateClient(t), "POST", b.server.URL, nil)
	_, err = io.ReadFull(resp.Body, make([]byte, 4))
	require.NoError(t, err)

	db.SetMaxOpenConns(1)
	taken, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.l.Known(gateName).Err != nil }, soon, often)
	time.AfterFunc(300*time.Millisecond, func() { _ = taken.Close() }) // several looks later
	b.knows(t, "a")
	time.AfterFunc(grace, func() { close(proceed) })
	rest, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "two", string(rest))
}

// A client that goes away takes its forwarded request with it.
func TestGateForwardEndsWithItsClient(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan error, 1)
	_, _, b, _ := gatePair(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		ended <- context.Cause(r.Context())
	}, leaderhttp.GateOptions{Mode: leaderhttp.Forward})
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.server.URL, nil)
	require.NoError(t, err)
	gone := make(chan error, 1)
	go func() {
		resp, err := gateClient(t).Do(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		gone <- err
	}()
	within(t, entered)
	cancel()
	assert.ErrorIs(t, within(t, gone), context.Canceled)
	err = within(t, ended)
	assert.ErrorIs(t, err, context.Canceled)
	assert.NotErrorIs(t, err, leader.ErrLost)
}

// HTTPS, a path before that of the request, and a Transport of the user's.
func TestGateForwardsToAURL(t *testing.T) {
	paths := make(chan string, 1)
	far := newTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths <- r.RequestURI
		_, _ = io.WriteString(w, r.Proto)
	}))
	defer far.Close()
	roots := x509.NewCertPool()
	roots.AddCert(far.Certificate())
	f := newGateFleet(t)
	a := f.node("a", leader.Options{Addr: far.URL + "/base/"})
	b := f.node("b", leader.Options{})
	b.gate(say("b"), leaderhttp.GateOptions{Mode: leaderhttp.Forward, Transport: far.Client().Transport})
	a.lead(t)
	b.knows(t, "a")
	resp, body := do(t, "POST", b.server.URL+"/x?y", "")
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	assert.Equal(t, "HTTP/2.0", body)
	assert.Equal(t, "/base/x?y", <-paths)
}

type failingTransport struct{}

func (failingTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no")
}

// Of a Transport that tells nothing it is not known whether it has sent something.
func TestGateForwardsOverATransportThatTellsNothing(t *testing.T) {
	_, _, b, _ := gatePair(t, say("next"), leaderhttp.GateOptions{Mode: leaderhttp.Forward, Transport: failingTransport{}})
	resp, body := do(t, "POST", b.server.URL, "")
	assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
	assert.Contains(t, body, "LEADER_UNREACHABLE")
}

// While a connection to the leader is tried, another one may come to lead.
func TestGateForwardNamesNobodyWhoHasLeft(t *testing.T) {
	for what, dial := range map[string]func(ctx context.Context, addr string) (net.Conn, error){
		"nothing was sent": func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"no answer came": func(ctx context.Context, _ string) (net.Conn, error) {
			near, far := net.Pipe()
			context.AfterFunc(ctx, func() { _ = far.Close() })
			go func() { _, _ = io.Copy(io.Discard, far) }() // ends with ctx
			return near, nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			dialing := make(chan struct{}, 1)
			transport := &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
				dialing <- struct{}{}
				return dial(ctx, addr)
			}}
			defer transport.CloseIdleConnections()
			f := newGateFleet(t)
			a, b := f.node("a", leader.Options{}), f.node("b", leader.Options{})
			b.gate(say("b"), leaderhttp.GateOptions{Mode: leaderhttp.Forward, Transport: transport, Grace: 100 * time.Millisecond})
			stop := a.lead(t)
			b.knows(t, "a")
			answer := make(chan string, 1)
			go func() {
				_, body := do(t, "POST", b.server.URL, "")
				answer <- body
			}()
			within(t, dialing)
			stop()
			b.knows(t, "")
			assert.Contains(t, within(t, answer), `"leader_node":""`)
		})
	}
}

func TestGateForwardsNoBodyThatIsTooLarge(t *testing.T) {
	f := newGateFleet(t)
	a, b := f.node("a", leader.Options{}), f.node("b", leader.Options{})
	a.gate(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, leaderhttp.GateOptions{})
	gate := leaderhttp.Gate(b.l, gateName, say("b"), leaderhttp.GateOptions{Mode: leaderhttp.Forward})
	b.mux.HandleFunc("/limited", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 1<<10)
		gate.ServeHTTP(w, r)
	})
	a.lead(t)
	b.knows(t, "a")
	resp, _ := do(t, "POST", b.server.URL+"/limited", strings.Repeat("x", 1<<20))
	assert.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode, "it is not the leader's fault")
}
