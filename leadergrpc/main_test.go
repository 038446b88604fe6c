// SPDX-License-Identifier: MIT

package leadergrpc_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/leadergrpc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	_ "modernc.org/sqlite"
)

const (
	name = "orders"
	// soon is what "at once" may take on a busy machine.
	soon = 5 * time.Second
	// asLeader makes the test binary a process that leads in the SQLite file that it names, until it is killed.
	asLeader = "LEADERGRPC_TEST_LEADS"
	deadAddr = "127.0.0.1:9"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(asLeader); path != "" {
		leadForever(path)
		return
	}
	os.Exit(pgtest.Main(m))
}

func leadForever(path string) {
	db, err := sql.Open("sqlite", path)
	if err == nil {
		var l *leader.Leader
		l, err = leader.New(leader.SQLite(db), leader.Options{Terms: true, Addr: deadAddr})
		if err == nil {
			err = l.Run(context.Background(), name, func(context.Context) error {
				fmt.Println("leads")
				select {}
			})
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

type text = wrapperspb.StringValue

// echo is a service without generated code.
type echo struct {
	unary  func(ctx context.Context, in *text) (*text, error) // of Write and Read
	stream func(ss grpc.ServerStream) error                   // of the others
	calls  atomic.Int32                                       // that reached the server, also if they were refused
}

func (e *echo) method(name string) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, dec func(any) error, in grpc.UnaryServerInterceptor) (any, error) {
		req := new(text)
		if err := dec(req); err != nil {
			return nil, err
		}
		return in(ctx, req, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/test.Echo/" + name}, func(ctx context.Context, req any) (any, error) {
			return e.unary(ctx, req.(*text))
		})
	}}
}

func (e *echo) desc() *grpc.ServiceDesc {
	serve := func(_ any, ss grpc.ServerStream) error { return e.stream(ss) }
	return &grpc.ServiceDesc{
		ServiceName: "test.Echo",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{e.method("Write"), e.method("Read")},
		Streams: []grpc.StreamDesc{
			{StreamName: "List", Handler: serve, ServerStreams: true},
			{StreamName: "Chat", Handler: serve, ServerStreams: true, ClientStreams: true},
			{StreamName: "Tail", Handler: serve, ServerStreams: true, ClientStreams: true}, // a read
			{StreamName: "Put", Handler: serve, ClientStreams: true},
		},
	}
}

// node is a process of a fleet, with a server behind the gate.
type node struct {
	l      *leader.Leader
	addr   string
	echo   *echo
	health *health.Server
	server *grpc.Server
	client *grpc.ClientConn
}

func reads(method string) bool { return method == "/test.Echo/Read" || method == "/test.Echo/Tail" }

// newNode starts a node. Its handlers answer with what they got, until a test changes that.
func newNode(tb testing.TB, backend leader.Backend, change func(*leader.Options)) *node {
	tb.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	n := &node{addr: lis.Addr().String(), health: health.NewServer()}
	opts := leader.Options{Terms: true, Addr: n.addr, Retry: 10 * time.Millisecond, Check: 20 * time.Millisecond}
	if change != nil {
		change(&opts)
	}
	n.l, err = leader.New(backend, opts)
	require.NoError(tb, err)
	n.echo = &echo{
		unary:  func(_ context.Context, in *text) (*text, error) { return in, nil },
		stream: func(ss grpc.ServerStream) error { return answerOnce(ss) },
	}
	count := func() { n.echo.calls.Add(1) }
	n.server = grpc.NewServer(
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			count()
			return h(ctx, req)
		}, leadergrpc.UnaryServerInterceptor(n.l, name, leadergrpc.Options{Reads: reads})),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			count()
			return h(srv, ss)
		}, leadergrpc.StreamServerInterceptor(n.l, name, leadergrpc.Options{Reads: reads})),
	)
	n.server.RegisterService(n.echo.desc(), n.echo)
	healthpb.RegisterHealthServer(n.server, n.health)
	reflection.Register(n.server)
	served := make(chan error, 1)
	go func() { served <- n.server.Serve(lis) }()
	n.client = dial(tb, n.addr)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		assert.NoError(tb, n.l.Resign(ctx))
		n.server.Stop()
		assert.NoError(tb, <-served)
		noneLeft(tb)
	})
	return n
}

