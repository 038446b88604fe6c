// SPDX-License-Identifier: MIT

// Package leadergrpc keeps gRPC calls to the process that leads a name of a [leader.Leader]. A server lets calls pass while its
// process leads, and names the leader to the others:
//
//	l, err := leader.New(leader.Postgres(url), leader.Options{Terms: true, Addr: "10.0.0.7:8080"})
//	...
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(leadergrpc.UnaryServerInterceptor(l, "orders", leadergrpc.Options{})),
//		grpc.ChainStreamInterceptor(leadergrpc.StreamServerInterceptor(l, "orders", leadergrpc.Options{})),
//	)
//	checks := health.NewServer()
//	healthpb.RegisterHealthServer(server, checks)
//	go leadergrpc.Health(ctx, l, checks, leadergrpc.HealthOptions{}) // until ctx ends
//	go l.Run(ctx, "orders", task)                                    // contends
//
// A client goes where it is told, once for each call:
//
//	tls := grpc.WithTransportCredentials(credentials.NewTLS(config))
//	follower := leadergrpc.NewFollower(leadergrpc.FollowOptions{DialOptions: []grpc.DialOption{tls}})
//	defer follower.Close()
//	cc, err := grpc.NewClient("dns:///orders.internal:8080", tls,
//		grpc.WithUnaryInterceptor(follower.Unary()), grpc.WithStreamInterceptor(follower.Stream()))
//
// # Refusals
//
// A call that is not let in gets codes.Unavailable with an ErrorInfo, whose reason is NOT_LEADER, whose domain is "leader" and
// whose metadata are these, and with a RetryInfo of one second:
//
//	name         what had to be led
//	leader_node  Options.Node of the leader
//	leader_addr  Options.Addr of the leader
//	term         of the leader
//	age_ms       how old this knowledge is
//	begun        "true" if the handler was run; missing otherwise
//
// The trailers leader-addr, leader-node and leader-term say the same. If nobody is known to lead, or the leader has no address or
// that of the process that refuses, the three trailers are missing, leader_node and leader_addr are empty, and term and age_ms
// are 0: it is never the last leader that is named. It takes Options.Terms for a leader to be named at all. The first refusals of
// a process, and those after it was not asked for 15 s, may name nobody, as it then begins to ask the database.
//
// # Calls that outlive a leadership
//
// The context of a handler is one of [leader.Leader.Join]: it ends when the lock is lost or its task has returned, also if this
// process leads again by then. Blocked calls of its stream return; see [StreamServerInterceptor]. A task that was told to stop and
// has not returned leads still: calls that were let in go on, and no more are. So let the task wait for them, for as long as you
// like, or not at all.
//
// # Not guaranteed
//
// A handler may have written before it heard of the end, and a frozen process hears of it when it wakes. What must not be
// written by a process that has led once has to be fenced: [leader.Fence] takes the context of the handler. If a call ends with
// "begun", it is not known what it has done.
package leadergrpc
