// SPDX-License-Identifier: MIT

package leaderhttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGatePassesWhileLeading(t *testing.T) {
	f := newGateFleet(t)
	a := f.node("a", leader.Options{})
	type seen struct {
		term    leader.Term
		confirm error
		path    string
	}
	got := make(chan seen, 1)
	a.gate(func(w http.ResponseWriter, r *http.Request) {
		term, _ := leader.TermOf(r.Context())
		got <- seen{term, leader.Confirm(r.Context()), r.URL.Path}
		w.Header().Set("X-Own", "1")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, r.Body)
	}, leaderhttp.GateOptions{})
	stop := a.lead(t)
	resp, body := do(t, "POST", a.server.URL+"/x", "hello")
	assert.Equal(t, http.StatusCreated, resp.StatusCode)
	assert.Equal(t, "hello", body)
	assert.Equal(t, "1", resp.Header.Get("X-Own"))
	assert.Equal(t, seen{a.l.Status().Tasks[0].Term, nil, "/x"}, <-got)
	stop()
	resp, _ = do(t, "POST", a.server.URL+"/x", "hello")
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Empty(t, got)
}

func TestGateRefuses(t *testing.T) {
	f := newGateFleet(t)
	a, b := f.node("a", leader.Options{}), f.node("b", leader.Options{})
	b.gate(say("b"), leaderhttp.GateOptions{})
	a.lead(t)
	term := b.knows(t, "a").Term
	resp, body := do(t, "POST", b.server.URL+"/x", "hello")
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	resp.Header.Del("Date")
	assert.Equal(t, http.Header{
		"Retry-After": {"1"}, "Leader-Addr": {a.addr}, "Cache-Control": {"no-store"},
		"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(body))},
	}, resp.Header)
	assert.Regexp(t, fmt.Sprintf(`^\{"error":\{"code":"NOT_LEADER","message":"this process does not lead \\"orders\\"",`+
		`"leader_node":"a","leader_addr":"%s","term":%d,"age_ms":\d{1,5}\}\}\n$`, a.addr, term), body)
}

func TestGateServesReadsEverywhere(t *testing.T) {
	f := newGateFleet(t)
	a := f.node("a", leader.Options{})
	list := func(r *http.Request) bool { return r.URL.Path == "/list" }
	for path, opts := range map[string]leaderhttp.GateOptions{
		"/default/": {}, "/standby/": {Standby: say("standby")}, "/reads/": {Reads: list},
	} {
		a.mux.Handle(path, http.StripPrefix(path[:len(path)-1], leaderhttp.Gate(a.l, gateName, say("next"), opts)))
	}
	run := func(method, path, want string, headers ...string) {
		t.Helper()
		resp, body := do(t, method, a.server.URL+path, "", headers...)
		if resp.StatusCode == http.StatusServiceUnavailable {
			body = "refused"
		}
		if method == "HEAD" && resp.StatusCode == http.StatusOK {
			body = "next"
		}
		assert.Equal(t, want, body, "%s %s", method, path)
	}
	for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
		run(method, "/default/", "next")
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "ODD"} {
		run(method, "/default/", "refused")
	}
	run("GET", "/default/", "refused", "Connection", "Upgrade", "Upgrade", "websocket")
	run("GET", "/default/", "refused", "Connection", "Upgrade", "Upgrade", "h2c", "Upgrade", "websocket")
	run("GET", "/default/", "refused", "Connection", "Upgrade", "Upgrade", "", "Upgrade", "websocket")
	run("GET", "/default/", "next", "Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c")
	run("GET", "/standby/", "standby")
	run("POST", "/standby/", "refused")
	run("POST", "/reads/list", "next")
	run("GET", "/reads/", "refused")
	a.lead(t)
	run("POST", "/default/", "next leads")
	run("GET", "/default/", "next leads")
	run("GET", "/standby/", "next leads")
	run("POST", "/reads/list", "next leads")
}

