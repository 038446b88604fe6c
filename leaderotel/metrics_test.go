// SPDX-License-Identifier: MIT

package leaderotel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderotel"
	"github.com/oxygenhub/leader/leadertest"
)

func TestMetricsAreZeroBeforeAnything(t *testing.T) {
	r := newRig(t, quick(), leaderotel.Options{Names: []string{name}})
	got := r.collect(t)
	transitions := 0
	for k, v := range got {
		if strings.HasPrefix(k, "leader.lease{") {
			assert.InDelta(t, 1.0, v, 0)
			continue
		}
		assert.Zero(t, v, k)
		if strings.HasPrefix(k, "leader.transitions{") {
			transitions++
		}
	}
	assert.Equal(t, 20, transitions, "the comment at defaultMaxNames says so")
	for _, k := range []string{
		"leader.leading{name=invoices,namespace=}",
		"leader.running{name=invoices,namespace=}",
		"leader.transitions{event=lost,name=invoices,namespace=,reason=connection}",
		"leader.transitions{event=stepped_down,name=invoices,namespace=}",
		"leader.session.transitions{event=disconnected,namespace=,reason=lease}",
		"leader.session.connected{namespace=}",
		"leader.session.connect.errors{namespace=}",
		"leader.tasks{namespace=,state=overrun}",
		"leader.events.missed{namespace=}",
	} {
		assert.Contains(t, got, k)
	}
	for _, k := range []string{"leader.term{name=invoices,namespace=}", "leader.proof.age{namespace=}"} {
		assert.NotContains(t, got, k, "there is none")
	}
}

func TestMetricsOfALeadership(t *testing.T) {
	r := newRig(t, quick(), leaderotel.Options{Names: []string{name}})
	task, leave := stubborn(t, nil)
	stop, ended := start(t, r.Leader, task)
	leads(t, r.Leader)
	got := r.has(t, points{
		"leader.leading{name=invoices}":                   1,
		"leader.running{name=invoices}":                   1,
		"leader.calls{name=invoices}":                     1,
		"leader.tasks{state=leading}":                     1,
		"leader.session.connected":                        1,
		"leader.session.connects":                         1,
		"leader.session.losses":                           0,
		"leader.session.transitions{event=connected}":     1,
		"leader.transitions{event=gained,name=invoices}":  1,
		"leader.transitions{event=waiting,name=invoices}": 0,
		"leader.wait.duration.count{name=invoices}":       1,
		"leader.term{name=invoices}":                      float64(r.Status().Tasks[0].Term),
		"leader.lease":                                    1,
	})
	assert.NotContains(t, got, "leader.leading{name=invoices,namespace=}", "the namespace is known now")
	assert.Positive(t, got["leader.leadership.age{name=invoices}"])
	assert.Positive(t, got["leader.tries"])
	assert.Positive(t, got["leader.proof.age"])
	require.Eventually(t, func() bool { return r.Status().Counts.Proofs > 2 }, soon, time.Millisecond)
	before := r.Status()
	got = r.collect(t)
	assert.GreaterOrEqual(t, got["leader.proofs"], float64(before.Counts.Proofs))
	assert.GreaterOrEqual(t, got["leader.proof.time"], before.Counts.ProofTime.Seconds())
	assert.Positive(t, got["leader.proof.last_duration"])
	assert.Zero(t, got["leader.proof.errors"])

	_, _ = start(t, r.Leader, obey)
	r.has(t, points{"leader.calls{name=invoices}": 2})
	stop()
	r.has(t, points{
		"leader.transitions{event=stopping,name=invoices,reason=caller}": 1,
		"leader.tasks{state=stopping}":                                   1,
	})
	leave()
	require.ErrorIs(t, get(t, ended), context.Canceled)
	got = r.has(t, points{
		"leader.calls{name=invoices}":                                      1,
		"leader.transitions{event=gained,name=invoices}":                   2,
		"leader.transitions{event=stopping,name=invoices,reason=caller}":   1,
		"leader.transitions{event=released,name=invoices,reason=caller}":   1,
		"leader.leadership.duration.count{event=released,name=invoices}":   1,
		"leader.transitions{event=lost,name=invoices,reason=connection}":   0,
		"leader.transitions{event=released,name=invoices,reason=returned}": 0,
		"leader.wait.duration.count{name=invoices}":                        2,
		"leader.session.transitions{event=disconnected,reason=connection}": 0,
		"leader.session.transitions{event=disconnected}":                   0,
		"leader.transitions{event=stopping,name=invoices,reason=handover}": 0,
		"leader.transitions{event=overrun,name=invoices}":                  0,
		"leader.session.transitions{event=unreachable}":                    0,
		"leader.transitions{event=failed,name=invoices}":                   0,
		"leader.transitions{event=delayed,name=invoices}":                  0,
		"leader.transitions{event=stopping,name=invoices,reason=resigned}": 0,
		"leader.transitions{event=released,name=invoices,reason=resigned}": 0,
		"leader.transitions{event=lost,name=invoices,reason=lease}":        0,
		"leader.session.transitions{event=disconnected,reason=session}":    0,
		"leader.session.retired":                                           0,
		"leader.try.errors":                                                0,
	})
	assert.Zero(t, got["leader.events.missed"])
	assert.Positive(t, got["leader.leadership.duration.sum{event=released,name=invoices}"])
	require.NoError(t, r.Resign(t.Context()))
	got = r.has(t, points{ // the last collection, of a provider that is shut down
		"leader.leading{name=invoices}":                                    0,
		"leader.calls{name=invoices}":                                      0,
		"leader.session.connected":                                         0,
		"leader.transitions{event=stopping,name=invoices,reason=resigned}": 1,
		"leader.transitions{event=released,name=invoices,reason=resigned}": 1,
		"leader.session.transitions{event=disconnected}":                   1,
	})
	assert.NotContains(t, got, "leader.term{name=invoices}")
	assert.NotContains(t, got, "leader.leadership.age{name=invoices}")
	assert.NotContains(t, got, "leader.proof.age")
}

