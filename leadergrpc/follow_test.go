// SPDX-License-Identifier: MIT

package leadergrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leadergrpc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func newFollower(tb testing.TB, opts leadergrpc.FollowOptions) *leadergrpc.Follower {
	tb.Helper()
	opts.DialOptions = append(opts.DialOptions, grpc.WithTransportCredentials(insecure.NewCredentials()))
	f := leadergrpc.NewFollower(opts)
	tb.Cleanup(func() { assert.NoError(tb, f.Close()) })
	return f
}

func (n *node) follow(tb testing.TB, f *leadergrpc.Follower) *grpc.ClientConn {
	tb.Helper()
	return dial(tb, n.addr, grpc.WithUnaryInterceptor(f.Unary()), grpc.WithStreamInterceptor(f.Stream()))
}

// pair is a leader, and a standby that knows it.
func pair(t *testing.T) (standby, leads *node) {
	t.Helper()
	f := newFleet(t)
	leads, standby = f.node(t), f.node(t)
	leads.lead(t)
	standby.knows(t, leads.addr)
	return standby, leads
}

func TestFollowerFollowsOneHop(t *testing.T) {
	b, a := pair(t)
	marked := make(chan []string, 1)
	a.echo.unary = func(ctx context.Context, in *text) (*text, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		marked <- md.Get(leadergrpc.MetadataFollowed)
		return in, nil
	}
	cc := b.follow(t, newFollower(t, leadergrpc.FollowOptions{}))
	for range 3 {
		require.NoError(t, call(t, cc, "Write"))
		assert.Equal(t, []string{"1"}, <-marked)
	}
	assert.EqualValues(t, 3, a.echo.calls.Load())
	assert.EqualValues(t, 3, b.echo.calls.Load())

	got, err := answer(t, cc, "List")
	require.NoError(t, err)
	assert.Equal(t, "hello", got)
	for _, method := range []string{"Chat", "Put"} { // what was sent would have to be kept
		_, err := answer(t, cc, method)
		assert.Equal(t, a.addr, refusal(t, err)["leader_addr"], method)
	}
	assert.EqualValues(t, 4, a.echo.calls.Load())
}

// Each names the other, by a copied configuration.
func TestFollowerEndsInALoop(t *testing.T) {
	one, two := newFleet(t), newFleet(t)
	a, b := one.node(t), two.node(t)
	newNode(t, one.backend(t), func(o *leader.Options) { o.Addr = b.addr }).lead(t)
	newNode(t, two.backend(t), func(o *leader.Options) { o.Addr = a.addr }).lead(t)
	a.knows(t, b.addr)
	b.knows(t, a.addr)
	f := newFollower(t, leadergrpc.FollowOptions{})
	// Not even if the connections that are followed would follow, too.
	f = newFollower(t, leadergrpc.FollowOptions{DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(f.Unary()), grpc.WithStreamInterceptor(f.Stream())}})
	cc := a.follow(t, f)
	assert.Equal(t, a.addr, refusal(t, call(t, cc, "Write"))["leader_addr"])
	assert.EqualValues(t, 1, a.echo.calls.Load())
	assert.EqualValues(t, 1, b.echo.calls.Load())
	_, err := answer(t, cc, "List")
	assert.Equal(t, a.addr, refusal(t, err)["leader_addr"])
	assert.EqualValues(t, 2, a.echo.calls.Load())
	assert.EqualValues(t, 2, b.echo.calls.Load())
}

func TestFollowerWithoutAHint(t *testing.T) {
	n := newFleet(t).node(t)
	cc := n.follow(t, newFollower(t, leadergrpc.FollowOptions{}))
	assert.Equal(t, unknown, refusal(t, call(t, cc, "Write")))
	n.lead(t)
	n.echo.unary = func(context.Context, *text) (*text, error) {
		return nil, status.Error(codes.Unavailable, "shard is down")
	}
	assert.Equal(t, "shard is down", status.Convert(call(t, cc, "Write")).Message())
	assert.EqualValues(t, 2, n.echo.calls.Load())
}

func TestFollowerHeedsTarget(t *testing.T) {
	b, a := pair(t)
	var asked atomic.Value
	cc := b.follow(t, newFollower(t, leadergrpc.FollowOptions{Target: func(addr string) string { asked.Store(addr); return "" }}))
	assert.Equal(t, a.addr, refusal(t, call(t, cc, "Write"))["leader_addr"])
	assert.Equal(t, a.addr, asked.Load())
	assert.Zero(t, a.echo.calls.Load())
}

// The handler may have done something: only the caller knows whether to do it again.
func TestFollowerRepeatsNothingThatWasBegun(t *testing.T) {
	f := newFleet(t)
	a, b := f.node(t), f.node(t)
	stop := a.lead(t)
	entered := make(chan struct{})
	a.echo.unary = func(ctx context.Context, _ *text) (*text, error) {
		close(entered)
		<-ctx.Done()
		a.knows(t, b.addr)
		return nil, ctx.Err()
	}
	cc := a.follow(t, newFollower(t, leadergrpc.FollowOptions{}))
	ended := make(chan error, 1)
	go func() { ended <- call(t, cc, "Write") }()
	<-entered
	stop()
	b.lead(t)
	assert.Equal(t, b.addr, refusal(t, <-ended)["leader_addr"])
	assert.Zero(t, b.echo.calls.Load())
}

