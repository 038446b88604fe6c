// SPDX-License-Identifier: MIT

package leaderhttp_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/leaderhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// endTest is a test of what becomes of requests when the leadership of a ends (C44).
type endTest struct {
	*testing.T
	a   *gateNode
	end func()
}

// forEachEnd runs test with each way in which a leadership ends.
func forEachEnd(t *testing.T, test func(*endTest)) {
	t.Helper()
	for _, name := range []string{"resign", "loss", "new term"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newGateFleet(t)
			a := f.node("a", leader.Options{})
			a.lead(t)
			test(&endTest{t, a, map[string]func(){
				"resign":   func() { a.resign(t) },
				"loss":     f.lose,
				"new term": func() { f.loseAndLeadAgain(a) },
			}[name]})
		})
	}
}

func (f *gateFleet) loseAndLeadAgain(a *gateNode) {
	term := a.l.Status().Tasks[0].Term
	f.lose()
	require.Eventually(f.t, func() bool {
		s := a.l.Status().Tasks[0]
		return s.State == leader.StateLeading && s.Term > term && a.l.IsLeading(gateName)
	}, soon, often)
}

// within returns what c delivers, which must not take long.
func within[T any](tb testing.TB, c <-chan T) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(soon):
		require.Fail(tb, "it takes too long")
		panic("unreachable")
	}
}

// open sends a request whose answer is a stream.
func open(tb testing.TB, client *http.Client, method, url string, body io.Reader) *http.Response {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	tb.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	require.NoError(tb, err)
	resp, err := client.Do(r)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestGateEndsTheContextOfASlowRequest(t *testing.T) {
	forEachEnd(t, func(t *endTest) {
		a := t.a
		entered := make(chan struct{})
		a.gate(func(w http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done()
			_, err := io.WriteString(w, context.Cause(r.Context()).Error())
			assert.NoError(t, err, "a short answer may still be written")
			assert.ErrorIs(t, r.Context().Err(), context.Canceled)
			assert.ErrorIs(t, context.Cause(r.Context()), leader.ErrLost)
			assert.ErrorIs(t, leader.Confirm(r.Context()), leader.ErrLost)
		}, leaderhttp.GateOptions{})
		done := make(chan string, 1)
		go func() {
			_, body := do(t, "POST", a.server.URL, "")
			done <- body
		}()
		within(t, entered)
		t.end()
		assert.Contains(t, within(t, done), "leader: leadership lost")
	})
}

// A handler that ignores its context, and whether it writes.
func TestGateCutsAStreamOff(t *testing.T) {
	for _, idle := range []bool{false, true} {
		t.Run(fmt.Sprintf("idle=%v", idle), func(t *testing.T) {
			forEachEnd(t, func(t *endTest) {
				a := t.a
				const grace = 300 * time.Millisecond
				release := make(chan struct{})
				lost := make(chan error, 1)
				a.gate(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					for {
						_, err := io.WriteString(w, "data: x\n\n")
						if flushed := http.NewResponseController(w).Flush(); err == nil {
							err = flushed
						}
						if err != nil {
							select {
							case lost <- err:
							default:
							}
						}
						if idle {
							<-release
							return
						}
						select {
						case <-release:
							return
						case <-time.After(time.Millisecond):
						}
					}
				}, leaderhttp.GateOptions{Grace: grace})
				defer close(release)
				resp := open(t, gateClient(t), "POST", a.server.URL, nil)
				_, err := io.ReadFull(resp.Body, make([]byte, 9))
				require.NoError(t, err)
				t.end()
				_, err = io.Copy(io.Discard, resp.Body)
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
				if !idle {
					assert.ErrorIs(t, within(t, lost), leader.ErrLost)
				}
			})
		})
	}
}

// A client that does not read blocks the handler in its write.
func TestGateCutsAStreamOffThatIsBlocked(t *testing.T) {
	forEachEnd(t, func(t *endTest) {
		a := t.a
		ended := make(chan error, 1)
		var written atomic.Int64
		a.gate(func(w http.ResponseWriter, _ *http.Request) {
			for block := make([]byte, 1<<20); ; {
				n, err := w.Write(block) // without a flush
				written.Add(int64(n))
				if err != nil {
					ended <- err
					return
				}
			}
		}, leaderhttp.GateOptions{Grace: 50 * time.Millisecond})
		open(t, gateClient(t), "POST", a.server.URL, nil)
		var last int64
		require.Eventually(t, func() bool {
			now := written.Load()
			still := now == last && now > 0
			last = now
			return still
		}, soon, 200*time.Millisecond)
		t.end()
		assert.ErrorIs(t, within(t, ended), leader.ErrLost)
	})
}

func TestGateSendsALastEvent(t *testing.T) {
	forEachEnd(t, func(t *endTest) {
		a := t.a
		a.gate(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			n, err := io.WriteString(w, "bye")
			assert.Equal(t, 3, n)
			assert.ErrorIs(t, err, leader.ErrLost)
		}, leaderhttp.GateOptions{})
		resp := open(t, gateClient(t), "POST", a.server.URL, nil)
		t.end()
		body, err := io.ReadAll(resp.Body)
		assert.Error(t, err, "it is not whole")
		assert.Equal(t, "bye", string(body))
	})
}

