// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderhttp"
)

// book has the addresses of the processes, as a load balancer would. It is not told who leads.
type book struct {
	mu    sync.Mutex
	addrs map[string]string // by name
	next  int
}

func newBook() *book { return &book{addrs: map[string]string{}} }

func (b *book) put(name, addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addrs[name] = addr
}

// any returns the address of one process after another.
func (b *book) any() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := slices.Sorted(maps.Keys(b.addrs))
	if len(names) == 0 {
		return ""
	}
	b.next++
	return b.addrs[names[b.next%len(names)]]
}

// ack is a write that was acknowledged, by whom and under which term.
type ack struct {
	key, value, node string
	term             leader.Term
}

// answer is what came of one request.
type answer struct {
	status int
	header http.Header
	body   string
}

// request sends one request to one process, and does not follow a redirect.
func request(ctx context.Context, method, addr, path, body string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text)}, err
}

// patience is how long the client waits for an answer. No process that runs makes it wait for so long.
const patience = 10 * time.Second

// hint is where to go instead: of a refusal or a redirect.
func (a answer) hint() string {
	if to, err := url.Parse(a.header.Get("Location")); err == nil && a.status == http.StatusTemporaryRedirect {
		return to.Host
	}
	return a.header.Get(leaderhttp.HeaderLeader)
}

// write puts value until it is acknowledged. It begins anywhere, goes where it is sent to, and after a failure somewhere
// else: that value may be written twice, which is no harm.
func write(ctx context.Context, b *book, key, value string, each func(addr string, begun time.Time, a answer, err error)) (ack, error) {
	to, sent, last := b.any(), false, errors.New("nobody is there")
	for ctx.Err() == nil {
		begun := time.Now()
		a, err := request(ctx, http.MethodPut, to, "/kv/"+key, value)
		each(to, begun, a, err)
		switch {
		case err == nil && a.status == http.StatusNoContent:
			term, err := strconv.ParseInt(a.header.Get("Served-Under"), 10, 64)
			return ack{key, value, a.header.Get("Served-By"), leader.Term(term)}, err
		case err == nil && a.hint() != "" && !sent: // one hop, so that two who point at each other do no harm
			to, sent = a.hint(), true
			continue
		case err == nil:
			err = fmt.Errorf("%d: %s", a.status, a.body)
		}
		last = err
		to, sent = b.any(), false
		select {
		case <-time.After(50 * time.Millisecond): // Retry-After says a second, which is what a program in no hurry waits
		case <-ctx.Done():
		}
	}
	return ack{}, fmt.Errorf("write %s=%s: %w: last: %w", key, value, ctx.Err(), last)
}
