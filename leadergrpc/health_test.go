// SPDX-License-Identifier: MIT

package leadergrpc_test

import (
	"context"
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/leadergrpc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

const (
	serving    = healthpb.HealthCheckResponse_SERVING
	notServing = healthpb.HealthCheckResponse_NOT_SERVING
)

// keepHealth runs Health until the test stops it, or ends.
func (n *node) keepHealth(t *testing.T, opts leadergrpc.HealthOptions) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- leadergrpc.Health(ctx, n.l, n.health, opts)
		close(ended)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return func() error { cancel(); return <-ended }
}

func (n *node) is(t *testing.T, service string) healthpb.HealthCheckResponse_ServingStatus {
	t.Helper()
	resp, err := healthpb.NewHealthClient(n.client).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
	if status.Code(err) == codes.NotFound {
		return healthpb.HealthCheckResponse_SERVICE_UNKNOWN
	}
	require.NoError(t, err)
	return resp.GetStatus()
}

func (n *node) becomes(t *testing.T, service string, want healthpb.HealthCheckResponse_ServingStatus) {
	t.Helper()
	require.Eventually(t, func() bool { return n.is(t, service) == want }, soon, time.Millisecond)
}

func TestHealthIsInStep(t *testing.T) {
	f := newFleet(t)
	a, b := f.node(t), f.node(t)
	services := leadergrpc.HealthOptions{Services: map[string]string{"test.Echo": name, "test.Other": "other"}}
	end := a.keepHealth(t, services)
	b.keepHealth(t, services)
	for _, n := range []*node{a, b} {
		n.becomes(t, "test.Echo", notServing)
		assert.Equal(t, serving, n.is(t, ""))
	}
	stop := a.lead(t)
	a.becomes(t, "test.Echo", serving)
	assert.Equal(t, notServing, a.is(t, "test.Other"))
	standby := make(chan struct{})
	b.leadWithout(t, standby)
	<-standby
	stop()
	a.becomes(t, "test.Echo", notServing)
	b.becomes(t, "test.Echo", serving)
	assert.Equal(t, serving, a.is(t, ""), "it is healthy all the same")

	require.NoError(t, b.l.Resign(t.Context()))
	b.becomes(t, "test.Echo", notServing)
	b.becomes(t, "", notServing)

	a.lead(t)
	a.becomes(t, "test.Echo", serving)
	require.ErrorIs(t, end(), context.Canceled)
	assert.Equal(t, notServing, a.is(t, "test.Echo"), "nobody keeps it in step now")
	assert.Equal(t, notServing, a.is(t, ""))
}

