// SPDX-License-Identifier: MIT

package leadergrpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/oxygenhub/leader"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// What a refusal says, in its [errdetails.ErrorInfo].
const (
	// Reason is the ErrorInfo.Reason of a refusal.
	Reason = "NOT_LEADER"
	// Domain is the ErrorInfo.Domain of a refusal.
	Domain = "leader"
)

// The trailers of a refusal, which are missing if nobody is known to lead. Bytes that a trailer may not have, and "%", are
// written as in a URL.
const (
	TrailerAddr = "leader-addr"
	TrailerNode = "leader-node"
	TrailerTerm = "leader-term"
)

// retryDelay is when a client that has no hint should ask again.
const retryDelay = time.Second

// Options of the interceptors of a server. The zero value is ready to use.
type Options struct {
	// Reads reports whether a process that does not lead may serve a method, as "/shop.Orders/List". Default: none. The health
	// and reflection services of gRPC are always served.
	Reads func(fullMethod string) bool
}

// gate lets calls pass while l leads name.
type gate struct {
	l     *leader.Leader
	name  string
	reads func(string) bool
}

func newGate(l *leader.Leader, name string, opts Options) *gate {
	switch {
	case l == nil:
		panic("leadergrpc: the Leader of an interceptor is nil")
	case name == "" || len(name) > 1024 || !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		panic(fmt.Sprintf("leadergrpc: the name of an interceptor is %.50q: it must be 1 to 1,024 bytes of UTF-8 without NUL", name))
	}
	reads := opts.Reads
	if reads == nil {
		reads = func(string) bool { return false }
	}
	return &gate{l: l, name: name, reads: reads}
}

// open reports whether method is not for the gate at all: who asks how a process is, or what it can, asks that one.
func open(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.v1.Health/") ||
		strings.HasPrefix(method, "/grpc.reflection.v1.ServerReflection/") ||
		strings.HasPrefix(method, "/grpc.reflection.v1alpha.ServerReflection/")
}

// hint is who leads, as far as this process knows. The zero value says that nobody is known to.
type hint struct {
	node, addr string
	term       leader.Term
	age        time.Duration
}

// hint never names this process: it does not lead, or it would not be asked.
func (g *gate) hint() hint {
	h, age := g.l.Elsewhere(g.name)
	return hint{h.Node, h.Addr, h.Term, age}
}

func (h hint) trailer() metadata.MD {
	if h.addr == "" {
		return nil
	}
	return metadata.Pairs(TrailerAddr, escape(h.addr), TrailerNode, escape(h.node), TrailerTerm, strconv.FormatInt(int64(h.term), 10))
}

// escape makes a trailer's value of what another process has written into the database.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c <= ' ' || c > '~' || c == '%':
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// refusal is the status of a call that was not let in, or, if it was begun, that its leadership did not outlive.
func (g *gate) refusal(h hint, begun bool) error {
	info := map[string]string{
		"name":        clean(g.name),
		"leader_node": clean(h.node),
		"leader_addr": clean(h.addr),
		"term":        strconv.FormatInt(int64(h.term), 10),
		"age_ms":      strconv.FormatInt(h.age.Milliseconds(), 10),
	}
	text := fmt.Sprintf("this process does not lead %q", g.name)
	if begun {
		info["begun"] = "true"
		text = fmt.Sprintf("this process led %q when the call began, and does not any more", g.name)
	}
	st := status.New(codes.Unavailable, text)
	detailed, err := st.WithDetails(
		protoadapt.MessageV1Of(&errdetails.ErrorInfo{Reason: Reason, Domain: Domain, Metadata: info}),
		protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(retryDelay)}),
	)
	if err != nil {
		return st.Err() // never: all that is in them is valid UTF-8
	}
	return detailed.Err()
}

// clean makes s fit for protobuf, which has no text that is not UTF-8.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// lost reports whether the leadership that j joined is over. A call that has ended by itself was not lost, nor one that ended with
// another leadership, whose gate is around this one.
func lost(call context.Context, j *leader.Joined) bool {
	if j.Err() == nil {
		return false
	}
	own := errors.Is(context.Cause(j), leader.ErrLost) && !errors.Is(context.Cause(call), leader.ErrLost) //nolint:contextcheck // j is derived from call
	return call.Err() == nil || own
}

// cutShort reports whether a handler failed for no other reason than the end of its leadership j. What else a handler says is
// its own: it may know of something that has happened.
func (g *gate) cutShort(call context.Context, j *leader.Joined, err error) bool {
	if st, ok := status.FromError(err); ok {
		return (st.Code() == codes.Canceled || st.Code() == codes.DeadlineExceeded) && lost(call, j)
	}
	if fenced := (*leader.FencedError)(nil); errors.As(err, &fenced) {
		term, _ := leader.TermOf(j)                         //nolint:contextcheck // j is derived from call
		return fenced.Name == g.name && fenced.Term == term // the database may know before we do
	}
	ended := func(end error) bool { return errors.Is(err, end) }
	return slices.ContainsFunc([]error{leader.ErrLost, leader.ErrFenced, context.Canceled, context.DeadlineExceeded}, ended) && lost(call, j)
}
