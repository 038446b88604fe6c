// SPDX-License-Identifier: MIT

package leadergrpc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leadergrpc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

var unknown = map[string]string{"name": name, "leader_node": "", "leader_addr": "", "term": "0", "age_ms": "0"}

// hints asserts what a refusal of n says: who leads, in its details and its trailers, or with nil that nobody is known to.
func (n *node) hints(t *testing.T, leads *node) {
	t.Helper()
	var trailer metadata.MD
	said := refusal(t, call(t, n.client, "Write", grpc.Trailer(&trailer)))
	delete(trailer, "content-type")
	delete(trailer, "grpc-status-details-bin") // compared as details
	if leads == nil {
		assert.Equal(t, unknown, said)
		assert.Empty(t, trailer)
		return
	}
	age, err := strconv.Atoi(said["age_ms"])
	require.NoError(t, err)
	assert.GreaterOrEqual(t, age, 0)
	assert.Less(t, age, 5000)
	term := strconv.FormatInt(int64(leads.term(t)), 10)
	node := leads.l.Status().Node
	assert.Equal(t, map[string]string{"name": name, "leader_node": node, "leader_addr": leads.addr, "term": term, "age_ms": said["age_ms"]}, said)
	assert.Equal(t, metadata.MD{"leader-addr": {leads.addr}, "leader-node": {node}, "leader-term": {term}}, trailer)
}

func TestStandbyRefusesAndNamesTheLeader(t *testing.T) {
	f := newFleet(t)
	a, b := f.node(t), f.node(t)
	b.hints(t, nil) // nobody has led yet
	stop := a.lead(t)
	b.knows(t, a.addr)
	b.hints(t, a)
	require.NoError(t, call(t, a.client, "Write"))

	stop()
	b.knows(t, "")
	b.hints(t, nil)
	a.hints(t, nil)
	b.lead(t)
	a.knows(t, b.addr)
	a.hints(t, b)
	require.NoError(t, call(t, b.client, "Write"))
}

func TestStandbyServesReadsHealthAndReflection(t *testing.T) {
	n := newFleet(t).node(t)
	n.echo.unary = func(ctx context.Context, in *text) (*text, error) {
		if _, ok := leader.TermOf(ctx); ok {
			return nil, errors.New("a read of a standby has a term")
		}
		return in, nil
	}
	require.NoError(t, call(t, n.client, "Read"))
	got, err := answer(t, n.client, "Tail")
	require.NoError(t, err)
	assert.Equal(t, "hello", got)
	_, err = healthpb.NewHealthClient(n.client).Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	watch, err := healthpb.NewHealthClient(n.client).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	info, err := reflectionpb.NewServerReflectionClient(n.client).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	require.NoError(t, info.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}))
	_, err = info.Recv()
	require.NoError(t, err)

	for _, method := range []string{"List", "Chat", "Put"} {
		_, err := answer(t, n.client, method)
		assert.Equal(t, unknown, refusal(t, err), method)
	}
}

func TestHandlersOfTheLeaderKnowTheirTerm(t *testing.T) {
	n := newFleet(t).node(t)
	n.lead(t)
	term := n.term(t)
	check := func(ctx context.Context) error {
		if got, _ := leader.TermOf(ctx); got != term {
			return fmt.Errorf("term %d", got)
		}
		return leader.Confirm(ctx)
	}
	n.echo.unary = func(ctx context.Context, in *text) (*text, error) { return in, check(ctx) }
	n.echo.stream = func(ss grpc.ServerStream) error { return errors.Join(check(ss.Context()), answerOnce(ss)) }
	require.NoError(t, call(t, n.client, "Write"))
	for _, method := range []string{"List", "Chat", "Put"} {
		got, err := answer(t, n.client, method)
		require.NoError(t, err, method)
		assert.Equal(t, "hello", got)
	}
}

