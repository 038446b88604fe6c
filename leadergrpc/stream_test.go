// SPDX-License-Identifier: MIT

package leadergrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func desc(method string) *grpc.StreamDesc {
	return &grpc.StreamDesc{StreamName: method, ServerStreams: method != "Put", ClientStreams: method != "List"}
}

func open(t *testing.T, cc grpc.ClientConnInterface, method string) grpc.ClientStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	t.Cleanup(cancel)
	stream, err := cc.NewStream(ctx, desc(method), "/test.Echo/"+method)
	require.NoError(t, err)
	return stream
}

// answer sends one message in a stream and returns the one that comes back. The end of the stream must be good, too.
func answer(t *testing.T, cc grpc.ClientConnInterface, method string) (string, error) {
	t.Helper()
	stream := open(t, cc, method)
	_ = stream.SendMsg(wrapperspb.String("hello")) // RecvMsg has its error
	_ = stream.CloseSend()
	out := new(text)
	if err := stream.RecvMsg(out); err != nil {
		return "", err
	}
	if err := stream.RecvMsg(new(text)); !errors.Is(err, io.EOF) {
		return "", err
	}
	return out.GetValue(), nil
}

// calls that are going on when the leadership ends. Each tells when it is in its handler.
var calls = map[string]struct {
	method string
	stream func(ss grpc.ServerStream) error
}{
	"unary": {"Write", nil},
	"bidi stream that receives": {"Chat", func(ss grpc.ServerStream) error {
		return errors.Join(ss.RecvMsg(new(text)), ss.RecvMsg(new(text)), ss.SendMsg(new(text)))
	}},
	"bidi stream that sends": {"Chat", func(ss grpc.ServerStream) error {
		big := wrapperspb.String(strings.Repeat("x", 60_000))
		for { // until the client, which does not read, has all that it may get
			if err := ss.SendMsg(big); err != nil {
				return err
			}
		}
	}},
	"server stream that waits": {"List", func(ss grpc.ServerStream) error {
		<-ss.Context().Done()
		return ss.Context().Err()
	}},
	"server stream that ends well": {"List", func(ss grpc.ServerStream) error {
		<-ss.Context().Done()
		return nil
	}},
	"client stream": {"Put", func(ss grpc.ServerStream) error {
		for {
			if err := ss.RecvMsg(new(text)); err != nil {
				return err
			}
		}
	}},
}

// testLoss ends the leadership of n under all calls, and returns how long the last of them took to end.
func testLoss(t *testing.T, n *node, end func()) {
	t.Helper()
	entered, left := make(chan struct{}, len(calls)), make(chan struct{}, len(calls))
	n.echo.unary = func(ctx context.Context, _ *text) (*text, error) {
		entered <- struct{}{}
		<-ctx.Done()
		left <- struct{}{}
		return nil, ctx.Err()
	}
	results := make(map[string]func() error)
	for name, c := range calls {
		n.echo.stream = func(ss grpc.ServerStream) error {
			entered <- struct{}{}
			err := c.stream(ss)
			left <- struct{}{}
			return err
		}
		if c.stream == nil {
			ended := make(chan error, 1)
			go func() { ended <- call(t, n.client, "Write") }()
			results[name] = func() error { return <-ended }
		} else {
			stream := open(t, n.client, c.method)
			if c.method == "List" {
				require.NoError(t, stream.SendMsg(wrapperspb.String("")))
			}
			results[name] = func() error {
				for {
					if err := stream.RecvMsg(new(text)); err != nil {
						return err
					}
				}
			}
		}
		<-entered // before the handler is another one
	}
	began := time.Now()
	end()
	for range calls {
		select {
		case <-left:
		case <-time.After(soon):
			require.Fail(t, "a handler goes on")
		}
	}
	t.Logf("all handlers have returned %v after the fault", time.Since(began).Round(100*time.Microsecond))
	for name, result := range results {
		said := refusal(t, result())
		assert.Equal(t, "true", said["begun"], name)
		assert.Empty(t, said["leader_addr"], name)
	}
	t.Logf("all calls have ended %v after the fault", time.Since(began).Round(100*time.Microsecond))
	assert.Less(t, time.Since(began), soon)
	noneLeft(t) // though the connections are open
}

func TestCallsEndWithResign(t *testing.T) {
	n := newFleet(t).node(t)
	n.lead(t)
	testLoss(t, n, func() {
		go func() { _ = n.l.Resign(context.Background()) }() // waits for the task; the cleanup waits for it
	})
	refusal(t, call(t, n.client, "Write"))
}

