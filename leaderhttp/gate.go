// SPDX-License-Identifier: MIT

package leaderhttp

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/oxygenhub/leader"
)

const (
	// HeaderLeader is the header of a refusal and of a redirect that has the address of the leader.
	HeaderLeader = "Leader-Addr"
	// HeaderForwarded is the header of a request that a gate has forwarded: the node that did, escaped as in the path of a
	// URL. No gate forwards or redirects such a request again.
	HeaderForwarded = "Leader-Forwarded"
)

// Mode is what a gate does with a request that only the leader may serve, where this process does not lead.
type Mode int

const (
	// Refuse answers 503, with the address of the leader.
	Refuse Mode = iota
	// Redirect answers 307, to the same path and query at the leader. The client must be able to reach that address.
	Redirect
	// Forward passes the request on to the leader, and its answer back.
	Forward
)

// GateOptions of a gate. The zero value is ready to use.
type GateOptions struct {
	// Reads reports whether a process that does not lead may serve r. Default: GET, HEAD and OPTIONS, but for those that
	// upgrade the connection, as to a WebSocket, which can do anything.
	Reads func(r *http.Request) bool
	// Standby serves what Reads lets through. Default: the handler behind the gate.
	Standby http.Handler
	// Mode is what becomes of the rest. Default Refuse.
	Mode Mode
	// Scheme is that of addresses without one: leader.Options.Addr may be host:port, or a URL with http or https, whose path
	// is put before that of the request. Default "http".
	Scheme string
	// Transport is what Forward uses. Default: a clone of http.DefaultTransport that asks no proxy.
	Transport http.RoundTripper
	// Grace is for how long after the end of its leadership a stream or a hijacked connection can still be written to, as
	// for a last event: then it is closed. It should be less than SessionTimeout - Lease. Default 1 s; negative: none.
	Grace time.Duration
}

// gate lets requests pass while l leads name.
type gate struct {
	l       *leader.Leader
	name    string
	next    http.Handler
	standby http.Handler
	reads   func(*http.Request) bool
	mode    Mode
	grace   time.Duration

	scheme    string
	transport http.RoundTripper
	node      string   // our own
	self      *url.URL // our own address; nil if there is none
}

// Gate returns a handler that hands a request to next while this process leads name. It asks no one, and adds one
// allocation, two with a body, and no lock that requests share. The request that next gets has a context of that leadership,
// as [leader.Leader.Join] makes it, and no more can be read of its body once the leadership is over: that is an error which
// wraps leader.ErrLost. A read that waits then returns it, too, if the body has more than 64 KiB or no Content-Length. A
// request may pass until the task is told to stop, and its leadership lasts until the task has returned: so a task that waits
// for the requests it knows of hands over without a break.
//
// A short answer may still be written after the end. A stream is one that was flushed, or that has more than 64 KiB: from
// the end on its writes return an error that wraps leader.ErrLost, though what they write is still sent for
// GateOptions.Grace; then the connection is closed, on HTTP/2 the stream is reset. A handler that has got such an error may have
// broken off: when it returns, the gate panics with http.ErrAbortHandler, so that the client does not take its answer for whole. Likewise a hijacked connection is
// closed after Grace, also if its handler has returned by then; Hijack fails after the end. This needs a ResponseWriter that
// can hijack and set deadlines, or unwraps to one, as those of net/http do.
//
// Where this process does not lead, requests that only read go to next, too, with no leadership in their context, and the
// rest gets what GateOptions.Mode says. Whom that names is from [leader.Leader.Elsewhere]; it is nobody if it is not known that
// another process leads now, if that one's leader.Options.Addr is empty, no http address, or our own. Then, and for a request
// that another gate has forwarded, Redirect and Forward do what Refuse does.
//
// Forward keeps the Host of the request, its path and query as they came in, and its Forwarded and X-Forwarded headers, to
// which it adds the client. It streams both ways, and passes upgrades on. A request that is being forwarded ends
// when its leader is not known to lead any more, nor after Grace.
//
// Like http.ServeMux, Gate panics if it is given what no valid program gives: no Leader, no next, a name that
// Run would not take, an unknown Mode, or another Scheme than http and https.
func Gate(l *leader.Leader, name string, next http.Handler, opts GateOptions) http.Handler {
	switch {
	case l == nil:
		panic("leaderhttp: the Leader of a gate is nil")
	case next == nil:
		panic("leaderhttp: the handler behind a gate is nil")
	case name == "" || len(name) > 1024 || !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		panic(fmt.Sprintf("leaderhttp: the name of a gate is %.50q: it must be 1 to 1,024 bytes of UTF-8 without NUL", name))
	case opts.Mode < Refuse || opts.Mode > Forward:
		panic(fmt.Sprintf("leaderhttp: GateOptions.Mode is %d: it must be Refuse, Redirect or Forward", opts.Mode))
	case opts.Scheme != "" && opts.Scheme != "http" && opts.Scheme != "https":
		panic(fmt.Sprintf("leaderhttp: GateOptions.Scheme is %q: it must be http or https", opts.Scheme))
	}
	own := l.Status()
	g := &gate{
		l: l, name: name, next: next, standby: opts.Standby, reads: opts.Reads, mode: opts.Mode,
		grace:     max(0, cmp.Or(opts.Grace, time.Second)),
		scheme:    cmp.Or(opts.Scheme, "http"),
		transport: opts.Transport,
		node:      own.Node,
	}
	g.self, _ = target(own.Addr, g.scheme)
	if g.standby == nil {
		g.standby = next
	}
	if g.reads == nil {
		g.reads = onlyReads
	}
	if g.transport == nil && g.mode == Forward {
		g.transport = transport()
	}
	return g
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{gate: g, rw: w}
	var leads bool
	if c.joined, leads = g.l.Join(r.Context(), g.name); !leads {
		g.stand(w, r)
		return
	}
	c.req = *r.WithContext(&c.joined) //nolint:contextcheck // joined is of r. Inlined: what WithContext makes stays on the stack
	if r.Body != nil && r.Body != http.NoBody {
		c.body = newBody(c, r)
		c.req.Body = c.body
	}
	defer c.end(r) //nolint:contextcheck // joined is of r
	g.next.ServeHTTP(c, &c.req)
	if c.failed() { // what was sent is not whole, and must not look so
		panic(http.ErrAbortHandler)
	}
}

// stand serves r where this process does not lead.
func (g *gate) stand(w http.ResponseWriter, r *http.Request) {
	if g.reads(r) {
		g.standby.ServeHTTP(w, r)
		return
	}
	h := g.hint() //nolint:contextcheck // Known asks no one
	switch {
	case h.to == nil || g.mode == Refuse || len(r.Header.Values(HeaderForwarded)) > 0:
		early(w, r)
		g.refuse(w, h)
	case g.mode == Redirect:
		early(w, r)
		g.redirect(w, r, h)
	default:
		g.forward(w, r, h)
	}
}

// onlyReads is the default of GateOptions.Reads. An upgrade to HTTP/2 is none that a handler gets to see.
func onlyReads(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return !slices.ContainsFunc(r.Header["Upgrade"], func(to string) bool { return to != "" && !strings.EqualFold(to, "h2c") })
	}
	return false
}