// zeros has many of them, a few at a time.
type zeros struct{ left int }

func (z *zeros) Read(p []byte) (int, error) {
	n := min(len(p), z.left, 32<<10)
	if z.left -= n; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// A handler that gives up because its writes fail must not leave the client with half of an answer that looks whole.
func TestGateBreaksOffWhatIsNotWhole(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2 ", h2), func(t *testing.T) {
			f := newGateFleet(t)
			a := f.node("a", leader.Options{})
			client := gateClient(t)
			if h2 {
				a.server.Close()
				a = startTLS(t, a)
				client = a.server.Client()
			}
			a.lead(t)
			copied := make(chan error, 1)
			a.gate(func(w http.ResponseWriter, _ *http.Request) {
				_, err := io.Copy(w, &zeros{64 << 20})
				copied <- err
			}, leaderhttp.GateOptions{Grace: soon})
			resp := open(t, client, "POST", a.server.URL, nil)
			_, err := io.ReadFull(resp.Body, make([]byte, 1<<20))
			require.NoError(t, err)
			f.lose()
			_, err = io.Copy(io.Discard, resp.Body)
			assert.ErrorIs(t, within(t, copied), leader.ErrLost)
			assert.Error(t, err)
		})
	}
}

func TestGateResetsAStreamOfHTTP2(t *testing.T) {
	for _, idle := range []bool{false, true} {
		f := newGateFleet(t)
		a := f.node("a", leader.Options{})
		a.server.Close()
		a = startTLS(t, a)
		a.lead(t)
		release := make(chan struct{})
		a.mux.HandleFunc("/plain", say("plain"))
		a.gate(func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, 2, r.ProtoMajor)
			for {
				_, _ = io.WriteString(w, "data: x\n\n")
				w.(http.Flusher).Flush()
				if idle {
					<-release
					return
				}
				select {
				case <-release:
					return
				case <-time.After(time.Millisecond):
				}
			}
		}, leaderhttp.GateOptions{Grace: 50 * time.Millisecond})
		client := a.server.Client()
		resp := open(t, client, "POST", a.server.URL, nil)
		_, err := io.ReadFull(resp.Body, make([]byte, 9))
		require.NoError(t, err)
		f.lose()
		_, err = io.Copy(io.Discard, resp.Body)
		assert.ErrorContains(t, err, "stream error")
		resp = open(t, client, "GET", a.server.URL+"/plain", nil)
		body, err := io.ReadAll(resp.Body)
		assert.NoError(t, err)
		assert.Equal(t, "plain", string(body), "the connection goes on")
		close(release)
	}
}

func TestGateClosesAHijackedConnection(t *testing.T) {
	for _, returns := range []bool{false, true} {
		t.Run(fmt.Sprintf("returns=%v", returns), func(t *testing.T) {
			forEachEnd(t, func(t *endTest) {
				a := t.a
				release := make(chan struct{})
				defer close(release)
				var again atomic.Pointer[error]
				a.gate(func(w http.ResponseWriter, _ *http.Request) {
					conn, buffers, err := http.NewResponseController(w).Hijack()
					if !assert.NoError(t, err) {
						return
					}
					_, _ = buffers.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
					_ = buffers.Flush()
					serve := func() {
						_, err := io.Copy(conn, buffers)
						again.Store(&err)
					}
					if returns {
						go serve() // ends with the connection
						return
					}
					serve()
					<-release
				}, leaderhttp.GateOptions{Grace: 100 * time.Millisecond})
				resp := open(t, gateClient(t), "POST", a.server.URL, nil)
				require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
				conn := resp.Body.(io.ReadWriteCloser)
				for range 3 {
					_, err := conn.Write([]byte("x"))
					require.NoError(t, err)
					_, err = io.ReadFull(conn, make([]byte, 1))
					require.NoError(t, err)
				}
				t.end()
				_, err := io.Copy(io.Discard, conn)
				if err != nil {
					var op *net.OpError
					assert.ErrorAs(t, err, &op, "reset")
				}
				require.Eventually(t, func() bool { return again.Load() != nil }, soon, often)
			})
		})
	}
}

func TestGateLetsNobodyHijackAfterTheEnd(t *testing.T) {
	forEachEnd(t, func(t *endTest) {
		a := t.a
		entered, ended := make(chan struct{}), make(chan struct{})
		a.gate(func(w http.ResponseWriter, _ *http.Request) {
			close(entered)
			<-ended
			_, _, err := w.(http.Hijacker).Hijack()
			assert.ErrorIs(t, err, leader.ErrLost)
			w.WriteHeader(http.StatusTeapot)
		}, leaderhttp.GateOptions{})
		status := make(chan int, 1)
		go func() {
			resp, _ := do(t, "POST", a.server.URL, "")
			status <- resp.StatusCode
		}()
		within(t, entered)
		t.end()
		require.Eventually(t, func() bool { return !a.l.IsLeading(gateName) || a.l.Status().Losses+a.l.Status().Tasks[0].Losses > 0 }, soon, often)
		close(ended)
		assert.Equal(t, http.StatusTeapot, within(t, status))
	})
}

