// SPDX-License-Identifier: MIT

package leadergrpc

import (
	"context"
	"net"
	"regexp"
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// MetadataFollowed marks a call that has followed a hint: it follows no other.
const MetadataFollowed = "leader-followed"

// FollowOptions of a [Follower].
type FollowOptions struct {
	// DialOptions are for the connections to the addresses that servers name, as grpc.NewClient takes them. Credentials are
	// needed; interceptors that the first connection has must be given again, but for those of the Follower.
	DialOptions []grpc.DialOption
	// Target returns what grpc.NewClient is to dial for an address that a server has named, or "" if it is not to be
	// followed: whoever can write into leader_terms can name any. Default: any host:port is dialed, and a URL is not.
	Target func(addr string) string
	// MaxConns is how many connections are kept. While all are busy, further addresses are not followed. Default 4.
	MaxConns int
}

// Follower repeats a call that a gate has refused, once, at the address of the leader that the refusal names. It keeps its
// connections: use one for all clients, and Close it.
//
// A call is repeated only if its handler was not run: not if the leadership ended while it ran, and not if the refusal is
// that of another server, which a handler has passed on. If the repeated call fails, too, its error is returned; it does not
// wait for an address where nobody listens, whatever grpc.WaitForReady says. What was given to the call, as credentials, is also sent to the address that is followed.
type Follower struct {
	target func(string) string
	conns  conns
}

// NewFollower returns a Follower. It does not connect.
func NewFollower(opts FollowOptions) *Follower {
	f := &Follower{target: opts.Target, conns: conns{opts: slices.Clone(opts.DialOptions), most: opts.MaxConns}}
	if f.target == nil {
		f.target = hostPort
	}
	if f.conns.most <= 0 {
		f.conns.most = 4
	}
	return f
}

// Close closes all connections, also under calls that are going on. Later hints are not followed.
func (f *Follower) Close() error { return f.conns.close() }

// Unary returns the interceptor for unary calls.
func (f *Follower) Unary() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if followed(ctx) {
			return invoke(ctx, method, req, reply, cc, opts...)
		}
		var trailer metadata.MD
		err := invoke(ctx, method, req, reply, cc, append(slices.Clip(opts), grpc.Trailer(&trailer))...)
		if err == nil {
			return nil
		}
		next := f.next(err, trailer)
		if next == nil {
			return err
		}
		defer next.release()
		return next.cc.Invoke(mark(ctx), method, req, reply, once(opts)...)
	}
}

// next returns a connection to the leader that a refusal names, or nil if it is not to be followed.
func (f *Follower) next(err error, trailer metadata.MD) *conn {
	addr := named(err, trailer)
	if addr == "" {
		return nil
	}
	target := f.target(addr)
	if target == "" {
		return nil
	}
	return f.conns.get(target)
}

// named returns the address that a refusal names, if the call can be repeated there.
func named(err error, trailer metadata.MD) string {
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.Unavailable {
		return ""
	}
	for _, detail := range st.Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if !ok || info.GetReason() != Reason || info.GetDomain() != Domain {
			continue
		}
		addr := info.GetMetadata()["leader_addr"]
		// The gate itself sets the trailer. A handler that passes on the error of another server does not.
		if info.GetMetadata()["begun"] != "" || addr == "" || !slices.Equal(trailer.Get(TrailerAddr), []string{escape(addr)}) {
			return ""
		}
		return addr
	}
	return ""
}

// once has a repeated call fail if nobody answers at the address that was named: to wait there, as the client may for its own
// server, might last for ever.
func once(opts []grpc.CallOption) []grpc.CallOption {
	return append(slices.Clip(opts), grpc.WaitForReady(false))
}

func mark(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, MetadataFollowed, "1")
}

func followed(ctx context.Context) bool {
	md, _ := metadata.FromOutgoingContext(ctx)
	return len(md.Get(MetadataFollowed)) > 0
}

var (
	hosts = regexp.MustCompile(`^([0-9A-Za-z_-][0-9A-Za-z._-]*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)$`)
	ports = regexp.MustCompile(`^[0-9]{1,5}$`)
)

// hostPort is the default of FollowOptions.Target. With the scheme written out, no address is taken for one of another
// scheme, as "unix:1" would be.
func hostPort(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || !hosts.MatchString(host) || !ports.MatchString(port) {
		return ""
	}
	return "dns:///" + addr
}
