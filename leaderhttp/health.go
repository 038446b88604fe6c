// SPDX-License-Identifier: MIT

package leaderhttp

import (
	"cmp"
	"encoding/json"
	"net/http"
	"path"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/oxygenhub/leader"
)

// HealthOptions of [Health]. The zero value is ready to use.
type HealthOptions struct {
	// Name is the name that /leader is about when it is asked without ?name=, and that leader and term in the bodies of
	// /health and /ready are about. Default: /leader needs ?name=; the others speak of the only name that this process
	// contends for, if it is just one.
	Name string
	// Down is how long the session may be missing, while there is a Run or Try, before /health says so. A session that does
	// not answer is missed after Options.Lease, so a process that is cut off is unhealthy after Lease + Down. Default 30 s;
	// negative: never.
	Down time.Duration
	// Ready says why this process may not take traffic for a reason of its own, as a cache that is not warm; nil if it may.
	// It is called once per probe of /ready, must not block, and its text is shown to whoever asks. Default: always nil.
	Ready func() error
	// Serving reports whether the task of name, which this process leads, has come so far that it can serve. It is called
	// once per probe of /leader, and must not block. Default: always.
	Serving func(name string) bool
}

// Health returns a handler for probes. It serves by the last element of the path, so that it can be mounted anywhere:
//
//   - /health: this process works. 200, or 503 when its session has been missing for longer than HealthOptions.Down while
//     something contends. An idle process is healthy, and one that has resigned: it is ending, and not to be killed for it.
//   - /ready: this process may take traffic, and a standby may. 200, or 503 when it is unhealthy, has resigned, or
//     HealthOptions.Ready says no.
//   - /leader?name=: 200 only while this process leads the name and, by HealthOptions.Serving, can serve. 503 elsewhere, 400
//     without a name.
//   - /status: [leader.Leader.Status] and [leader.Leader.Known] as JSON, always with 200.
//
// The body is JSON: status, role (leader, standby, idle or resigned), node_id, and of the name in question its leader,
// leader_addr and term, empty if nobody is known to lead, and age_ms, how old that knowledge is. There are no connection
// strings in it, but node names and, in /status alone, the texts of errors. GET and HEAD only; nothing may be cached.
//
// No probe waits for the database. Those that tell of a leader elsewhere have it asked in the background, as
// [leader.Leader.Known] says: once every Options.Retry, however many probes there are.
func Health(l *leader.Leader, opts HealthOptions) http.Handler {
	opts.Down = cmp.Or(opts.Down, 30*time.Second)
	return &health{l, opts}
}

type health struct {
	l    *leader.Leader
	opts HealthOptions
}

func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		writeProbe(w, r, http.StatusMethodNotAllowed, probe{Status: "method_not_allowed"})
		return
	}
	name := cmp.Or(r.URL.Query().Get("name"), h.opts.Name)
	if len(name) > 1024 || !utf8.ValidString(name) {
		writeProbe(w, r, http.StatusBadRequest, probe{Status: "bad_name", Reason: "a name is UTF-8 text of up to 1,024 bytes"})
		return
	}
	switch path.Base(r.URL.Path) {
	case "health":
		h.health(w, r, name) //nolint:contextcheck // Known asks in the background, and outlives the request
	case "ready":
		h.ready(w, r, name) //nolint:contextcheck // Known asks in the background, and outlives the request
	case "leader":
		h.leader(w, r, name) //nolint:contextcheck // Known asks in the background, and outlives the request
	case "status":
		writeProbe(w, r, http.StatusOK, statusOf(h.l)) //nolint:contextcheck // Known asks in the background, and outlives the request
	default:
		writeProbe(w, r, http.StatusNotFound, probe{Status: "not_found", Reason: "there are /health, /ready, /leader?name= and /status"})
	}
}

func (h *health) health(w http.ResponseWriter, r *http.Request, name string) {
	s := h.l.Status()
	p := h.probe(s, name)
	if reason := h.unhealthy(s); reason != "" {
		p.Status, p.Reason = "unhealthy", reason
		writeProbe(w, r, http.StatusServiceUnavailable, p)
		return
	}
	writeProbe(w, r, http.StatusOK, p)
}

func (h *health) ready(w http.ResponseWriter, r *http.Request, name string) {
	s := h.l.Status()
	p := h.probe(s, name)
	if reason := h.unhealthy(s); reason != "" {
		p.Status, p.Reason = "unhealthy", reason
	} else if s.Resigned {
		p.Status, p.Reason = "not_ready", "this process has resigned"
	} else if err := h.notReady(); err != nil {
		p.Status, p.Reason = "not_ready", err.Error()
	} else {
		writeProbe(w, r, http.StatusOK, p)
		return
	}
	writeProbe(w, r, http.StatusServiceUnavailable, p)
}

