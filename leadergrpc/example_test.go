// SPDX-License-Identifier: MIT

package leadergrpc_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leadergrpc"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// process is one of a fleet: it serves, and contends for "orders" when it is told to.
func process(file, node string) (l *leader.Leader, addr string, server *grpc.Server) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		log.Fatal(err)
	}
	addr = lis.Addr().String()
	l, err = leader.New(leader.SQLite(db), leader.Options{Terms: true, Node: node, Addr: addr})
	if err != nil {
		log.Fatal(err)
	}
	server = grpc.NewServer(
		grpc.ChainUnaryInterceptor(leadergrpc.UnaryServerInterceptor(l, "orders", leadergrpc.Options{})),
		grpc.ChainStreamInterceptor(leadergrpc.StreamServerInterceptor(l, "orders", leadergrpc.Options{})),
	)
	service := &echo{unary: func(_ context.Context, in *text) (*text, error) {
		return wrapperspb.String(in.GetValue() + " from " + node), nil
	}}
	server.RegisterService(service.desc(), service)
	go func() { _ = server.Serve(lis) }() // until server.Stop
	return l, addr, server
}

func ExampleUnaryServerInterceptor() {
	dir, err := os.MkdirTemp("", "leadergrpc")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	l, addr, server := process(filepath.Join(dir, "app.db"), "web-1")
	defer server.Stop()
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cc.Close() }()

	ctx, out := context.Background(), new(text)
	err = cc.Invoke(ctx, "/test.Echo/Write", wrapperspb.String("hello"), out)
	fmt.Println(status.Code(err), status.Convert(err).Details()[0].(*errdetails.ErrorInfo).GetReason())

	err = l.Run(ctx, "orders", func(ctx context.Context) error {
		return cc.Invoke(ctx, "/test.Echo/Write", wrapperspb.String("hello"), out)
	})
	fmt.Println(out.GetValue(), err)
	// Output:
	// Unavailable NOT_LEADER
	// hello from web-1 <nil>
}

func ExampleFollower() {
	dir, err := os.MkdirTemp("", "leadergrpc")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	leads, _, first := process(filepath.Join(dir, "app.db"), "web-1")
	defer first.Stop()
	standby, addr, second := process(filepath.Join(dir, "app.db"), "web-2")
	defer second.Stop()
	defer func() { _ = standby.Resign(context.Background()) }()

	plain := grpc.WithTransportCredentials(insecure.NewCredentials()) // TLS, outside of an example
	follower := leadergrpc.NewFollower(leadergrpc.FollowOptions{DialOptions: []grpc.DialOption{plain}})
	defer func() { _ = follower.Close() }()
	cc, err := grpc.NewClient(addr, plain, grpc.WithUnaryInterceptor(follower.Unary()), grpc.WithStreamInterceptor(follower.Stream()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cc.Close() }()

	err = leads.Run(context.Background(), "orders", func(ctx context.Context) error {
		for !standby.Known("orders").Holders[0].Current { // a client would wait, and ask again
			time.Sleep(time.Millisecond)
		}
		out := new(text)
		err := cc.Invoke(ctx, "/test.Echo/Write", wrapperspb.String("hello"), out)
		fmt.Println(out.GetValue(), err)
		return nil
	})
	fmt.Println(err)
	// Output:
	// hello from web-1 <nil>
	// <nil>
}

func ExampleHealth() {
	dir, err := os.MkdirTemp("", "leadergrpc")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	l, _, server := process(filepath.Join(dir, "app.db"), "web-1")
	defer server.Stop()
	checks := health.NewServer()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- leadergrpc.Health(ctx, l, checks, leadergrpc.HealthOptions{Services: map[string]string{"shop.Orders": "orders"}})
	}()

	serving := func(service string) bool {
		resp, err := checks.Check(ctx, &healthpb.HealthCheckRequest{Service: service})
		return err == nil && resp.GetStatus() == healthpb.HealthCheckResponse_SERVING
	}
	err = l.Run(ctx, "orders", func(context.Context) error {
		for !serving("shop.Orders") {
			time.Sleep(time.Millisecond)
		}
		fmt.Println("leading: serving")
		return nil
	})
	for serving("shop.Orders") {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("not leading: healthy", serving(""), err)
	cancel()
	fmt.Println(<-ended)
	// Output:
	// leading: serving
	// not leading: healthy true <nil>
	// context canceled
}
