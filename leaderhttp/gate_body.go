// SPDX-License-Identifier: MIT

package leaderhttp

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/oxygenhub/leader"
)

// isLong reports whether the body of r may take long to come in.
func isLong(r *http.Request) bool { return r.ContentLength < 0 || r.ContentLength > long }

// early has an answer sent that does not read the body of r. Else net/http waits for the body first, which a client may send bit
// by bit for hours.
func early(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 && isLong(r) && http.NewResponseController(w).EnableFullDuplex() == nil {
		w.Header().Set("Connection", "close") // else net/http would use it again, and panic there
	}
}

// body is what a handler reads of a request: nothing that has come in after the end of the leadership. If it is long, or nobody knows
// how long, a read that waits then is ended.
type body struct {
	io.ReadCloser
	call    *call
	reading atomic.Bool
	slow    *time.Timer // runs arm, by when most handlers have returned; nil: a short body
	watch   *watch      // guarded by call.mu
}

func newBody(c *call, r *http.Request) *body {
	b := &body{ReadCloser: r.Body, call: c}
	if isLong(r) {
		b.slow = time.AfterFunc(lookAgain, b.arm)
	}
	return b
}

func (b *body) Read(p []byte) (int, error) {
	b.reading.Store(true) // before Confirm: else cut might look between the two
	defer b.reading.Store(false)
	if err := leader.Confirm(&b.call.joined); err != nil { // it might wait for long
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	if lost := leader.Confirm(&b.call.joined); lost != nil {
		return 0, lost
	}
	return n, err
}

func (b *body) arm() {
	c := b.call
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		b.watch = newWatch(&c.joined, 0, b.cut)
	}
}

// cut ends the read that waits. Who reads later is told by Confirm.
func (b *body) cut() {
	c := b.call
	c.alive.Lock()
	defer c.alive.Unlock()
	if !c.returned && b.reading.Load() {
		_ = http.NewResponseController(c.rw).SetReadDeadline(time.Unix(1, 0))
	}
}

// watched returns the watch of b, which gets no other one: nil if it has none. It is called with call.mu held.
func (b *body) watched() *watch {
	if b == nil || b.slow == nil {
		return nil
	}
	b.slow.Stop()
	return b.watch
}