// A handler that has asked another service and passes on what that said has been run, too.
func TestFollowerHeedsOnlyTheServerThatItAsked(t *testing.T) {
	b, a := pair(t)
	front := newFleet(t).node(t)
	front.lead(t)
	front.echo.unary = func(context.Context, *text) (*text, error) { return nil, call(t, b.client, "Write") }
	front.echo.stream = func(grpc.ServerStream) error { return call(t, b.client, "Write") }
	cc := front.follow(t, newFollower(t, leadergrpc.FollowOptions{}))
	assert.Equal(t, a.addr, refusal(t, call(t, cc, "Write"))["leader_addr"])
	_, err := answer(t, cc, "List")
	assert.Equal(t, a.addr, refusal(t, err)["leader_addr"])
	assert.Zero(t, a.echo.calls.Load())
}

func TestFollowerReturnsTheErrorOfTheSecondCall(t *testing.T) {
	b, a := pair(t)
	a.echo.unary = func(context.Context, *text) (*text, error) { return nil, status.Error(codes.NotFound, "no such order") }
	a.echo.stream = func(grpc.ServerStream) error { return status.Error(codes.NotFound, "no such order") }
	cc := b.follow(t, newFollower(t, leadergrpc.FollowOptions{}))
	assert.Equal(t, codes.NotFound, status.Code(call(t, cc, "Write")))
	_, err := answer(t, cc, "List")
	assert.Equal(t, codes.NotFound, status.Code(err))
}

// A connection that a stream uses makes no room for another one.
func TestFollowerKeepsNoMoreThanMaxConns(t *testing.T) {
	b, a := pair(t)
	d, c := pair(t)
	f := newFollower(t, leadergrpc.FollowOptions{MaxConns: 1})
	one, two := b.follow(t, f), d.follow(t, f)
	require.NoError(t, call(t, one, "Write"))
	require.NoError(t, call(t, two, "Write"), "the first connection is idle")
	goOn := make(chan struct{})
	a.echo.stream = func(ss grpc.ServerStream) error {
		err := answerOnce(ss)
		<-goOn
		return err
	}
	stream := open(t, one, "List")
	require.NoError(t, stream.SendMsg(new(text)))
	require.NoError(t, stream.CloseSend())
	require.NoError(t, stream.RecvMsg(new(text)))
	assert.Equal(t, c.addr, refusal(t, call(t, two, "Write"))["leader_addr"], "not followed")
	close(goOn)
	require.Equal(t, io.EOF, stream.RecvMsg(new(text)))
	require.NoError(t, call(t, two, "Write"))

	require.NoError(t, f.Close())
	assert.Equal(t, c.addr, refusal(t, call(t, two, "Write"))["leader_addr"], "not followed")
}

// A stream that is not read to its end lets go of its connection when its context ends.
func TestFollowerLetsGoOfAStreamThatIsLeft(t *testing.T) {
	b, _ := pair(t)
	d, _ := pair(t)
	f := newFollower(t, leadergrpc.FollowOptions{MaxConns: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := b.follow(t, f).NewStream(ctx, desc("List"), "/test.Echo/List")
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(new(text)))
	require.NoError(t, stream.CloseSend())
	require.NoError(t, stream.RecvMsg(new(text)))
	cc := d.follow(t, f)
	refusal(t, call(t, cc, "Write"))
	cancel()
	require.Eventually(t, func() bool { return call(t, cc, "Write") == nil }, soon, time.Millisecond)
}

// The pause after a failure is of no use once a server says that somebody leads there.
func TestFollowerDialsAgainWhoLeadsAgain(t *testing.T) {
	b, _ := pair(t)
	var down atomic.Bool
	dialer := func(ctx context.Context, addr string) (net.Conn, error) {
		if down.Load() {
			return nil, errors.New("down")
		}
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
	hour := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Hour, MaxDelay: time.Hour, Multiplier: 1}}
	cc := b.follow(t, newFollower(t, leadergrpc.FollowOptions{DialOptions: []grpc.DialOption{grpc.WithContextDialer(dialer), grpc.WithConnectParams(hour)}}))
	down.Store(true)
	for range 2 {
		assert.ErrorContains(t, call(t, cc, "Write"), "down")
	}
	down.Store(false)
	require.NoError(t, call(t, cc, "Write"))
	_, err := answer(t, cc, "List")
	require.NoError(t, err)
}

// A client that waits for its own server must not wait for ever for one that a hint names.
func TestFollowerDoesNotWaitForTheDead(t *testing.T) {
	b, _ := pair(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dead := listener.Addr().String()
	require.NoError(t, listener.Close())
	f := newFollower(t, leadergrpc.FollowOptions{Target: func(string) string { return dead }})
	cc := b.follow(t, f)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	err = cc.Invoke(ctx, "/test.Echo/Write", &text{}, &text{}, grpc.WaitForReady(true))
	assert.Equal(t, codes.Unavailable, status.Code(err), err)
	stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/test.Echo/List", grpc.WaitForReady(true))
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(&text{}))
	require.NoError(t, stream.CloseSend())
	assert.Equal(t, codes.Unavailable, status.Code(stream.RecvMsg(&text{})))
}

// What is no stream of the server is not followed, also if it is made like one, as by a proxy for any method.
func TestFollowerLeavesAUnaryCallMadeAsAStream(t *testing.T) {
	b, a := pair(t)
	stream, err := b.follow(t, newFollower(t, leadergrpc.FollowOptions{})).NewStream(t.Context(), &grpc.StreamDesc{}, "/test.Echo/Write")
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(&text{}))
	require.NoError(t, stream.CloseSend())
	assert.Equal(t, a.addr, refusal(t, stream.RecvMsg(&text{}))["leader_addr"])
	assert.Zero(t, a.echo.calls.Load())
}
