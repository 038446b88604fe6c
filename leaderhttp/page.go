// SPDX-License-Identifier: MIT

package leaderhttp

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/oxygenhub/leader"
)

// The parts of the page. The policy names style and script by their hashes, and a nonce would not do: the script parses
// the next page, whose style would have another one.
var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{ //nolint:gochecknoglobals // a constant that Go cannot express
	"show": show, "span": span, "ms": time.Duration.Milliseconds,
}).Parse(pageHTML))

// Page returns a handler for one HTML page that shows people who leads what: every name with its leader, the state of this
// process, and the last changes. The page is self-contained, works without JavaScript, and refreshes itself with it.
//
// It is made of what [leader.Leader.Status] and [leader.Leader.Known] say, and never waits for the database. The changes are
// the last 50 that this process has seen since Page was called, so call it once per Leader, early: it keeps a
// [leader.Leader.Watch] until Resign, and no goroutine. Page shows the texts of errors, those of tasks included: let only
// those see it who may read the log.
func Page(l *leader.Leader) http.Handler {
	p := &page{l: l, began: time.Now(), policy: policy()}
	// Nobody reads the channel between two requests: it is itself the bounded buffer, and drops the oldest.
	p.events = l.Watch(context.Background())
	return p
}

type page struct {
	l      *leader.Leader
	began  time.Time
	events <-chan leader.Event
	policy string

	mu   sync.Mutex
	last []leader.Event // the newest at the end
}

// policy lets the page run and show nothing but its own.
func policy() string {
	hash := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src " + hash(pageJS) + "; style-src " + hash(pageCSS) +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// mostChanges is how many changes are shown.
const mostChanges = 50

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	view := newPageView(p.l, p.began, p.changes()) //nolint:contextcheck // Known asks in the background, and outlives the request
	view.Style, view.Script = template.CSS(pageCSS), template.JS(pageJS)
	var body bytes.Buffer
	if err := pageTemplate.Execute(&body, view); err != nil { // never: the template is tested
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", p.policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Length", strconv.Itoa(body.Len()))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body.Bytes()) // who has gone gets nothing
	}
}

// changes takes what has happened since it was last called, and returns the last changes, newest first.
func (p *page) changes() []leader.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drainLocked()
	if more := len(p.last) - mostChanges; more > 0 {
		p.last = slices.Delete(p.last, 0, more)
	}
	newest := slices.Clone(p.last)
	slices.Reverse(newest)
	return newest
}

func (p *page) drainLocked() {
	for {
		select {
		case e, open := <-p.events:
			if !open { // after Resign, with all that it had to say
				p.events = nil
				return
			}
			p.last = append(p.last, e)
		default:
			return
		}
	}
}