// TestMetricsAreNeverOld: what happened before a collection is in it, without a wait.
func TestMetricsAreNeverOld(t *testing.T) {
	r := newRig(t, quick(), leaderotel.Options{})
	for n := 1.0; n <= 100; n++ {
		require.NoError(t, r.Run(t.Context(), name, func(context.Context) error {
			require.InDelta(t, n, r.collect(t)["leader.transitions{event=gained,name=invoices}"], 0)
			return nil
		}))
		got := r.collect(t)
		require.InDelta(t, n, got["leader.transitions{event=released,name=invoices,reason=returned}"], 0)
		require.InDelta(t, n, got["leader.leadership.duration.count{event=released,name=invoices}"], 0)
	}
}

func TestMetricsTellLossesByReason(t *testing.T) {
	for fault, cause := range map[string]func(*leadertest.Session){
		"connection": (*leadertest.Session).End,
		"lease":      (*leadertest.Session).Cut,
		"lock":       func(s *leadertest.Session) { s.Take(leader.Key(leadertest.Namespace, name)) },
	} {
		t.Run(fault, func(t *testing.T) {
			r := newRig(t, quick(), leaderotel.Options{})
			start(t, r.Leader, obey)
			leads(t, r.Leader)
			cause(r.store.Session("web-1"))
			losses := 1.0
			if fault == "lock" { // the session lives
				losses = 0
			}
			got := r.has(t, points{
				"leader.transitions{event=lost,name=invoices,reason=" + fault + "}": 1,
				"leader.leadership.duration.count{event=lost,name=invoices}":        1,
				"leader.session.losses": losses,
			})
			assert.InDelta(t, losses, got["leader.session.transitions{event=disconnected,reason="+fault+"}"], 0)
			for k, v := range got {
				if strings.HasPrefix(k, "leader.transitions{event=released") {
					assert.Zero(t, v, k)
				}
			}
		})
	}
}

