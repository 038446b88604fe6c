// SPDX-License-Identifier: MIT

package leaderhttp

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/oxygenhub/leader"
)

// long is from how many bytes on an answer is taken for a stream, and a body for one that may come slowly.
const long = 64 << 10

// call is a request that a gate has let in: all that it needs, in one piece of memory, but for its body. It is the
// http.ResponseWriter that the handler gets.
type call struct {
	gate   *gate
	rw     http.ResponseWriter
	joined leader.Joined
	req    http.Request // with joined as its context
	body   *body        // of req; nil if it has none

	mu       sync.Mutex // held while rw is written to, so that cut and the handler do not meet there
	head     bool       // of the answer, was written
	size     int64      // written
	stream   *watch     // nil: a short answer
	hijacked bool
	broken   bool  // the handler was told by an error that the leadership is over: it may have broken off
	done     bool  // the handler has returned: nothing becomes a stream any more
	over     error // the stream was cut off

	alive    sync.Mutex // held by cut, so that end waits for it
	returned bool       // of the handler: rw must not be used any more
}

// end is the return of the handler that r was for.
func (c *call) end(r *http.Request) {
	c.mu.Lock()
	stream, reads := c.stream, c.body.watched()
	c.headLocked()
	c.done = true
	c.mu.Unlock()
	if stream != nil || reads != nil {
		stream.stop()
		reads.stop()
		c.alive.Lock()
		c.returned = true
		c.alive.Unlock()
	}
	switch form := c.req.MultipartForm; {
	case form == nil:
	case stream != nil && c.over != nil:
		_ = form.RemoveAll() // the connection was taken from the server
	case r.MultipartForm == nil:
		r.MultipartForm = form // the server removes its files
	}
}

// failed reports whether the handler, which has returned, may have broken its answer off. All of it that there is has been sent.
func (c *call) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken && c.over == nil && !c.hijacked {
		_ = http.NewResponseController(c.rw).Flush()
	}
	return c.broken
}

// Header, WriteHeader and those that follow make call an http.ResponseWriter, and all that one of net/http is.
func (c *call) Header() http.Header { return c.rw.Header() }

func (c *call) WriteHeader(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over == nil {
		if code >= http.StatusOK {
			c.headLocked()
		}
		c.rw.WriteHeader(code)
	}
}

// headLocked comes before the head of the answer, and once more when the handler returns. Of a long body the rest may never come
// once the leadership is over, and only in the head can be said that its connection is closed.
func (c *call) headLocked() {
	if !c.head && c.body != nil && c.body.slow != nil && leader.Confirm(&c.joined) != nil {
		early(c.rw, &c.req)
	}
	c.head = true
}

func (c *call) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.beginLocked(int64(len(p))); err != nil {
		return 0, err
	}
	n, err := c.rw.Write(p)
	return n, c.endLocked(err)
}

// WriteString saves io.WriteString an allocation.
func (c *call) WriteString(s string) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.beginLocked(int64(len(s))); err != nil {
		return 0, err
	}
	n, err := io.WriteString(c.rw, s)
	return n, c.endLocked(err)
}

// ReadFrom lets the kernel copy what is in a file. Any other source may keep it waiting, and cut with it.
func (c *call) ReadFrom(src io.Reader) (int64, error) {
	to, ok := c.rw.(io.ReaderFrom)
	size := fileSize(src)
	if !ok || size < 0 {
		return io.Copy(writer{c}, src)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.beginLocked(size); err != nil {
		return 0, err
	}
	n, err := to.ReadFrom(src)
	return n, c.endLocked(err)
}

// writer hides ReadFrom.
type writer struct{ io.Writer }

// fileSize returns how much src has at most, or -1 if it is no file.
func fileSize(src io.Reader) int64 {
	limit := int64(-1)
	if part, ok := src.(*io.LimitedReader); ok {
		src, limit = part.R, part.N
	}
	f, ok := src.(*os.File)
	if !ok {
		return -1
	}
	info, err := f.Stat()
	switch {
	case err != nil || !info.Mode().IsRegular():
		return -1
	case limit >= 0:
		return min(limit, info.Size())
	}
	return info.Size()
}

// Flush is FlushError for those who do not look at its error.
func (c *call) Flush() { _ = c.FlushError() }

// FlushError makes the answer a stream.
func (c *call) FlushError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return c.over
	}
	c.headLocked()
	c.armLocked()
	return c.endLocked(http.NewResponseController(c.rw).Flush())
}

// Hijack hands out a connection that is closed when the leadership is over, also after the handler has returned.
func (c *call) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := leader.Confirm(&c.joined); err != nil {
		return nil, nil, err
	}
	conn, buffers, err := http.NewResponseController(c.rw).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c.hijacked = true
	own := &hijacked{Conn: conn}
	own.watch = newWatch(&c.joined, c.gate.grace, func() { _ = conn.Close() })
	return own, buffers, nil
}

// Unwrap is for http.ResponseController, which sets deadlines.
func (c *call) Unwrap() http.ResponseWriter { return c.rw }

// beginLocked comes before n bytes are written.
func (c *call) beginLocked(n int64) error {
	if c.over != nil {
		c.broken = true
		return c.over
	}
	c.headLocked()
	if c.size += n; c.size > long {
		c.armLocked()
	}
	return nil
}

// endLocked comes after a write: on a stream, the end of the leadership is an error.
func (c *call) endLocked(err error) error {
	if c.stream != nil {
		if lost := leader.Confirm(&c.joined); lost != nil {
			c.broken = true
			return lost
		}
	}
	return err
}

// armLocked makes the answer a stream, which does not outlive the leadership.
func (c *call) armLocked() {
	if c.stream == nil && !c.hijacked && !c.done {
		c.stream = newWatch(&c.joined, c.gate.grace, c.cut)
	}
}

// cut closes the connection of a stream, whatever its handler is doing.
func (c *call) cut() {
	if conn := c.cutOff(); conn != nil {
		_ = conn.Close() // with no lock held: TLS takes its time to say goodbye
	}
}

// cutOff takes the connection away from the handler, where there is one per request.
func (c *call) cutOff() net.Conn {
	c.alive.Lock()
	defer c.alive.Unlock()
	if c.returned {
		return nil
	}
	// This ends a write that is going on, which has mu. On HTTP/2 it ends the stream, and nothing else is needed. net/http may read in
	// it: the rest of the request, before the first of the answer.
	w := http.NewResponseController(c.rw)
	_ = w.SetWriteDeadline(time.Unix(1, 0))
	_ = w.SetReadDeadline(time.Unix(1, 0))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = leader.Confirm(&c.joined)
	if c.hijacked {
		return nil // it has a watch of its own
	}
	conn, _, err := w.Hijack()
	if err != nil {
		return nil
	}
	return conn
}
