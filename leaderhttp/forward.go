// SPDX-License-Identifier: MIT

package leaderhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// lookInterval is how often a forwarded request looks whether its leader still leads.
const lookInterval = 100 * time.Millisecond

var errMoved = errors.New("leaderhttp: the leader that the request was forwarded to is not known to lead any more")

// transport is the default of GateOptions.Transport. It asks no proxy: the leader is one of us.
func transport() http.RoundTripper {
	own, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	own = own.Clone()
	own.Proxy = nil
	own.DisableCompression = true // what comes back goes on as it is
	own.MaxIdleConnsPerHost = 32
	return own
}

// at returns the URL of r at a server. Its path and query are what the client has sent, also behind http.StripPrefix, because
// the leader strips it, too. The path begins with a slash whatever it was: so it can change neither the host, as "@evil" would
// after an address, nor be taken for one, as "//evil" without one.
func at(server *url.URL, r *http.Request) *url.URL {
	asked := r.URL
	if sent, err := url.ParseRequestURI(r.RequestURI); err == nil {
		asked = sent
	}
	path := "/" + strings.TrimPrefix(asked.EscapedPath(), "/")
	u := &url.URL{Scheme: server.Scheme, Host: server.Host, RawQuery: asked.RawQuery}
	u.RawPath = strings.TrimSuffix(server.EscapedPath(), "/") + path
	var err error
	if u.Path, err = url.PathUnescape(u.RawPath); err != nil {
		u.Path, u.RawPath = "/", "" // never: both were parsed
	}
	return u
}

func (g *gate) redirect(w http.ResponseWriter, r *http.Request, h hint) {
	w.Header().Set(HeaderLeader, h.addr)
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, at(h.to, r).String(), http.StatusTemporaryRedirect)
}

// forward passes r on to the leader h.
func (g *gate) forward(w http.ResponseWriter, r *http.Request, h hint) {
	var sent attempt
	ctx, cancel := context.WithCancelCause(httptrace.WithClientTrace(r.Context(), sent.trace()))
	r = r.WithContext(ctx)
	up := &upload{ReadCloser: r.Body}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = up
	}
	watched := make(chan struct{})
	go func() { // ends with ctx
		defer close(watched)
		if g.follow(ctx, h) {
			cancel(errMoved)
			up.end(w)
		}
	}()
	defer func() {
		cancel(nil)
		<-watched
		if up.ended && r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close") // its deadline may have hit what net/http itself reads
		}
	}()
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { g.rewrite(p, h) },
		Transport:     g.transport,
		FlushInterval: -1,
		ModifyResponse: func(*http.Response) error {
			if !up.whole.Load() { // the leader answers while the client still sends
				early(w, r)
			}
			return nil
		},
		ErrorLog: log.New(io.Discard, "", 0), // what breaks off is told to the client
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { //nolint:contextcheck // Known asks no one
			if large := (*http.MaxBytesError)(nil); errors.As(err, &large) { // of who limits bodies before us
				http.Error(w, "request body too large", http.StatusRequestEntityTooLarge)
				return
			}
			early(w, r)
			now := g.hint()
			if sent.nothing(err) {
				g.refuse(w, now)
				return
			}
			message := fmt.Sprintf("the leader of %q did not answer: the request may have been done or not", g.name)
			fail(w, http.StatusBadGateway, codeUnreachable, message, now)
		},
	}
	proxy.ServeHTTP(w, r)
}

// upload is the body of a forwarded request, of which the client may never send more: nobody waits for that once the request has
// ended.
type upload struct {
	io.ReadCloser
	reading, over atomic.Bool
	whole         atomic.Bool // all of it was read
	ended         bool        // a read was
}

func (u *upload) Read(p []byte) (int, error) {
	u.reading.Store(true) // before the look at over: else end might look between the two
	defer u.reading.Store(false)
	if u.over.Load() {
		return 0, errMoved
	}
	n, err := u.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		u.whole.Store(true)
	}
	return n, err
}

// Close lets nobody read any more. It leaves the rest to net/http, which has the answer sent first: to close a body is to read on.
func (u *upload) Close() error {
	u.over.Store(true)
	return nil
}

// end ends the read that waits, and all later ones.
func (u *upload) end(w http.ResponseWriter) {
	u.over.Store(true)
	if u.reading.Load() {
		u.ended = true
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
	}
}

// rewrite makes the request to the leader: what the client has sent, and who forwards it.
func (g *gate) rewrite(p *httputil.ProxyRequest, h hint) {
	p.Out.URL = at(h.to, p.In)
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if said, ok := p.In.Header[name]; ok {
			p.Out.Header[name] = said
		}
	}
	host, proto := p.Out.Header["X-Forwarded-Host"], p.Out.Header["X-Forwarded-Proto"]
	p.SetXForwarded()
	if host != nil { // a proxy before us knows better how the client has asked
		p.Out.Header["X-Forwarded-Host"] = host
	}
	if proto != nil {
		p.Out.Header["X-Forwarded-Proto"] = proto
	}
	p.Out.Header.Set(HeaderForwarded, url.PathEscape(g.node))
}

// follow returns true when a forwarded request is to end: after the time in which the leader may send a last word, when h does
// not lead any more. In that time it may turn out that only this process did not know.
func (g *gate) follow(ctx context.Context, h hint) (moved bool) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for over := false; ; {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
		switch leads := g.leads(h); { //nolint:contextcheck // Known asks no one
		case leads && over:
			over = false
			tick.Reset(lookInterval)
		case leads:
		case over:
			return true
		default:
			over = true
			tick.Reset(max(g.grace, 1))
		}
	}
}

// attempt knows whether anything of a forwarded request was sent.
type attempt struct{ asked, got atomic.Bool }

func (a *attempt) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { a.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { a.got.Store(true) },
	}
}

// nothing reports whether nothing was sent for sure, after err: no connection came about.
func (a *attempt) nothing(err error) bool {
	var op *net.OpError
	return a.asked.Load() && !a.got.Load() || errors.As(err, &op) && op.Op == "dial" && !a.got.Load()
}