func TestGateReadsNoMoreOfABodyAfterTheEnd(t *testing.T) {
	forEachEnd(t, func(t *endTest) {
		a := t.a
		lost := make(chan error, 1)
		first := make(chan struct{})
		a.gate(func(_ http.ResponseWriter, r *http.Request) {
			buf := make([]byte, 1)
			for {
				n, err := r.Body.Read(buf)
				if err != nil {
					assert.Zero(t, n)
					lost <- err
					return
				}
				first <- struct{}{}
			}
		}, leaderhttp.GateOptions{})
		from, to := io.Pipe()
		client := gateClient(t)
		answered := make(chan error, 1)
		go func() {
			resp, err := client.Post(a.server.URL, "", from)
			if err == nil {
				_ = resp.Body.Close()
			}
			answered <- err
		}()
		_, err := to.Write([]byte("1"))
		require.NoError(t, err)
		within(t, first)
		t.end()
		require.Eventually(t, func() bool { return !a.l.IsLeading(gateName) || a.l.Status().Tasks[0].Losses > 0 }, soon, often)
		_, _ = to.Write([]byte("2")) // what comes after the end is not handed out
		assert.ErrorIs(t, within(t, lost), leader.ErrLost)
		_ = to.Close()
		within(t, answered)
	})
}

// What is left of a stream whose handler has returned must not harm the next request on its connection.
func TestGateForgetsAStreamThatHasEnded(t *testing.T) {
	f := newGateFleet(t)
	a := f.node("a", leader.Options{})
	a.lead(t)
	a.mux.HandleFunc("/plain", func(w http.ResponseWriter, r *http.Request) {
		for range 20 {
			_, err := io.WriteString(w, "plain\n")
			assert.NoError(t, err)
			assert.NoError(t, http.NewResponseController(w).Flush())
			time.Sleep(10 * time.Millisecond) // a slow answer
		}
	})
	a.gate(func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, "x")
	}, leaderhttp.GateOptions{Grace: 50 * time.Millisecond})
	conn, err := net.Dial("tcp", a.addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(soon)))
	from := bufio.NewReader(conn)
	ask := func(method, path string) string {
		_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", method, path)
		require.NoError(t, err)
		resp, err := http.ReadResponse(from, nil)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return string(body)
	}
	assert.Equal(t, "x", ask("POST", "/"))
	f.lose()
	assert.Equal(t, strings.Repeat("plain\n", 20), ask("GET", "/plain"))
	require.Eventually(t, func() bool { return a.l.Status().Tasks[0].Losses > 0 }, soon, often)
	assert.Equal(t, strings.Repeat("plain\n", 20), ask("GET", "/plain"))
}

func TestGatePostgresEndsRequests(t *testing.T) {
	url := pgtest.URL(t)
	proxy := healthProxy(t, url)
	for what, end := range map[string]func(t *testing.T, pid uint32){
		"terminated": func(t *testing.T, pid uint32) {
			t.Helper()
			_, err := pgtest.Connect(t, url).Exec(t.Context(), "SELECT pg_terminate_backend($1)", pid)
			require.NoError(t, err)
		},
		"black hole": func(*testing.T, uint32) { proxy.Swallow(true, true) },
	} {
		t.Run(what, func(t *testing.T) {
			opts := leader.Options{Namespace: "public", Lease: 600 * time.Millisecond, SessionTimeout: 2 * time.Second}
			testGateEndsRequests(t, startGateNode(t, leader.Postgres(proxy.URL(url)), "a", opts), end)
			proxy.Heal()
		})
	}
}

func testGateEndsRequests(t *testing.T, a *gateNode, end func(t *testing.T, pid uint32)) {
	t.Helper()
	a.lead(t)
	release, told := make(chan struct{}), make(chan error, 1)
	defer close(release)
	a.gate(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		told <- context.Cause(r.Context())
		<-release
	}, leaderhttp.GateOptions{Grace: 100 * time.Millisecond})
	resp := open(t, gateClient(t), "POST", a.server.URL, nil)
	end(t, a.l.Status().SessionPID)
	assert.ErrorIs(t, within(t, told), leader.ErrLost)
	refused, body := do(t, "POST", a.server.URL, "")
	assert.Equal(t, http.StatusServiceUnavailable, refused.StatusCode, body)
	_, err := io.Copy(io.Discard, resp.Body)
	assert.True(t, errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
}

// startTLS gives a process another server, with TLS and HTTP/2.
func startTLS(t *testing.T, n *gateNode) *gateNode {
	t.Helper()
	server := newTLSServer(n.mux)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	require.IsType(t, &tls.Config{}, server.TLS)
	return &gateNode{l: n.l, server: server, addr: server.Listener.Addr().String(), mux: n.mux}
}