// The address or the node id of the leader is our own: by a copied configuration.
func TestHintIsNeverOneself(t *testing.T) {
	f := newFleet(t)
	a := f.node(t)
	sameAddr := newNode(t, f.backend(t), func(o *leader.Options) { o.Addr = a.addr })
	sameNode := newNode(t, f.backend(t), func(o *leader.Options) { o.Node = a.l.Status().Node })
	a.lead(t)
	for _, n := range []*node{sameAddr, sameNode} {
		n.knows(t, a.addr)
		n.hints(t, nil)
	}
}

func TestHintIsEmptyWithoutAnAddress(t *testing.T) {
	f := newFleet(t)
	a, b := newNode(t, f.backend(t), func(o *leader.Options) { o.Addr = "" }), f.node(t)
	a.lead(t)
	require.Eventually(t, func() bool { v := b.l.Known(name); return len(v.Holders) == 1 && v.Holders[0].Current }, soon, 5*time.Millisecond)
	b.hints(t, nil)
}

// The table still has the term of a process that has crashed.
func TestHintIsEmptyAfterACrash(t *testing.T) {
	f := newFleet(t)
	n := f.node(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asLeader+"="+f.path)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "leads\n", line)
	n.knows(t, deadAddr)
	assert.Equal(t, deadAddr, refusal(t, call(t, n.client, "Write"))["leader_addr"])

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	n.knows(t, "")
	n.hints(t, nil)
}

// Its task goes on, so it does not lead again, and nobody else does.
func TestHintIsEmptyAfterALoss(t *testing.T) {
	f := newFleet(t)
	a, b := f.node(t), f.node(t)
	stuck := make(chan struct{})
	a.leadWith(t, func(context.Context) error { <-stuck; return nil })
	t.Cleanup(func() { close(stuck) })
	b.knows(t, a.addr)
	f.loseLock(t)
	b.knows(t, "")
	require.Eventually(t, func() bool { return !a.l.IsLeading(name) }, soon, time.Millisecond)
	a.hints(t, nil)
	b.hints(t, nil)
}

func TestHandlersOwnErrorsAreKept(t *testing.T) {
	own := status.Error(codes.FailedPrecondition, "no stock")
	for _, tc := range []struct {
		name string
		err  func(ctx context.Context) error
		kept codes.Code // OK: it becomes a refusal
	}{
		{"cancelled", context.Context.Err, codes.OK},
		{"wrapped", func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) }, codes.OK},
		{"cause", func(ctx context.Context) error { return context.Cause(ctx) }, codes.OK},
		{"deadline", func(context.Context) error { return context.DeadlineExceeded }, codes.OK},
		{"status", func(context.Context) error { return status.Error(codes.Canceled, "x") }, codes.OK},
		{"fenced", func(context.Context) error { return fmt.Errorf("write: %w", leader.ErrFenced) }, codes.OK},
		{"fenced itself", func(ctx context.Context) error {
			term, _ := leader.TermOf(ctx)
			return &leader.FencedError{Name: name, Term: term}
		}, codes.OK},
		{"fenced as another name", func(context.Context) error { return &leader.FencedError{Name: "other", Err: leader.ErrLost} }, codes.Unknown},
		{"fenced as that name of another Leader", func(context.Context) error { return &leader.FencedError{Name: name, Term: 7} }, codes.Unknown},
		{"own", func(context.Context) error { return own }, codes.FailedPrecondition},
		{"own and cancelled", func(ctx context.Context) error { return errors.Join(ctx.Err(), own) }, codes.FailedPrecondition},
		{"aborted", func(ctx context.Context) error { return status.Error(codes.Aborted, ctx.Err().Error()) }, codes.Aborted},
		{"unknown", func(context.Context) error { return errors.New("disk full") }, codes.Unknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newFleet(t).node(t)
			stop := n.lead(t)
			entered := make(chan struct{}, 2)
			n.echo.unary = func(ctx context.Context, _ *text) (*text, error) {
				entered <- struct{}{}
				<-ctx.Done()
				return nil, tc.err(ctx)
			}
			n.echo.stream = func(ss grpc.ServerStream) error {
				entered <- struct{}{}
				<-ss.Context().Done()
				return tc.err(ss.Context())
			}
			unary, stream := make(chan error, 1), make(chan error, 1)
			go func() { unary <- call(t, n.client, "Write") }()
			go func() { _, err := answer(t, n.client, "Chat"); stream <- err }()
			<-entered
			<-entered
			stop()
			for _, ended := range []chan error{unary, stream} {
				err := <-ended
				if tc.kept != codes.OK {
					assert.Equal(t, tc.kept, status.Code(err), "%v", err)
					continue
				}
				assert.Equal(t, "true", refusal(t, err)["begun"])
			}
		})
	}
}

