// SPDX-License-Identifier: MIT

package leader

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var errGoodbye = errors.New("the driver gave the connection up: the server sent what is not its protocol")

// endOfPeer reports whether a network error was sent by the other side.
func endOfPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// wire is the raw connection under the driver (and under TLS). Once the session is set up, only end closes it: the
// driver says goodbye by itself after some errors, and that would free locks whose tasks still run.
type wire struct {
	net.Conn
	clock   *clock
	sentAt  atomic.Pointer[reading]
	failure atomic.Pointer[error] // the first one: later ones may look like another
	adopted atomic.Bool
	ending  sync.Once
	ended   chan struct{} // of ending
}

func (w *wire) Write(b []byte) (int, error) {
	if failure := w.failure.Load(); failure != nil {
		return 0, *failure // a goodbye of the driver
	}
	now := w.clock.read()
	w.sentAt.Store(&now)
	n, err := w.Conn.Write(b)
	return n, w.note(err)
}

func (w *wire) Read(b []byte) (int, error) {
	if failure := w.failure.Load(); failure != nil {
		return 0, *failure
	}
	n, err := w.Conn.Read(b)
	return n, w.note(err)
}

// interrupted tells a deadline that has passed, by whatever kind of connection, from the network's own ETIMEDOUT.
func interrupted(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	_, system := errors.AsType[syscall.Errno](err)
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() && !system
}

// note remembers the first error that is not an interrupt of our own.
func (w *wire) note(err error) error {
	if err != nil && !interrupted(err) {
		w.failure.CompareAndSwap(nil, &err)
	}
	return err
}

// SetDeadline is the driver's: it interrupts with a deadline that has passed. One that lies ahead begins its own
// goodbye, after an answer that it does not understand.
func (w *wire) SetDeadline(t time.Time) error {
	if w.adopted.Load() && time.Until(t) > 0 {
		w.failure.CompareAndSwap(nil, &errGoodbye)
	}
	return w.Conn.SetDeadline(t)
}

// Close is the driver's.
func (w *wire) Close() error {
	if w.adopted.Load() {
		return nil
	}
	return w.Conn.Close()
}

// end closes the connection, whoever uses it, and returns what tells that it is closed. It does not wait for that: under a
// configured DialFunc it is code of the user, and TLS says goodbye for up to 5 s.
func (w *wire) end() (ended <-chan struct{}) {
	closed := net.ErrClosed
	w.failure.CompareAndSwap(nil, &closed)
	w.ending.Do(func() {
		w.ended = make(chan struct{})
		go func() { // ends with Close; close of the session waits for it
			defer close(w.ended)
			_ = w.Conn.SetDeadline(time.Unix(1, 0))
			_ = w.Conn.Close()
		}()
	})
	return w.ended
}