func TestMetricsOfTrouble(t *testing.T) {
	r := newRig(t, quick(), leaderotel.Options{})
	r.store.Refuse(errors.New("too many connections"))
	start(t, r.Leader, obey)
	r.has(t, points{
		"leader.tasks{namespace=,state=connecting}":                1,
		"leader.leading{name=invoices,namespace=}":                 0,
		"leader.session.connected{namespace=}":                     0,
		"leader.session.transitions{event=unreachable,namespace=}": 1,
	})
	require.Eventually(t, func() bool {
		return r.collect(t)["leader.session.connect.errors{namespace=}"] >= 1
	}, soon, time.Millisecond)
	r.store.Refuse(nil)
	r.has(t, points{"leader.leading{name=invoices}": 1, "leader.tasks{state=connecting}": 0})
}

func TestMetricsOfAnOverrun(t *testing.T) {
	opts := quick()
	opts.StopTimeout = 10 * time.Millisecond
	r := newRig(t, opts, leaderotel.Options{})
	task, leave := stubborn(t, errors.New("disk full"))
	stop, ended := start(t, r.Leader, task)
	leads(t, r.Leader)
	stop()
	r.has(t, points{
		"leader.transitions{event=overrun,name=invoices}": 1,
		"leader.tasks{state=overrun}":                     1,
		"leader.leading{name=invoices}":                   0,
		"leader.running{name=invoices}":                   1,
	})
	leave()
	require.ErrorIs(t, get(t, ended), context.Canceled)
	r.has(t, points{
		"leader.transitions{event=failed,name=invoices}":                 1,
		"leader.transitions{event=released,name=invoices,reason=caller}": 1,
		"leader.tasks{state=overrun}":                                    0,
		"leader.running{name=invoices}":                                  0,
	})
}

func TestMetricsOfAStepDown(t *testing.T) {
	r := newRig(t, quick(), leaderotel.Options{})
	start(t, r.Leader, func(context.Context) error { return leader.StepDown(errors.New("no disk"), time.Hour) })
	r.has(t, points{
		"leader.transitions{event=stepped_down,name=invoices}": 1,
		"leader.transitions{event=gained,name=invoices}":       1,
		"leader.tasks{state=cooling}":                          1,
		"leader.leading{name=invoices}":                        0,
	})
}

func TestMetricsOfAStandby(t *testing.T) {
	r := newRig(t, quick(), leaderotel.Options{})
	opts := quick()
	opts.Node = "web-2"
	first := newLeader(t, r.store.Backend(), opts)
	stop, _ := start(t, first, obey)
	leads(t, first)
	start(t, r.Leader, obey)
	r.has(t, points{
		"leader.transitions{event=waiting,name=invoices}": 1,
		"leader.leading{name=invoices}":                   0,
		"leader.tasks{state=contending}":                  1,
		"leader.session.connected":                        1,
	})
	stop()
	r.has(t, points{"leader.leading{name=invoices}": 1, "leader.wait.duration.count{name=invoices}": 1})
}

func TestMetricsOnSQLite(t *testing.T) {
	r := instrument(t, onSQLite(t), quick(), leaderotel.Options{Names: []string{name}})
	stop, ended := start(t, r.Leader, obey)
	leads(t, r.Leader)
	r.has(t, points{
		"leader.leading{name=invoices,namespace=main}":                  1,
		"leader.transitions{event=gained,name=invoices,namespace=main}": 1,
		"leader.session.connects{namespace=main}":                       1,
		"leader.term{name=invoices,namespace=main}":                     float64(r.Status().Tasks[0].Term),
	})
	stop()
	require.ErrorIs(t, get(t, ended), context.Canceled)
	r.has(t, points{
		"leader.leading{name=invoices,namespace=main}":                                  0,
		"leader.transitions{event=released,name=invoices,namespace=main,reason=caller}": 1,
	})
}