func (h *health) notReady() error {
	if h.opts.Ready == nil {
		return nil
	}
	return h.opts.Ready()
}

func (h *health) leader(w http.ResponseWriter, r *http.Request, name string) {
	if name == "" {
		writeProbe(w, r, http.StatusBadRequest, probe{Status: "bad_name", Reason: "say which: /leader?name="})
		return
	}
	serving := h.l.IsLeading(name) && (h.opts.Serving == nil || h.opts.Serving(name))
	// After Serving, which may have taken its time: role and code are of one look.
	p := h.probe(h.l.Status(), name)
	switch {
	case p.Role != roleLeader:
		p.Status = "not_leading"
	case !serving:
		p.Status, p.Reason = "not_serving", "it leads, and cannot serve yet"
	default:
		writeProbe(w, r, http.StatusOK, p)
		return
	}
	writeProbe(w, r, http.StatusServiceUnavailable, p)
}

// unhealthy says why this process does not work, or "".
func (h *health) unhealthy(s leader.Status) string {
	if down := missing(s); h.opts.Down > 0 && down > h.opts.Down {
		return "no session for " + down.Round(time.Second).String()
	}
	return ""
}

// missing is for how long there has been no session although something wants one. Status.Since alone does not tell: a
// session is also closed for want of work, and may have been for hours when the next Run comes.
func missing(s leader.Status) time.Duration {
	if s.Connected || s.Resting || s.Resigned || len(s.Tasks) == 0 {
		return 0
	}
	wanted := s.Tasks[0].Since
	for _, t := range s.Tasks[1:] {
		if t.Since.Before(wanted) {
			wanted = t.Since
		}
	}
	if s.Since.After(wanted) {
		wanted = s.Since
	}
	return time.Since(wanted)
}

// The roles of a process.
const (
	roleLeader   = "leader"
	roleStandby  = "standby"
	roleIdle     = "idle"
	roleResigned = "resigned"
)

// probe is the body of an answer.
type probe struct {
	Status     string      `json:"status"`
	Reason     string      `json:"reason,omitempty"`
	Role       string      `json:"role,omitempty"`
	NodeID     string      `json:"node_id,omitempty"`
	Name       string      `json:"name,omitempty"`
	Leader     string      `json:"leader"`
	LeaderAddr string      `json:"leader_addr"`
	Term       leader.Term `json:"term"`
	AgeMS      *int64      `json:"age_ms"` // null: not known
	Connected  bool        `json:"connected"`
}

// probe is what s tells of name. Without a name it is of the only one that this process contends for; if it contends for
// several, the role is that of the process and no leader is told.
func (h *health) probe(s leader.Status, name string) probe {
	if name == "" && len(s.Tasks) == 1 {
		name = s.Tasks[0].Name
	}
	p := probe{Status: "ok", Role: roleIdle, NodeID: s.Node, Name: name, Connected: s.Connected}
	for _, t := range s.Tasks {
		if name != "" && t.Name != name {
			continue
		}
		if h.leads(t) {
			p.Role, p.Term = roleLeader, t.Term
			break
		}
		p.Role = roleStandby
	}
	switch {
	case s.Resigned:
		p.Role = roleResigned
	case name == "":
		p.Term = 0 // of one of several
	case p.Role == roleLeader:
		p.Leader, p.LeaderAddr, p.AgeMS = s.Node, s.Addr, millis(s.ProofAge)
	case p.Role == roleStandby || name == h.opts.Name:
		p.known(h.l.Known(name))
	}
	// The rest are names that the asker has made up: the database is not to be asked for them.
	return p
}

// leads wants both to say so: the snapshot may be older than the end of the lease.
func (h *health) leads(t leader.TaskStatus) bool {
	return t.State == leader.StateLeading && h.l.IsLeading(t.Name)
}

// known adds who leads elsewhere. While a takeover or a release goes on, it is who has the lock, without address and term.
func (p *probe) known(v leader.View) {
	if !v.Time.IsZero() { // also of who nobody knows any more: since when
		p.AgeMS = millis(time.Since(v.Time))
	}
	if v.Err != nil || len(v.Holders) != 1 || !v.Holders[0].Held {
		return
	}
	p.Leader = v.Holders[0].Node
	if v.Holders[0].Current {
		p.LeaderAddr, p.Term = v.Holders[0].Addr, v.Holders[0].Term
	}
}

// millis is nil for what is not known.
func millis(d time.Duration) *int64 {
	if d < 0 {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}

// writeProbe writes body as JSON.
func writeProbe(w http.ResponseWriter, r *http.Request, code int, body any) {
	text, err := json.Marshal(body)
	if err != nil { // never: all bodies are made of texts and numbers
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	text = append(text, '\n')
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // who has gone gets nothing
	}
}
