// SPDX-License-Identifier: MIT

package leaderhttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/oxygenhub/leader"
)

// The codes of errors.
const (
	codeNotLeader   = "NOT_LEADER"
	codeUnreachable = "LEADER_UNREACHABLE"
)

// hint is who leads, as far as this process knows. The zero value says that nobody is known to.
type hint struct {
	node, addr string
	term       leader.Term
	age        time.Duration
	to         *url.URL // addr
}

// hint never names this process: it does not lead, or it would not be asked.
func (g *gate) hint() hint {
	h, age := g.l.Elsewhere(g.name)
	to, ok := target(h.Addr, g.scheme)
	if !h.Held || !ok || g.self != nil && sameServer(to, g.self) {
		return hint{}
	}
	return hint{h.Node, h.Addr, h.Term, age, to}
}

// leads reports whether h is known to lead still. Who has resigned is not told any more: what it forwards goes on until it exits.
func (g *gate) leads(h hint) bool {
	now := g.hint()
	return now.node == h.node && now.term == h.term && now.addr == h.addr || errors.Is(g.l.Known(g.name).Err, leader.ErrResigned)
}

// target makes a URL of what another process has written into the database. It takes no more than the address of a server needs.
func target(addr, scheme string) (*url.URL, bool) {
	if !strings.Contains(addr, "://") {
		addr = scheme + "://" + addr
	}
	u, err := url.Parse(addr)
	switch {
	case err != nil,
		u.Scheme != "http" && u.Scheme != "https",
		u.Hostname() == "" || strings.ContainsFunc(u.Host, notOfHost) || strings.ContainsFunc(addr, notPrintable),
		u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, false
	}
	return u, true
}

func notOfHost(c rune) bool {
	return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:[]%", c)
}

func notPrintable(c rune) bool { return c <= ' ' || c > '~' }

func sameServer(a, b *url.URL) bool {
	return strings.EqualFold(a.Host, b.Host) && strings.TrimSuffix(a.Path, "/") == strings.TrimSuffix(b.Path, "/")
}

// refuse answers that this process does not lead, and that nothing was done.
func (g *gate) refuse(w http.ResponseWriter, h hint) {
	w.Header().Set("Retry-After", "1")
	if h.addr != "" {
		w.Header().Set(HeaderLeader, h.addr)
	}
	fail(w, http.StatusServiceUnavailable, codeNotLeader, fmt.Sprintf("this process does not lead %q", g.name), h)
}

// fail answers with an error.
func fail(w http.ResponseWriter, status int, code, message string, h hint) {
	type text struct {
		Code    string      `json:"code"`
		Message string      `json:"message"`
		Node    string      `json:"leader_node"`
		Addr    string      `json:"leader_addr"`
		Term    leader.Term `json:"term"`
		Age     *int64      `json:"age_ms"` // null: nobody is known to lead
	}
	var age *int64
	if h.node != "" || h.addr != "" {
		age = millis(h.age)
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]text{"error": {code, message, h.node, h.addr, h.term, age}})
}
