// SPDX-License-Identifier: MIT

package leaderhttp_test

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The client has stopped in the middle of its upload, and may stay so for ever.
func TestGateEndsAReadThatIsBlocked(t *testing.T) {
	forEachEnd(t, func(t *endTest) {
		testBlockedRead(t.T, t.a, gateClient(t), t.end)
	})
	t.Run("HTTP/2", func(t *testing.T) {
		f := newGateFleet(t)
		a := f.node("a", leader.Options{})
		a.server.Close()
		a = startTLS(t, a)
		a.lead(t)
		testBlockedRead(t, a, a.server.Client(), f.lose)
	})
}

func testBlockedRead(t *testing.T, a *gateNode, client *http.Client, end func()) {
	t.Helper()
	entered := make(chan struct{})
	a.mux.HandleFunc("/plain", say("plain"))
	a.gate(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadFull(r.Body, make([]byte, 3))
		assert.NoError(t, err)
		close(entered)
		_, err = r.Body.Read(make([]byte, 1))
		assert.ErrorIs(t, err, leader.ErrLost)
		w.WriteHeader(http.StatusTeapot)
	}, leaderhttp.GateOptions{})
	from, to := io.Pipe()
	status := make(chan int, 1)
	go func() {
		resp, err := client.Post(a.server.URL, "", from)
		if assert.NoError(t, err) {
			_ = resp.Body.Close()
			status <- resp.StatusCode
		}
	}()
	_, err := io.WriteString(to, "one")
	require.NoError(t, err)
	within(t, entered)
	end()
	assert.Equal(t, http.StatusTeapot, within(t, status))
	_ = to.Close()
	resp, err := client.Get(a.server.URL + "/plain")
	require.NoError(t, err)
	_ = resp.Body.Close()
	assert.Equal(t, http.StatusOK, resp.StatusCode)
}

// It is answered, too, if its handler does not read at the end.
func TestGateAnswersAnUploadAfterTheEnd(t *testing.T) {
	forEachEnd(t, func(t *endTest) {
		entered := make(chan struct{})
		t.a.gate(func(w http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done()
			w.WriteHeader(http.StatusTeapot)
		}, leaderhttp.GateOptions{})
		from, to := io.Pipe()
		defer to.Close()
		status := make(chan int, 1)
		go func() {
			resp, err := gateClient(t).Post(t.a.server.URL, "", from)
			if assert.NoError(t, err) {
				_ = resp.Body.Close()
				status <- resp.StatusCode
			}
		}()
		_, err := io.WriteString(to, "one")
		require.NoError(t, err)
		within(t, entered)
		t.end()
		assert.Equal(t, http.StatusTeapot, within(t, status))
	})
}

// What comes on its connection after such an answer is the rest of the body, and no request.
func TestGateClosesTheConnectionOfAnUploadAfterTheEnd(t *testing.T) {
	for name, handle := range map[string]func(w http.ResponseWriter, r *http.Request){
		"nothing": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"after": func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(http.StatusTeapot)
		},
		"before, reading": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.Copy(io.Discard, r.Body)
		},
		"stream": func(w http.ResponseWriter, r *http.Request) { // net/http waits for the body first
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newGateFleet(t)
			a := f.node("a", leader.Options{})
			failures := make(chan string, 8)
			a.server.Config.ErrorLog = log.New(lines(failures), "", 0)
			entered := make(chan struct{}, 1)
			a.gate(func(w http.ResponseWriter, r *http.Request) {
				entered <- struct{}{}
				handle(w, r)
			}, leaderhttp.GateOptions{})
			a.lead(t)
			conn, err := net.Dial("tcp", a.addr)
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
			_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
			require.NoError(t, err)
			within(t, entered)
			f.lose()
			answer := bufio.NewReader(conn)
			resp, err := http.ReadResponse(answer, nil)
			if name == "stream" {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF, "it is cut off")
				return
			}
			require.NoError(t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			_, _ = io.WriteString(conn, "26\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n")
			resp, err = http.ReadResponse(answer, nil)
			assert.Error(t, err, "%v", resp)
			a.server.Close() // waits for its connections
			assert.Empty(t, failures)
			assert.Empty(t, entered, "a body was taken for a request")
		})
	}
}

