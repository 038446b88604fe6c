// SPDX-License-Identifier: MIT

package leadergrpc_test

import (
	"context"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leadergrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// The code of docs/gates.md, which TestDocsSnippetsAreCode of the root module looks for.

func _(lead *leader.Leader) *grpc.Server {
	server := grpc.NewServer(
		grpc.UnaryInterceptor(leadergrpc.UnaryServerInterceptor(lead, "orders", leadergrpc.Options{})),
		grpc.StreamInterceptor(leadergrpc.StreamServerInterceptor(lead, "orders", leadergrpc.Options{})),
	)
	return server
}

func _(target string, creds grpc.DialOption) (*grpc.ClientConn, error) {
	follower := leadergrpc.NewFollower(leadergrpc.FollowOptions{DialOptions: []grpc.DialOption{creds}})
	defer follower.Close()
	conn, err := grpc.NewClient(target, creds,
		grpc.WithUnaryInterceptor(follower.Unary()), grpc.WithStreamInterceptor(follower.Stream()))
	return conn, err
}

func _(ctx context.Context, lead *leader.Leader, server *grpc.Server) {
	status := health.NewServer()
	healthpb.RegisterHealthServer(server, status)
	go leadergrpc.Health(ctx, lead, status, leadergrpc.HealthOptions{Services: map[string]string{"shop.Orders": "orders"}})
}
