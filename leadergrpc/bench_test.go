// SPDX-License-Identifier: MIT

package leadergrpc_test

import (
	"context"
	"testing"

	"github.com/oxygenhub/leader/leadergrpc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// What a gate costs, without a network.
func BenchmarkUnary(b *testing.B) {
	f := newFleet(b)
	a, standby := f.node(b), f.node(b)
	a.lead(b)
	standby.knows(b, a.addr)
	handler := func(context.Context, any) (any, error) { return nil, nil }
	bench := func(name string, n *node, method string, want codes.Code) {
		b.Run(name, func(b *testing.B) {
			intercept := leadergrpc.UnaryServerInterceptor(n.l, "orders", leadergrpc.Options{Reads: reads})
			info := &grpc.UnaryServerInfo{FullMethod: method}
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := intercept(ctx, nil, info, handler); status.Code(err) != want {
					b.Fatal(err)
				}
			}
		})
	}
	bench("leader", a, "/test.Echo/Write", codes.OK)
	bench("standby/read", standby, "/test.Echo/Read", codes.OK)
	bench("standby/refused", standby, "/test.Echo/Write", codes.Unavailable)
}

// One message there and back, over loopback: what the goroutines beside the handler cost is the difference.
func BenchmarkStream(b *testing.B) {
	for _, bench := range []struct{ name, method string }{{"leader", "/test.Echo/Chat"}, {"standby/read", "/test.Echo/Tail"}} {
		b.Run(bench.name, func(b *testing.B) {
			n := newFleet(b).node(b)
			if bench.name == "leader" {
				n.lead(b)
			}
			n.echo.stream = func(ss grpc.ServerStream) error {
				for {
					if err := answerOnce(ss); err != nil {
						return err
					}
				}
			}
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			stream, err := n.client.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, bench.method)
			require.NoError(b, err)
			in, out := wrapperspb.String("hello"), new(text)
			b.ReportAllocs()
			for b.Loop() {
				if err := stream.SendMsg(in); err != nil {
					b.Fatal(err)
				}
				if err := stream.RecvMsg(out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