// answerOnce receives one message and sends it back.
func answerOnce(ss grpc.ServerStream) error {
	in := new(text)
	if err := ss.RecvMsg(in); err != nil {
		return err
	}
	return ss.SendMsg(in)
}

// noneLeft asserts that no goroutine of a stream is left.
func noneLeft(tb testing.TB) {
	tb.Helper()
	assert.Eventually(tb, func() bool {
		buf := make([]byte, 1<<20)
		return !strings.Contains(string(buf[:runtime.Stack(buf, true)]), "leadergrpc.(*caller)")
	}, soon, 5*time.Millisecond, "a goroutine has outlived its stream")
}

func dial(tb testing.TB, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	cc, err := grpc.NewClient("passthrough:///"+addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = cc.Close() })
	return cc
}

// fleet is the SQLite file that nodes share.
type fleet struct{ path string }

func newFleet(tb testing.TB) fleet {
	tb.Helper()
	return fleet{filepath.Join(tb.TempDir(), "app.db")}
}

func (f fleet) backend(tb testing.TB) leader.Backend {
	tb.Helper()
	db, err := sql.Open("sqlite", f.path+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	return leader.SQLite(db)
}

func (f fleet) node(tb testing.TB) *node {
	tb.Helper()
	return newNode(tb, f.backend(tb), nil)
}

// loseLock takes the lock from whoever has it.
func (f fleet) loseLock(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, os.Remove(filepath.Join(f.path+".leader", fmt.Sprintf("%016x.lock", uint64(leader.Key("main", name))))))
}

// lead makes n lead, and returns when it does.
func (n *node) lead(tb testing.TB) (stop func()) {
	tb.Helper()
	return n.leadWith(tb, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
}

func (n *node) leadWith(tb testing.TB, task func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = n.l.Run(ctx, name, task)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	tb.Cleanup(stop)
	n.leads(tb)
	return stop
}

func (n *node) leads(tb testing.TB) {
	tb.Helper()
	require.Eventually(tb, func() bool { return n.l.IsLeading(name) }, 15*time.Second, time.Millisecond)
}

// term of n, which leads.
func (n *node) term(tb testing.TB) leader.Term {
	tb.Helper()
	j, ok := n.l.Join(tb.Context(), name)
	require.True(tb, ok)
	term, ok := leader.TermOf(&j)
	require.True(tb, ok)
	return term
}

// knows waits until n knows that addr leads; "": that nobody does.
func (n *node) knows(tb testing.TB, addr string) {
	tb.Helper()
	require.Eventually(tb, func() bool {
		v := n.l.Known(name)
		return !v.Time.IsZero() && v.Err == nil && len(v.Holders) == 1 && v.Holders[0].Addr == addr && v.Holders[0].Current == (addr != "")
	}, 15*time.Second, 5*time.Millisecond)
}

func call(tb testing.TB, cc grpc.ClientConnInterface, method string, opts ...grpc.CallOption) error {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	out := new(text)
	err := cc.Invoke(ctx, "/test.Echo/"+method, wrapperspb.String("hello"), out, opts...)
	if err == nil {
		assert.Equal(tb, "hello", out.GetValue())
	}
	return err
}

// refusal requires that err is one, and returns what it says.
func refusal(tb testing.TB, err error) map[string]string {
	tb.Helper()
	require.Error(tb, err)
	st := status.Convert(err)
	require.Equal(tb, codes.Unavailable, st.Code(), "%v", err)
	require.Len(tb, st.Details(), 2, "%v", err)
	info, ok := st.Details()[0].(*errdetails.ErrorInfo)
	require.True(tb, ok)
	retry, ok := st.Details()[1].(*errdetails.RetryInfo)
	require.True(tb, ok)
	assert.Equal(tb, "NOT_LEADER", info.GetReason())
	assert.Equal(tb, "leader", info.GetDomain())
	assert.Equal(tb, time.Second, retry.GetRetryDelay().AsDuration())
	return info.GetMetadata()
}