// Each leads again at once: the calls of the old term end all the same, and new ones pass.
func TestCallsEndWithTheLossOfTheLock(t *testing.T) {
	f := newFleet(t)
	n := f.node(t)
	n.lead(t)
	old := n.term(t)
	testLoss(t, n, func() {
		f.loseLock(t)
		require.Eventually(t, func() bool { j, ok := n.l.Join(t.Context(), name); return ok && newer(&j, old) }, soon, time.Millisecond)
	})
	n.echo.unary = func(_ context.Context, in *text) (*text, error) { return in, nil }
	require.NoError(t, call(t, n.client, "Write"))
}

func TestCallsEndWithTheSessionPostgres(t *testing.T) {
	url := pgtest.URL(t)
	n := newNode(t, leader.Postgres(url), func(o *leader.Options) { o.Check = 200 * time.Millisecond })
	n.lead(t)
	old := n.term(t)
	conn := pgtest.Connect(t, url)
	testLoss(t, n, func() {
		_, err := conn.Exec(t.Context(), "SELECT pg_terminate_backend($1)", int32(n.l.Status().SessionPID))
		require.NoError(t, err)
		require.Eventually(t, func() bool { j, ok := n.l.Join(t.Context(), name); return ok && newer(&j, old) }, soon, time.Millisecond)
	})
	n.echo.unary = func(_ context.Context, in *text) (*text, error) { return in, nil }
	require.NoError(t, call(t, n.client, "Write"))
}

func newer(ctx context.Context, old leader.Term) bool {
	term, _ := leader.TermOf(ctx)
	return term > old
}

// The next leader is known by the time that the handler returns.
func TestCallThatWasLostNamesTheNextLeader(t *testing.T) {
	f := newFleet(t)
	a, b := f.node(t), f.node(t)
	stop := a.lead(t)
	entered := make(chan struct{})
	a.echo.stream = func(ss grpc.ServerStream) error {
		close(entered)
		err := ss.RecvMsg(new(text))
		a.knows(t, b.addr)
		return err
	}
	stream := open(t, a.client, "Chat")
	<-entered
	stop()
	b.lead(t)
	said := refusal(t, stream.RecvMsg(new(text)))
	assert.Equal(t, b.addr, said["leader_addr"])
	assert.Equal(t, "true", said["begun"])
	assert.Equal(t, []string{b.addr}, stream.Trailer().Get("leader-addr"))
	assert.Equal(t, []string{b.l.Status().Node}, stream.Trailer().Get("leader-node"))
}

// What has arrived before is not handed out, and nothing is sent.
func TestNothingIsAcceptedAfterTheLeadership(t *testing.T) {
	n := newFleet(t).node(t)
	stop := n.lead(t)
	received, ended := make(chan string, 1), make(chan error, 3)
	n.echo.stream = func(ss grpc.ServerStream) error {
		in := new(text)
		if err := ss.RecvMsg(in); err != nil {
			return err
		}
		received <- in.GetValue()
		<-ss.Context().Done()
		ended <- ss.RecvMsg(new(text))
		ended <- ss.SendMsg(in)
		return nil
	}
	stream := open(t, n.client, "Chat")
	require.NoError(t, stream.SendMsg(wrapperspb.String("one")))
	require.NoError(t, stream.SendMsg(wrapperspb.String("two")))
	assert.Equal(t, "one", <-received)
	stop()
	refusal(t, <-ended)
	refusal(t, <-ended)
	refusal(t, stream.RecvMsg(new(text)))
	assert.Empty(t, stream.Trailer().Get("leader-addr"))
}

// As on a stream that has no gate: there may be somebody who recovers.
func TestPanicOfACallIsThatOfTheHandler(t *testing.T) {
	n := newFleet(t).node(t)
	n.lead(t)
	n.echo.stream = func(ss grpc.ServerStream) (err error) {
		defer func() { err = fmt.Errorf("recovered: %v", recover()) }()
		return ss.SendMsg(panics{})
	}
	_, err := answer(t, n.client, "Chat")
	assert.Equal(t, "recovered: not today", status.Convert(err).Message())
}

// panics when it is encoded.
type panics struct{}

func (panics) ProtoReflect() protoreflect.Message { panic("not today") }

// A goroutine of a handler that goes on without it is told so.
func TestStreamIsOfNoUseWhenItsHandlerHasReturned(t *testing.T) {
	n := newFleet(t).node(t)
	n.lead(t)
	streams := make(chan grpc.ServerStream, 1)
	n.echo.stream = func(ss grpc.ServerStream) error {
		streams <- ss
		return answerOnce(ss)
	}
	_, err := answer(t, n.client, "Chat")
	require.NoError(t, err)
	ss := <-streams
	require.Error(t, ss.SendMsg(wrapperspb.String("late")))
	require.Error(t, ss.RecvMsg(new(text)))
}