// Without a loss, these errors are as they were.
func TestErrorsAreKeptWhileLeading(t *testing.T) {
	n := newFleet(t).node(t)
	n.lead(t)
	n.echo.unary = func(context.Context, *text) (*text, error) { return nil, context.DeadlineExceeded }
	assert.Equal(t, codes.DeadlineExceeded, status.Code(call(t, n.client, "Write")))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	n.echo.stream = func(ss grpc.ServerStream) error { return ss.RecvMsg(new(text)) }
	stream, err := n.client.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Echo/Chat")
	require.NoError(t, err)
	assert.Equal(t, codes.DeadlineExceeded, status.Code(stream.RecvMsg(new(text))))
}

func TestResultOfACallThatWasDoneIsKept(t *testing.T) {
	n := newFleet(t).node(t)
	stop := n.lead(t)
	entered := make(chan struct{})
	n.echo.unary = func(ctx context.Context, in *text) (*text, error) {
		close(entered)
		<-ctx.Done() // it has written, and heard of the end too late
		return in, nil
	}
	ended := make(chan error, 1)
	go func() { ended <- call(t, n.client, "Write") }()
	<-entered
	stop()
	require.NoError(t, <-ended)
}

// Of two gates, one around the other, the one whose leadership is over says so.
func TestNestedGatesNameTheOneThatIsOver(t *testing.T) {
	for _, stream := range []bool{false, true} {
		n := newFleet(t).node(t)
		stop := n.lead(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = n.l.Run(ctx, "inner", func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		}()
		require.Eventually(t, func() bool { return n.l.IsLeading("inner") }, soon, time.Millisecond)
		outer, inner := leadergrpc.UnaryServerInterceptor(n.l, name, leadergrpc.Options{}), leadergrpc.UnaryServerInterceptor(n.l, "inner", leadergrpc.Options{})
		entered := make(chan struct{})
		n.echo.unary = func(ctx context.Context, in *text) (*text, error) {
			info := &grpc.UnaryServerInfo{FullMethod: "/test.Echo/Write"}
			_, err := outer(ctx, in, info, func(ctx context.Context, in any) (any, error) {
				return inner(ctx, in, info, func(ctx context.Context, _ any) (any, error) {
					close(entered)
					<-ctx.Done()
					return nil, ctx.Err()
				})
			})
			return in, err
		}
		outerStream, innerStream := leadergrpc.StreamServerInterceptor(n.l, name, leadergrpc.Options{}), leadergrpc.StreamServerInterceptor(n.l, "inner", leadergrpc.Options{})
		n.echo.stream = func(ss grpc.ServerStream) error {
			info := &grpc.StreamServerInfo{FullMethod: "/test.Echo/Chat", IsServerStream: true, IsClientStream: true}
			return outerStream(nil, ss, info, func(srv any, ss grpc.ServerStream) error {
				return innerStream(srv, ss, info, func(_ any, ss grpc.ServerStream) error {
					close(entered)
					var err error
					for err == nil {
						err = ss.RecvMsg(new(text))
					}
					return err
				})
			})
		}
		failed := make(chan error, 1)
		go func() {
			if stream {
				failed <- open(t, n.client, "Chat").RecvMsg(new(text)) // and sends no end, of which the handler would return
				return
			}
			failed <- call(t, n.client, "Write")
		}()
		<-entered
		stop()
		assert.Equal(t, name, refusal(t, <-failed)["name"])
		assert.True(t, n.l.IsLeading("inner"))
		cancel()
		<-ended
	}
}