// asLeader makes the test binary a process that leads.
const asLeader = "LEADER_TEST_GATE_LEADS"

func leadAsProcess(path string) {
	db, err := (&gateFleet{path: path}).db()
	var l *leader.Leader
	if err == nil {
		l, err = leader.New(leader.SQLite(db), leader.Options{Node: "process", Terms: true, Addr: "192.0.2.1:80"})
	}
	if err == nil {
		err = l.Run(context.Background(), gateName, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// C43: whom a refusal must not name.
func TestGateNamesNobodyWhoDoesNotLead(t *testing.T) {
	for name, run := range map[string]func(*gateFleet) *gateNode{
		"nobody yet": func(f *gateFleet) *gateNode {
			b := f.node("b", leader.Options{})
			b.knows(f.t, "")
			return b
		},
		"nobody any more": func(f *gateFleet) *gateNode {
			a, b := f.node("a", leader.Options{}), f.node("b", leader.Options{})
			stop := a.lead(f.t)
			b.knows(f.t, "a")
			stop()
			b.knows(f.t, "")
			return b
		},
		"the leader was killed": func(f *gateFleet) *gateNode {
			b := f.node("b", leader.Options{})
			p := exec.Command(os.Args[0])
			p.Env = append(os.Environ(), asLeader+"="+f.path)
			p.Stderr = os.Stderr
			require.NoError(f.t, p.Start())
			f.t.Cleanup(func() { _ = p.Process.Kill() })
			b.knows(f.t, "process")
			require.NoError(f.t, p.Process.Kill())
			_ = p.Wait()
			b.knows(f.t, "")
			return b
		},
		"its address is ours": func(f *gateFleet) *gateNode {
			a := f.node("a", leader.Options{Addr: "192.0.2.1:80"})
			b := f.node("b", leader.Options{Addr: "http://192.0.2.1:80/"})
			a.lead(f.t)
			b.knows(f.t, "a")
			return b
		},
		"its node is ours": func(f *gateFleet) *gateNode {
			a, b := f.node("a", leader.Options{}), f.node("a", leader.Options{})
			a.lead(f.t)
			b.knows(f.t, "a")
			return b
		},
		"its address is no address": func(f *gateFleet) *gateNode {
			a, b := f.node("a", leader.Options{Addr: "javascript:alert(1)"}), f.node("b", leader.Options{})
			a.lead(f.t)
			b.knows(f.t, "a")
			return b
		},
		"we have resigned": func(f *gateFleet) *gateNode {
			a, b := f.node("a", leader.Options{}), f.node("b", leader.Options{})
			a.lead(f.t)
			b.knows(f.t, "a")
			b.resign(f.t)
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := run(newGateFleet(t))
			for mode := leaderhttp.Refuse; mode <= leaderhttp.Forward; mode++ {
				path := "/" + strconv.Itoa(int(mode))
				b.mux.Handle(path, leaderhttp.Gate(b.l, gateName, say("next"), leaderhttp.GateOptions{Mode: mode}))
				resp, body := do(t, "POST", b.server.URL+path, "")
				assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
				assert.NotContains(t, resp.Header, leaderhttp.HeaderLeader)
				assert.Equal(t, "1", resp.Header.Get("Retry-After"))
				assert.JSONEq(t, `{"error":{"code":"NOT_LEADER","message":"this process does not lead \"orders\"",`+
					`"leader_node":"","leader_addr":"","term":0,"age_ms":null}}`, body)
			}
		})
	}
}

func TestGatePanicsOnMisuse(t *testing.T) {
	a := newGateFleet(t).node("a", leader.Options{})
	next := say("next")
	for want, gate := range map[string]func(){
		"the Leader of a gate is nil":           func() { leaderhttp.Gate(nil, gateName, next, leaderhttp.GateOptions{}) },
		"the handler behind a gate is nil":      func() { leaderhttp.Gate(a.l, gateName, nil, leaderhttp.GateOptions{}) },
		`the name of a gate is "": it must`:     func() { leaderhttp.Gate(a.l, "", next, leaderhttp.GateOptions{}) },
		`the name of a gate is "\x00": it must`: func() { leaderhttp.Gate(a.l, "\x00", next, leaderhttp.GateOptions{}) },
		`the name of a gate is "\xff": it must`: func() { leaderhttp.Gate(a.l, "\xff", next, leaderhttp.GateOptions{}) },
		`the name of a gate is "xxxxx`: func() {
			leaderhttp.Gate(a.l, strings.Repeat("x", 1025), next, leaderhttp.GateOptions{})
		},
		"GateOptions.Mode is 3: it must":       func() { leaderhttp.Gate(a.l, gateName, next, leaderhttp.GateOptions{Mode: 3}) },
		"GateOptions.Mode is -1: it must":      func() { leaderhttp.Gate(a.l, gateName, next, leaderhttp.GateOptions{Mode: -1}) },
		`GateOptions.Scheme is "ftp": it must`: func() { leaderhttp.Gate(a.l, gateName, next, leaderhttp.GateOptions{Scheme: "ftp"}) },
	} {
		func() {
			defer func() { assert.Contains(t, fmt.Sprint(recover()), "leaderhttp: "+want) }()
			gate()
		}()
	}
}

// toldKey is for the term of a task that was told to stop before a request came.
type toldKey struct{}

// C41: gate, term and the context of the task, in one tight loop, over releases, losses and new terms.
func TestGateIsNeverOpenWithoutLeadership(t *testing.T) {
	f := newGateFleet(t)
	a := f.node("a", leader.Options{})
	var task atomic.Pointer[context.Context] // of the last task
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		for ctx.Err() == nil {
			own, stop := context.WithTimeout(ctx, 30*time.Millisecond)
			_ = a.l.Run(own, gateName, func(ctx context.Context) error {
				task.Store(&ctx)
				<-ctx.Done()
				time.Sleep(20 * time.Millisecond) // it drains
				return nil
			})
			stop()
		}
	}()
	var passed, draining, wrong atomic.Int64
	gate := leaderhttp.Gate(a.l, gateName, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		passed.Add(1)
		term, ok := leader.TermOf(r.Context())
		if !ok || term == 0 || term == r.Context().Value(toldKey{}) {
			wrong.Add(1)
		}
	}), leaderhttp.GateOptions{})
	clients := make(chan struct{})
	for range 2 {
		go func() { // ends with ctx
			defer func() { clients <- struct{}{} }()
			for ctx.Err() == nil {
				of := ctx
				if last := task.Load(); last != nil && (*last).Err() != nil {
					term, _ := leader.TermOf(*last)
					of = context.WithValue(ctx, toldKey{}, term)
					draining.Add(1)
				}
				gate.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(of, "POST", "/", nil))
			}
		}()
	}
	for range 20 {
		time.Sleep(25 * time.Millisecond) // the pace of the losses
		_ = os.RemoveAll(f.path + ".leader")
	}
	require.Eventually(t, func() bool { return passed.Load() > 1000 && draining.Load() > 1000 }, soon, often)
	cancel()
	<-ended
	<-clients
	<-clients
	assert.Zero(t, wrong.Load())
}

