// SPDX-License-Identifier: MIT

package leadergrpc

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Stream returns the interceptor for streams. Only a stream of the server, which is asked for with one message, is followed,
// and only if it was refused before anything was received. What a client has put into a stream of its own might have to be
// kept without end to be repeated: such a stream gets the refusal.
func (f *Follower) Stream() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		first, err := open(ctx, desc, cc, method, opts...)
		if err != nil || desc.ClientStreams || !desc.ServerStreams || followed(ctx) {
			return first, err
		}
		s := &followStream{current: first}
		s.next = func(err error, trailer metadata.MD) (grpc.ClientStream, func(), error) {
			c := f.next(err, trailer)
			if c == nil {
				return nil, nil, nil
			}
			stream, err := c.cc.NewStream(mark(ctx), desc, method, once(opts)...)
			if err != nil {
				c.release()
				return nil, nil, err
			}
			release := sync.OnceFunc(c.release)
			stop := context.AfterFunc(ctx, release) // a stream that is not read to its end has a context that ends
			return stream, func() { stop(); release() }, nil
		}
		return s, nil
	}
}

// followStream is a stream of the server that moves on to another one if it is refused.
type followStream struct {
	next func(err error, trailer metadata.MD) (grpc.ClientStream, func(), error)

	mu      sync.Mutex // one goroutine may send while another receives
	current grpc.ClientStream
	request any
	asked   bool // the request and the end of it were sent

	// Of the goroutine that receives.
	settled bool   // the first message or error is known
	release func() // the connection that was followed; nil if none was
}

func (s *followStream) stream() grpc.ClientStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

func (s *followStream) Header() (metadata.MD, error) { return s.stream().Header() }
func (s *followStream) Trailer() metadata.MD         { return s.stream().Trailer() }
func (s *followStream) Context() context.Context     { return s.stream().Context() }

func (s *followStream) SendMsg(m any) error {
	s.mu.Lock()
	s.request = m
	s.mu.Unlock()
	return s.stream().SendMsg(m)
}

func (s *followStream) CloseSend() error {
	err := s.stream().CloseSend()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = s.request != nil
	return err
}

func (s *followStream) RecvMsg(m any) error {
	err := s.stream().RecvMsg(m)
	if err != nil && !s.settled {
		err = s.follow(m, err)
	}
	s.settled = true
	if err != nil && s.release != nil {
		s.release()
	}
	return err
}

// follow moves on to the stream that a refusal leads to, and returns what its first RecvMsg returns; refused if there is none.
func (s *followStream) follow(m any, refused error) error {
	s.mu.Lock()
	first, request, asked := s.current, s.request, s.asked
	s.mu.Unlock()
	if !asked {
		return refused
	}
	stream, release, err := s.next(refused, first.Trailer())
	switch {
	case err != nil:
		return err
	case stream == nil:
		return refused
	}
	s.release = release
	s.mu.Lock()
	s.current = stream
	s.mu.Unlock()
	// An error of these two is that of RecvMsg as well, which says more.
	if stream.SendMsg(request) == nil {
		_ = stream.CloseSend()
	}
	return stream.RecvMsg(m)
}
