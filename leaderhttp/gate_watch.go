// SPDX-License-Identifier: MIT

package leaderhttp

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/oxygenhub/leader"
)

// lookAgain is how often a watch looks that nobody tells of the end any more.
const lookAgain = 200 * time.Millisecond

// watch calls cut some time after a leadership has ended, unless it is stopped. It has no goroutine that waits.
type watch struct {
	joined *leader.Joined
	grace  time.Duration
	cut    func()
	leave  func() bool // joined

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func newWatch(joined *leader.Joined, grace time.Duration, cut func()) *watch {
	w := &watch{joined: joined, grace: grace, cut: cut}
	w.leave = context.AfterFunc(joined, w.look)
	return w
}

// look is called when joined has ended. That may be because the request has: the handler of a hijacked connection has
// returned, or a client sends no more and still reads.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.stopped:
	case leader.Confirm(w.joined) != nil:
		w.timer = time.AfterFunc(w.grace, w.cut)
	default:
		w.timer = time.AfterFunc(lookAgain, w.look)
	}
}

// stop does not wait for a cut that is going on. No watch has nothing to stop.
func (w *watch) stop() {
	if w == nil {
		return
	}
	w.leave()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// hijacked is a connection under a watch.
type hijacked struct {
	net.Conn
	watch *watch
}

func (h *hijacked) Close() error {
	h.watch.stop()
	return h.Conn.Close()
}

// CloseWrite is what httputil.ReverseProxy looks for.
func (h *hijacked) CloseWrite() error {
	if half, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