// plainWriter can do no more than it must.
type plainWriter struct {
	header http.Header
	bytes.Buffer
	code int
}

func (w *plainWriter) Header() http.Header  { return w.header }
func (w *plainWriter) WriteHeader(code int) { w.code = code }

func TestGateBeforeAWriterThatCanDoLittle(t *testing.T) {
	a := newGateFleet(t).node("a", leader.Options{})
	a.lead(t)
	gate := leaderhttp.Gate(a.l, gateName, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		w.(http.Flusher).Flush()
		assert.ErrorIs(t, http.NewResponseController(w).Flush(), errors.ErrUnsupported)
		_, _, err := http.NewResponseController(w).Hijack()
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorIs(t, http.NewResponseController(w).SetWriteDeadline(time.Time{}), errors.ErrUnsupported)
		for _, write := range []func() (int64, error){
			func() (int64, error) { n, err := io.WriteString(w, "one "); return int64(n), err },
			func() (int64, error) { return w.(io.ReaderFrom).ReadFrom(strings.NewReader("two ")) },
			func() (int64, error) { n, err := w.Write([]byte("six ")); return int64(n), err },
		} {
			n, err := write()
			assert.NoError(t, err)
			assert.Equal(t, int64(4), n)
		}
	}), leaderhttp.GateOptions{})
	w := &plainWriter{header: http.Header{}}
	gate.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/", nil))
	assert.Equal(t, "one two six ", w.String())
	assert.Equal(t, http.StatusTeapot, w.code)
}

