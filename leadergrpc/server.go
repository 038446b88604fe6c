// SPDX-License-Identifier: MIT

package leadergrpc

import (
	"context"
	"errors"

	"github.com/oxygenhub/leader"
	"google.golang.org/grpc"
)

// UnaryServerInterceptor lets calls pass while this process leads name, and refuses the others with codes.Unavailable and
// [Reason], but for the reads of opts. A handler that passes has a context that ends with the leadership, and that
// [leader.TermOf], [leader.Confirm] and [leader.Fence] know. If the leadership ends first, an error of the handler that says
// no more than that its context has ended becomes a refusal, with "begun" in its details; whatever else it returns is kept,
// also a result. It waits for the handler, as gRPC does: a handler that ignores its context ends when it likes.
//
// It panics if it is given what no valid program gives: no Leader, or a name that Run would not take.
func UnaryServerInterceptor(l *leader.Leader, name string, opts Options) grpc.UnaryServerInterceptor {
	g := newGate(l, name, opts)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if open(info.FullMethod) {
			return handler(ctx, req)
		}
		j, ok := l.Join(ctx, name)
		if !ok {
			if g.reads(info.FullMethod) {
				return handler(ctx, req)
			}
			return nil, g.refuse(ctx, false)
		}
		resp, err := handler(&j, req) //nolint:contextcheck // j is derived from ctx
		if err != nil && g.cutShort(ctx, &j, err) {
			return nil, g.refuse(ctx, true)
		}
		return resp, err
	}
}

// refuse returns the refusal of a unary call, and sets its trailers.
func (g *gate) refuse(ctx context.Context, begun bool) error {
	h := g.hint()                         //nolint:contextcheck // it only looks, and has no context
	_ = grpc.SetTrailer(ctx, h.trailer()) // fails only for a call that is over, or outside of a server
	return g.refusal(h, begun)
}

// StreamServerInterceptor is [UnaryServerInterceptor] for streams. When the leadership ends, SendMsg and RecvMsg of the
// stream return the refusal, also those that are blocked, and nothing that came later is received or sent. A handler that
// returns that error, one that says no more than that its context has ended, or nil on a stream of the server, which it may
// have cut short, ends the stream with it.
//
// A blocked call of gRPC's stream can only be ended by the return of the handler. So they are made by two goroutines beside
// the handler, which are left behind with such a call and end when gRPC ends the stream, right after the handler has
// returned; behind grpc.Server.ServeHTTP not before the client has taken what was being sent, or gone. A message of a call
// that has returned an error must therefore not be used again: generated code never does.
// Put it before interceptors that wrap the stream, which must not meet such a call when they have returned.
func StreamServerInterceptor(l *leader.Leader, name string, opts Options) grpc.StreamServerInterceptor {
	g := newGate(l, name, opts)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if open(info.FullMethod) {
			return handler(srv, ss)
		}
		j, ok := l.Join(ss.Context(), name)
		if !ok {
			if g.reads(info.FullMethod) {
				return handler(srv, ss)
			}
			return g.refuseStream(ss, false)
		}
		s := newStream(g, ss, &j)
		defer s.end()
		err := handler(srv, s)
		switch {
		case err == nil && (!info.IsServerStream || !lost(ss.Context(), &j)):
			return nil
		case err == nil, errors.Is(err, s.over), g.cutShort(ss.Context(), &j, err):
			return g.refuseStream(ss, true)
		}
		return err
	}
}

// refuseStream returns the refusal of a stream, and sets its trailers.
func (g *gate) refuseStream(ss grpc.ServerStream, begun bool) error {
	h := g.hint()
	ss.SetTrailer(h.trailer())
	return g.refusal(h, begun)
}
