// SPDX-License-Identifier: MIT

package integration

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
)

const (
	task           = "invoices.nightly"
	lease          = 2 * time.Second
	sessionTimeout = 5 * time.Second

	// grace is what a busy machine may add to a promised time.
	grace = time.Second
	// again is how long it may take until somebody leads once the server can be reached: the old session's time on the
	// server, the longest pause between two attempts to connect, the dial, a retry.
	again = sessionTimeout + 5*time.Second + 5*time.Second + 5*grace
)

// span is one run of the task. Its end is zero while it lasts.
type span struct {
	node       string
	start, end time.Time
	ctx        context.Context //nolint:containedctx // the test looks into a running task
}

// recorder keeps every run of the task in all nodes, in the order of their starts.
type recorder struct {
	mu    sync.Mutex
	spans []span
}

func (r *recorder) begin(ctx context.Context, node string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, span{node: node, ctx: ctx, start: time.Now()})
	return len(r.spans) - 1
}

func (r *recorder) end(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans[i].end = time.Now()
}

// span returns run i, if there has been one.
func (r *recorder) span(i int) (span, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i >= len(r.spans) {
		return span{}, false
	}
	return r.spans[i], true
}

// assertNoOverlap looks at all runs so far.
func (r *recorder) assertNoOverlap(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 1; i < len(r.spans); i++ {
		before, now := r.spans[i-1], r.spans[i]
		assert.False(t, before.end.IsZero(), "run %d on %s started while run %d on %s still ran",
			i, now.node, i-1, before.node)
		assert.False(t, before.end.After(now.start), "run %d on %s started %v before run %d on %s had ended",
			i, now.node, before.end.Sub(now.start), i-1, before.node)
	}
}

// node is one process's Leader, which runs the task until it is told to finish or stopped.
type node struct {
	*leader.Leader
	name   string
	finish chan struct{} // closed: the task returns by itself
	done   chan struct{} // closed when Run has returned err
	err    error
}

// cluster is a number of nodes that share a server and a recorder.
type cluster struct {
	t *testing.T
	recorder
	nodes map[string]*node
}

// startCluster starts nodes that all run the task. They are resigned at the end of the test, and what they recorded is
// checked.
func startCluster(t *testing.T, backend func() leader.Backend, names ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, nodes: map[string]*node{}}
	t.Cleanup(func() {
		c.assertNoOverlap(t)
		for i := 0; ; i++ {
			s, ok := c.span(i)
			if !ok {
				return
			}
			assert.False(t, s.end.IsZero(), "run %d on %s did not end", i, s.node)
		}
	})
	for _, name := range names {
		c.start(backend(), name)
	}
	return c
}

func (c *cluster) start(backend leader.Backend, name string) {
	c.t.Helper()
	lead, err := leader.New(backend, leader.Options{
		Node:           name,
		Retry:          200 * time.Millisecond,
		Check:          500 * time.Millisecond,
		Lease:          lease,
		SessionTimeout: sessionTimeout,
		StopTimeout:    time.Second,
		Logger:         slog.New(slog.NewTextHandler(c.t.Output(), nil)),
	})
	require.NoError(c.t, err)
	n := &node{Leader: lead, name: name, finish: make(chan struct{}), done: make(chan struct{})}
	c.nodes[name] = n
	// Ends when Run returns: stop below sees to it. Not under the test's context, which ends before the cleanup.
	go func() {
		defer close(n.done)
		n.err = lead.Run(context.Background(), task, func(ctx context.Context) error { return c.run(ctx, n) })
	}()
	c.t.Cleanup(func() { n.stop(c.t) })
}

// stop resigns and waits for Run.
func (n *node) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	assert.NoError(t, n.Resign(ctx), "resign %s", n.name)
	select {
	case <-n.done:
		if n.err != nil {
			assert.ErrorIs(t, n.err, leader.ErrResigned, "run of %s", n.name)
		}
	case <-ctx.Done():
		t.Errorf("run of %s did not return", n.name)
	}
}

func (c *cluster) run(ctx context.Context, n *node) error {
	i := c.begin(ctx, n.name)
	defer c.end(i)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-n.finish:
		return nil
	}
}

// await returns run i once it has started.
func (c *cluster) await(i int, within time.Duration) span {
	c.t.Helper()
	var s span
	c.poll(within, func() (ok bool) { s, ok = c.span(i); return ok }, "run %d of the task has not started", i)
	return s
}

// awaitEnd returns run i once it has ended.
func (c *cluster) awaitEnd(i int, within time.Duration) span {
	c.t.Helper()
	var s span
	c.poll(within, func() bool { s, _ = c.span(i); return !s.end.IsZero() }, "run %d of the task has not ended", i)
	return s
}

// awaitLoss waits until run i has been cancelled because the lock was lost, which must be at most within after since.
func (c *cluster) awaitLoss(i int, since time.Time, within time.Duration) {
	c.t.Helper()
	s := c.awaitEnd(i, within+10*time.Second)
	took := s.end.Sub(since)
	c.t.Logf("loss: the task on %s ended after %v: %v", s.node, took.Round(time.Millisecond), context.Cause(s.ctx))
	require.ErrorIs(c.t, context.Cause(s.ctx), leader.ErrLost)
	require.LessOrEqual(c.t, took, within, "the task was cancelled too late")
	require.False(c.t, c.nodes[s.node].IsLeading(task))
}

// awaitAgain waits until run i has started, and logs how long after since that was.
func (c *cluster) awaitAgain(i int, since time.Time) {
	c.t.Helper()
	s := c.await(i, again)
	c.t.Logf("again: %s leads after %v", s.node, s.start.Sub(since).Round(time.Millisecond))
	c.assertLeads(s)
}

// assertLeads checks that a running task's node, and no other, says that it leads.
func (c *cluster) assertLeads(s span) {
	c.t.Helper()
	require.NoError(c.t, leader.Confirm(s.ctx))
	for name, n := range c.nodes {
		assert.Equal(c.t, name == s.node, n.IsLeading(task), "IsLeading on %s", name)
		assert.Equal(c.t, name == s.node, len(n.Leading()) == 1, "Leading on %s", name)
	}
}

// other returns a node that is not the given one.
func (c *cluster) other(name string) *node {
	c.t.Helper()
	for other, n := range c.nodes {
		if other != name {
			return n
		}
	}
	require.Fail(c.t, "there is one node only")
	return nil
}

// poll asks condition every few milliseconds until it is true, and fails the test after within.
func (c *cluster) poll(within time.Duration, condition func() bool, message string, args ...any) {
	c.t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			require.Failf(c.t, "waited in vain", message+" within %v", append(args, within)...)
		}
	}
}