// lines are what a log has said.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// A body that comes slowly is read to its end all the same.
func TestGateReadsASlowBody(t *testing.T) {
	f := newGateFleet(t)
	a := f.node("a", leader.Options{})
	a.gate(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, leaderhttp.GateOptions{})
	a.lead(t)
	from, to := io.Pipe()
	time.AfterFunc(300*time.Millisecond, func() { _, _ = io.WriteString(to, "one"); _ = to.Close() }) // after it was taken for slow
	client := gateClient(t)
	for _, body := range []io.Reader{from, strings.NewReader("one")} {
		resp, err := client.Post(a.server.URL, "", body)
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		_ = resp.Body.Close()
		assert.Equal(t, "one", string(got))
	}
}

// A client that streams its body, and may send nothing for hours, is told at once that it is in the wrong place.
func TestGateRefusesAnUploadBeforeItsEnd(t *testing.T) {
	for mode, status := range map[leaderhttp.Mode]int{leaderhttp.Refuse: http.StatusServiceUnavailable, leaderhttp.Redirect: http.StatusTemporaryRedirect} {
		_, _, b, _ := gatePair(t, say(""), leaderhttp.GateOptions{Mode: mode})
		conn, err := net.Dial("tcp", b.addr)
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(soon)))
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		assert.Equal(t, status, resp.StatusCode)
		assert.True(t, resp.Close)
	}
}

// Nor does a client that streams its body wait, if the leader cannot be reached.
func TestGateAnswersAnUploadThatItCouldNotForward(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dead := listener.Addr().String()
	require.NoError(t, listener.Close())
	f := newGateFleet(t)
	a, b := f.node("a", leader.Options{Addr: dead}), f.node("b", leader.Options{})
	b.gate(say("b"), leaderhttp.GateOptions{Mode: leaderhttp.Forward})
	a.lead(t)
	b.knows(t, "a")
	conn, err := net.Dial("tcp", b.addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(soon)))
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	_ = resp.Body.Close()
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.True(t, resp.Close)
}

// As is the client, in the middle of its upload: nobody waits for either.
func TestGateEndsAForwardedUploadWithTheTerm(t *testing.T) {
	asked := make(chan struct{})
	addr := silent(t, func(conn net.Conn) {
		if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.ReadFull(r.Body, make([]byte, 3))
			close(asked)
		}
	})
	f := newGateFleet(t)
	a, b := f.node("a", leader.Options{Addr: addr}), f.node("b", leader.Options{})
	b.gate(say("b"), leaderhttp.GateOptions{Mode: leaderhttp.Forward, Grace: -1})
	a.lead(t)
	b.knows(t, "a")
	conn, err := net.Dial("tcp", b.addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(soon)))
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
	require.NoError(t, err)
	within(t, asked)
	f.lose()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	_ = resp.Body.Close()
	assert.Equal(t, http.StatusBadGateway, resp.StatusCode)
	assert.True(t, resp.Close)
}

// The leader answers while the client still sends.
func TestGateForwardsBothWaysAtOnce(t *testing.T) {
	_, _, b, _ := gatePair(t, func(w http.ResponseWriter, r *http.Request) {
		to := http.NewResponseController(w)
		assert.NoError(t, to.EnableFullDuplex())
		buf := make([]byte, 3)
		for {
			if _, err := io.ReadFull(r.Body, buf); err != nil {
				return
			}
			_, _ = w.Write(buf)
			assert.NoError(t, to.Flush())
		}
	}, leaderhttp.GateOptions{Mode: leaderhttp.Forward})
	conn, err := net.Dial("tcp", b.addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(soon)))
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	buf := make([]byte, 3)
	for _, next := range []string{"3\r\ntwo\r\n", "3\r\nsix\r\n", "0\r\n\r\n"} {
		_, err = io.ReadFull(resp.Body, buf)
		require.NoError(t, err)
		_, err = io.WriteString(conn, next)
		require.NoError(t, err)
	}
	assert.Equal(t, "six", string(buf))
	_, err = io.ReadFull(resp.Body, buf)
	assert.Equal(t, io.EOF, err)
}
