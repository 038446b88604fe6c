// SPDX-License-Identifier: MIT

package leadergrpc

import (
	"context"

	"github.com/oxygenhub/leader"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errHandlerReturned is for a goroutine of a handler that goes on without it.
var errHandlerReturned = status.Error(codes.Internal, "the handler of the stream has returned")

// stream is a stream that does not outlive the leadership j.
type stream struct {
	grpc.ServerStream
	gate *gate
	j    *leader.Joined
	over error // what SendMsg and RecvMsg return when the leadership is over: a refusal

	returned chan struct{} // closed when the handler has returned
	sender   *caller
	receiver *caller
}

func newStream(g *gate, ss grpc.ServerStream, j *leader.Joined) *stream {
	returned := make(chan struct{})
	return &stream{
		ServerStream: ss,
		gate:         g,
		j:            j,
		over:         &endedError{gate: g},
		returned:     returned,
		sender:       &caller{call: ss.SendMsg, returned: returned},
		receiver:     &caller{call: ss.RecvMsg, returned: returned},
	}
}

// end lets the callers go: one that waits ends at once, one that is in a call when gRPC has ended the stream.
func (s *stream) end() { close(s.returned) }

func (s *stream) Context() context.Context { return s.j }

// SendMsg returns nil for a message that gRPC has taken, also if the leadership is over by then.
func (s *stream) SendMsg(m any) error {
	if s.j.Err() != nil {
		return s.ended()
	}
	err, ok := s.sender.do(s.j.Done(), m)
	if !ok || err != nil && s.j.Err() != nil {
		return s.ended()
	}
	return err
}

// RecvMsg hands nothing to the handler that it would accept without leadership.
func (s *stream) RecvMsg(m any) error {
	if s.j.Err() != nil {
		return s.ended()
	}
	err, ok := s.receiver.do(s.j.Done(), m)
	if !ok || s.j.Err() != nil {
		return s.ended()
	}
	return err
}

// ended is the error of a call on a stream whose context has ended.
func (s *stream) ended() error {
	if call := s.ServerStream.Context(); !lost(call, s.j) {
		return status.FromContextError(call.Err()).Err()
	}
	return s.over
}

// endedError is a refusal for the handler. Most only pass it on, so that nobody asks who leads until somebody reads it.
type endedError struct{ gate *gate }

func (e *endedError) Error() string { return e.GRPCStatus().String() }
func (e *endedError) GRPCStatus() *status.Status {
	return status.Convert(e.gate.refusal(e.gate.hint(), true))
}

// caller makes one kind of call in a goroutine of its own, one after another, so that a call that is blocked can be left.
type caller struct {
	call     func(m any) error
	returned <-chan struct{}

	in  chan any // nil until the first call
	out chan result
}

// result of a call. A panic is for the goroutine of the handler: there may be somebody who recovers it.
type result struct {
	err      error
	panicked any
}

// do calls with m and returns its error, and false when done is closed first: then the call goes on, and do must not be called
// again.
func (c *caller) do(done <-chan struct{}, m any) (err error, ok bool) {
	if c.in == nil {
		c.in, c.out = make(chan any), make(chan result, 1)
		go c.run() // ends when the handler has returned, and gRPC has ended the stream
	}
	select {
	case c.in <- m:
	case <-c.returned:
		return errHandlerReturned, true
	}
	var r result
	select {
	case r = <-c.out:
	case <-done:
		select {
		case r = <-c.out: // both have happened
		default:
			return nil, false
		}
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.err, true
}

func (c *caller) run() {
	for {
		select {
		case m := <-c.in:
			select {
			case <-c.returned: // nothing is begun on a stream whose handler has returned
				c.out <- result{err: errHandlerReturned}
				return
			default:
			}
			c.out <- c.result(m)
		case <-c.returned:
			return
		}
	}
}

func (c *caller) result(m any) (r result) {
	defer func() { r.panicked = recover() }()
	return result{err: c.call(m)}
}