// leadWithout has n contend, and tells when it stands by.
func (n *node) leadWithout(t *testing.T, standby chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	events, ended := n.l.Watch(ctx), make(chan struct{})
	go func() {
		defer close(ended)
		_ = n.l.Run(ctx, name, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	go func() {
		for e := range events { // ends with ctx
			if e.Kind == leader.Waiting {
				close(standby)
				return
			}
		}
	}()
}

// The task has not returned: leadership is in doubt, and health says no.
func TestHealthIsNotServingFromALossOn(t *testing.T) {
	f := newFleet(t)
	n := f.node(t)
	n.keepHealth(t, leadergrpc.HealthOptions{})
	stuck := make(chan struct{})
	n.leadWith(t, func(context.Context) error { <-stuck; return nil })
	t.Cleanup(func() { close(stuck) })
	n.becomes(t, name, serving) // a service that is called like the name
	f.loseLock(t)
	n.becomes(t, name, notServing)
}

// What drains gets no new work.
func TestHealthWhileResigning(t *testing.T) {
	n := newFleet(t).node(t)
	n.keepHealth(t, leadergrpc.HealthOptions{})
	goOn := make(chan struct{})
	n.leadWith(t, func(context.Context) error { <-goOn; return nil })
	n.becomes(t, name, serving)
	n.becomes(t, "", serving)
	resigned := make(chan error, 1)
	go func() { resigned <- n.l.Resign(context.Background()) }()
	n.becomes(t, name, notServing)
	n.becomes(t, "", notServing)
	assert.Empty(t, resigned)
	close(goOn)
	require.NoError(t, <-resigned)
}

func TestHealthWithoutASession(t *testing.T) {
	t.Run("never had one", func(t *testing.T) {
		n := newNode(t, leader.Postgres("postgres://postgres@127.0.0.1:1/none?connect_timeout=1"), nil)
		n.keepHealth(t, leadergrpc.HealthOptions{})
		n.becomes(t, "", serving) // it wants none
		standby := make(chan struct{})
		n.leadWithout(t, standby)
		n.becomes(t, "", notServing)
	})
	t.Run("resigned", func(t *testing.T) {
		n := newFleet(t).node(t)
		require.NoError(t, n.l.Resign(t.Context()))
		require.ErrorIs(t, leadergrpc.Health(t.Context(), n.l, n.health, leadergrpc.HealthOptions{}), leader.ErrResigned)
		assert.Equal(t, notServing, n.is(t, ""))
	})
}

func TestHealthOfAProcessThatIsCutOffPostgres(t *testing.T) {
	server := pgtest.Start(t)
	n := newNode(t, leader.Postgres(server.URL()), func(o *leader.Options) { o.Check = 100 * time.Millisecond })
	n.keepHealth(t, leadergrpc.HealthOptions{Grace: 300 * time.Millisecond})
	n.lead(t)
	n.becomes(t, name, serving)
	n.becomes(t, "", serving)
	server.Stop("immediate")
	n.becomes(t, name, notServing)
	n.becomes(t, "", notServing)
}

// Who says what "" stands for is not contradicted.
func TestHealthOfTheWholeServerCanBeThatOfAName(t *testing.T) {
	f := newFleet(t)
	a, b := f.node(t), f.node(t)
	services := leadergrpc.HealthOptions{Services: map[string]string{"": name}}
	a.keepHealth(t, services)
	b.keepHealth(t, services)
	a.lead(t)
	a.becomes(t, "", serving)
	watch, err := healthpb.NewHealthClient(b.client).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	first, err := watch.Recv()
	require.NoError(t, err)
	if first.GetStatus() == serving { // before Health has looked
		first, err = watch.Recv()
		require.NoError(t, err)
	}
	require.Equal(t, notServing, first.GetStatus())
	changed := make(chan healthpb.HealthCheckResponse_ServingStatus, 1)
	go func() { // ends with the test's context
		if next, err := watch.Recv(); err == nil {
			changed <- next.GetStatus()
		}
	}()
	select {
	case now := <-changed:
		assert.Fail(t, "it flaps", "%v", now)
	case <-time.After(1200 * time.Millisecond): // a look each second
	}
}

// As all options, they are those of the call.
func TestHealthKeepsItsOwnServices(t *testing.T) {
	n := newFleet(t).node(t)
	services := map[string]string{"test.Echo": name}
	n.keepHealth(t, leadergrpc.HealthOptions{Services: services})
	n.becomes(t, "test.Echo", notServing)
	services["test.Late"] = name
	stop := n.lead(t)
	n.becomes(t, "test.Echo", serving)
	stop()
	n.becomes(t, "test.Echo", notServing)
	assert.Equal(t, healthpb.HealthCheckResponse_SERVICE_UNKNOWN, n.is(t, "test.Late"))
}

// Shutdown and Resume of the server say SERVING of all services, whoever leads.
func TestHealthIsInStepAfterAResume(t *testing.T) {
	n := newFleet(t).node(t)
	n.keepHealth(t, leadergrpc.HealthOptions{Services: map[string]string{"test.Echo": name}})
	n.becomes(t, "test.Echo", notServing)
	n.health.Shutdown()
	n.health.Resume()
	n.becomes(t, "test.Echo", notServing)
}
