// SPDX-License-Identifier: MIT

package leadergrpc_test

import (
	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leadergrpc"
	"google.golang.org/grpc"
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