// The server removes the files of a form only from the request that it has made, and not once its connection is cut off.
func TestGateLeavesNoFilesOfForms(t *testing.T) {
	for name, cut := range map[string]bool{"answered": false, "cut off": true} {
		t.Run(name, func(t *testing.T) { leavesNoFilesOfForms(t, cut) })
	}
}

func leavesNoFilesOfForms(t *testing.T, cut bool) {
	t.Helper()
	f := newGateFleet(t)
	a := f.node("a", leader.Options{})
	a.lead(t)
	dir, seen := t.TempDir(), make(chan struct{})
	t.Setenv("TMPDIR", dir)
	a.gate(func(w http.ResponseWriter, r *http.Request) {
		assert.NoError(t, r.ParseMultipartForm(1))
		files, err := os.ReadDir(dir)
		assert.NoError(t, err)
		assert.NotEmpty(t, files)
		if cut {
			assert.NoError(t, http.NewResponseController(w).Flush())
			f.lose()
			<-seen
		}
	}, leaderhttp.GateOptions{Grace: -1})
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	part, err := m.CreateFormFile("file", "name")
	require.NoError(t, err)
	_, err = part.Write(make([]byte, 11<<20))
	require.NoError(t, err)
	require.NoError(t, m.Close())
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.server.URL, &form)
	require.NoError(t, err)
	r.Header.Set("Content-Type", m.FormDataContentType())
	resp, err := gateClient(t).Do(r)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	assert.Equal(t, cut, err != nil)
	_ = resp.Body.Close()
	close(seen)
	require.Eventually(t, func() bool {
		files, err := os.ReadDir(dir)
		return err == nil && len(files) == 0
	}, soon, often)
}

func TestGateServesFiles(t *testing.T) {
	f := newGateFleet(t)
	a := f.node("a", leader.Options{})
	a.lead(t)
	content := bytes.Repeat([]byte("0123456789"), 1<<20)
	path := f.path + ".content"
	require.NoError(t, os.WriteFile(path, content, 0o600))
	a.gate(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, path) }, leaderhttp.GateOptions{})
	_, body := do(t, "GET", a.server.URL, "")
	assert.Equal(t, string(content), body)
	_, body = do(t, "GET", a.server.URL, "", "Range", "bytes=10-14")
	assert.Equal(t, "01234", body)
}

func TestGateRefusalIsJSONForAnyName(t *testing.T) {
	a := newGateFleet(t).node("a", leader.Options{})
	name := "</script>\r\nX: y\u2028\""
	a.mux.Handle("/", leaderhttp.Gate(a.l, name, say("next"), leaderhttp.GateOptions{}))
	resp, body := do(t, "POST", a.server.URL, "")
	assert.NotContains(t, resp.Header, "X")
	var got struct {
		Error struct{ Code, Message string }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	assert.Equal(t, fmt.Sprintf("this process does not lead %q", name), got.Error.Message)
	assert.NotContains(t, body, "<")
}
