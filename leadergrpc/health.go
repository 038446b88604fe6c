// SPDX-License-Identifier: MIT

package leadergrpc

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/oxygenhub/leader"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// HealthOptions of [Health]. The zero value is ready to use.
type HealthOptions struct {
	// Services says which name must be led for a service to be SERVING, by service. Default: a service for each name that
	// Run is going on for, called like it; the server remembers each of them, so name those that matter if new names keep coming.
	// With an entry for "", that is the health of its name, and not of the process: health.NewServer says SERVING of it, so tell it
	// otherwise before the server serves.
	Services map[string]string
	// Grace is for how long a process that had a session may be without one before it is not healthy: so a lost session that
	// is opened again at once takes no process out of service. Default 5 s; negative: none.
	Grace time.Duration
}

// Health keeps server in step with l until ctx ends, and returns ctx.Err(), or [leader.ErrResigned] after Resign; then all is
// NOT_SERVING. A service of a name is SERVING only while this process leads it. The service "" is SERVING while the process is
// healthy, as a standby is: while it has a session, or wants none. Give clients that must reach the leader a service of a
// name, and the probes of an orchestrator "": a standby that is never ready blocks a rolling update.
func Health(ctx context.Context, l *leader.Leader, server *health.Server, opts HealthOptions) error {
	k := &keeper{l: l, server: server, services: maps.Clone(opts.Services), grace: cmp.Or(opts.Grace, 5*time.Second), told: make(map[string]struct{})}
	defer k.tellNone()
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	events := l.Watch(watched)
	tick := time.NewTicker(lookEvery(k.grace))
	defer tick.Stop()
	for {
		k.look()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, ok := <-events:
			if !ok && ctx.Err() == nil {
				return leader.ErrResigned
			}
		case <-tick.C:
		}
	}
}

// lookEvery is for what has no event: that grace is over. And for a second look at all else.
func lookEvery(grace time.Duration) time.Duration {
	if grace <= 0 {
		return time.Second
	}
	return max(time.Millisecond, min(time.Second, grace))
}

// keeper tells a health server how the process is.
type keeper struct {
	l        *leader.Leader
	server   *health.Server
	services map[string]string
	grace    time.Duration
	told     map[string]struct{}
}

// look looks at all there is, whatever the event was: so it does not matter how many were missed. Status waits for the
// change that an event tells of to be complete.
func (k *keeper) look() {
	s := k.l.Status()
	leads := make(map[string]bool)
	for _, task := range s.Tasks {
		leads[task.Name] = task.State == leader.StateLeading
	}
	if k.services != nil {
		for service, name := range k.services {
			k.tell(service, leads[name])
		}
	} else {
		for service := range k.told { // also those whose Run has ended
			if service != "" {
				k.tell(service, leads[service])
			}
		}
		for service, leading := range leads {
			k.tell(service, leading)
		}
	}
	if _, own := k.services[""]; !own {
		k.tell("", k.healthy(s))
	}
}

// healthy reports whether the process does what it can: it has a session if it needs one.
func (k *keeper) healthy(s leader.Status) bool {
	switch {
	case s.Resigned:
		return false
	case s.Connected, s.Resting, len(s.Tasks) == 0:
		return true
	}
	// It had one. That may have been closed for want of work, hours before something wanted one again.
	first := slices.MinFunc(s.Tasks, func(a, b leader.TaskStatus) int { return a.Since.Compare(b.Since) })
	wanted := time.Since(first.Since)
	return s.Place != "" && min(wanted, time.Since(s.Since)) < k.grace
}

// tell says it also if it has been said: somebody else may have said otherwise, as health.Server.Resume does of all services. The
// server tells its watchers of changes only.
func (k *keeper) tell(service string, serving bool) {
	k.told[service] = struct{}{}
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		status = healthpb.HealthCheckResponse_SERVING
	}
	k.server.SetServingStatus(service, status)
}

// tellNone leaves nothing behind that nobody keeps in step.
func (k *keeper) tellNone() {
	for service := range k.told {
		k.tell(service, false)
	}
}
