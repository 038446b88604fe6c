// SPDX-License-Identifier: MIT

package leaderotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/oxygenhub/leader/leaderotel"
	"github.com/oxygenhub/leader/leadertest"
)

func TestStopUnregisters(t *testing.T) {
	r := newRig(t, quick(), leaderotel.Options{Names: []string{name}})
	require.NotEmpty(t, r.collect(t))
	require.NoError(t, r.Stop())
	noneLeft(t)
	require.Empty(t, r.collect(t))
	require.NoError(t, r.Stop(), "again")
	require.NoError(t, r.Run(t.Context(), name, r.Task(name, func(context.Context) error { return nil })))
}

func TestInstrumentRefusesBadInput(t *testing.T) {
	_, err := leaderotel.Instrument(nil, leaderotel.Options{})
	require.EqualError(t, err, "leaderotel: the Leader is nil: make one with leader.New")
	l := newLeader(t, leadertest.NewStore().Backend(), quick())
	for field, opts := range map[string]leaderotel.Options{
		"Names has \"\"":  {Names: []string{""}},
		"MaxNames is 1: ": {Names: []string{"a", "b"}, MaxNames: 1},
		"MaxNames is -1":  {MaxNames: -1},
	} {
		_, err := leaderotel.Instrument(l, opts)
		require.ErrorContains(t, err, "leaderotel: Options."+field)
	}
	for _, provider := range []broken{{create: true}, {register: true}} {
		_, err := leaderotel.Instrument(l, leaderotel.Options{MeterProvider: provider})
		require.ErrorIs(t, err, errBroken)
	}
	noneLeft(t)
}

var errBroken = errors.New("broken")

// broken is a provider that fails.
type broken struct {
	metric.MeterProvider
	create, register bool
}

func (b broken) Meter(string, ...metric.MeterOption) metric.Meter {
	return brokenMeter{sdkmetric.NewMeterProvider().Meter(""), b}
}

type brokenMeter struct {
	metric.Meter
	broken
}

func (m brokenMeter) Float64Histogram(
	name string, opts ...metric.Float64HistogramOption,
) (metric.Float64Histogram, error) {
	h, err := m.Meter.Float64Histogram(name, opts...)
	if m.create {
		err = errBroken
	}
	return h, err
}

func (m brokenMeter) RegisterCallback(f metric.Callback, observed ...metric.Observable) (metric.Registration, error) {
	if m.register {
		return nil, errBroken
	}
	return m.Meter.RegisterCallback(f, observed...)
}

func TestTwoLeadersOfOneProvider(t *testing.T) {
	t.Cleanup(func() { noneLeft(t) })
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	var rigs []rig
	for _, node := range []string{"east", "west"} {
		opts := quick()
		opts.Node = node
		rigs = append(rigs, newRig(t, opts, leaderotel.Options{
			MeterProvider: provider, Names: []string{name}, Attributes: []attribute.KeyValue{leaderotel.KeyNode.String(node)},
		}))
		rigs[len(rigs)-1].reader = reader
	}
	start(t, rigs[1].Leader, obey)
	leads(t, rigs[1].Leader)
	rigs[0].has(t, points{
		"leader.leading{name=invoices,namespace=,node=east}":                       0, // it has no connection yet
		"leader.leading{name=invoices,node=west}":                                  1,
		"leader.transitions{event=gained,name=invoices,namespace=,node=east}":      0,
		"leader.transitions{event=gained,name=invoices,node=west}":                 1,
		"leader.wait.duration.count{name=invoices,node=west}":                      1,
		"leader.session.connected{namespace=,node=east}":                           0,
		"leader.session.connected{node=west}":                                      1,
		"leader.session.transitions{event=connected,node=west}":                    1,
		"leader.session.transitions{event=connected,namespace=,node=east}":         0,
		"leader.tasks{node=west,state=leading}":                                    1,
		"leader.events.missed{node=west}":                                          0,
		"leader.transitions{event=released,name=invoices,node=west,reason=caller}": 0,
	})
	require.NoError(t, rigs[1].Stop())
	for k := range rigs[0].collect(t) {
		assert.NotContains(t, k, "{event=gained,name=invoices,node=west}")
	}
	assert.Contains(t, rigs[0].collect(t), "leader.leading{name=invoices,namespace=,node=east}", "the other one stays")
}

func TestNamesBeyondTheMostShareALabel(t *testing.T) {
	r := newRig(t, quick(), leaderotel.Options{Names: []string{"a"}, MaxNames: 2})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for n := range 5 {
		running.Go(func() { _ = r.Run(ctx, fmt.Sprintf("job-%d", n), obey) })
		require.Eventually(t, func() bool { return len(r.Leading()) == n+1 }, soon, time.Millisecond)
		r.collect(t)
	}
	got := r.has(t, points{
		"leader.leading{name=a}":                        0,
		"leader.leading{name=job-0}":                    1,
		"leader.leading{name=_OTHER}":                   4,
		"leader.transitions{event=gained,name=_OTHER}":  4,
		"leader.wait.duration.count{name=_OTHER}":       4,
		"leader.tasks{state=leading}":                   5,
		"leader.transitions{event=overrun,name=_OTHER}": 0,
	})
	assert.NotContains(t, got, "leader.leading{name=job-1}")
	assert.NotContains(t, got, "leader.leadership.age{name=_OTHER}")
}

// slow is a provider whose histograms wait.
type slow struct {
	metric.MeterProvider
	wait chan struct{}
}

func (p slow) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	return slowMeter{p.MeterProvider.Meter(name, opts...), p.wait}
}

type slowMeter struct {
	metric.Meter
	wait chan struct{}
}

func (m slowMeter) Float64Histogram(
	name string, opts ...metric.Float64HistogramOption,
) (metric.Float64Histogram, error) {
	h, err := m.Meter.Float64Histogram(name, opts...)
	return slowHistogram{h, m.wait}, err
}

type slowHistogram struct {
	metric.Float64Histogram
	wait chan struct{}
}

func (h slowHistogram) Record(ctx context.Context, value float64, opts ...metric.RecordOption) {
	<-h.wait
	h.Float64Histogram.Record(ctx, value, opts...)
}

// TestASlowReaderIsSeen: it delays neither the Leader nor, for long, a collection, and what it has missed is counted.
func TestASlowReaderIsSeen(t *testing.T) {
	t.Cleanup(func() { noneLeft(t) })
	reader, wait := sdkmetric.NewManualReader(), make(chan struct{})
	provider := slow{sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), wait}
	r := newRig(t, quick(), leaderotel.Options{MeterProvider: provider})
	r.reader = reader
	const runs = 1000
	for range runs { // two events each
		require.NoError(t, r.Run(t.Context(), name, func(context.Context) error { return nil }))
	}
	got := r.collect(t)
	assert.Zero(t, got["leader.events.missed"], "it waits in the first one")
	assert.Zero(t, got["leader.transitions{event=released,name=invoices,reason=returned}"])
	assert.GreaterOrEqual(t, got["leader.session.connects"], 1.0, "from Status")
	close(wait)
	got = r.collect(t)
	assert.Positive(t, got["leader.events.missed"])
	var counted float64
	for k, v := range got {
		if strings.HasPrefix(k, "leader.transitions{") || strings.HasPrefix(k, "leader.session.transitions{") {
			counted += v
		}
	}
	assert.GreaterOrEqual(t, counted+got["leader.events.missed"], 2.0*runs)
	assert.Less(t, counted, 2.0*runs)
}

// TestAllAtOnce: jobs that end, sessions that end, collections of two providers, and one that is stopped meanwhile.
func TestAllAtOnce(t *testing.T) {
	r := newRig(t, quick(), leaderotel.Options{})
	other := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(other))
	second, err := leaderotel.Instrument(r.Leader, leaderotel.Options{MeterProvider: provider})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	var runs atomic.Int64
	for n := range 4 {
		job := fmt.Sprintf("job-%d", n)
		all.Go(func() {
			for ctx.Err() == nil {
				_, _ = r.Try(ctx, job, r.Task(job, func(context.Context) error {
					runs.Add(1)
					return nil
				}))
			}
		})
		all.Go(func() {
			for ctx.Err() == nil {
				collect(t, []sdkmetric.Reader{r.reader, other}[n%2])
			}
		})
	}
	for n := range int64(3) {
		require.Eventually(t, func() bool { return runs.Load() > 100*n && r.Status().Connected }, soon, time.Millisecond)
		if s := r.store.Session("web-1"); s != nil {
			s.End()
		}
	}
	assert.NoError(t, second.Stop())
	require.Eventually(t, func() bool { return runs.Load() > 400 }, soon, time.Millisecond)
	stop()
	all.Wait()
	got := r.collect(t)
	var gains, ends float64
	for k, v := range got {
		switch {
		case strings.HasPrefix(k, "leader.transitions{event=gained"):
			gains += v
		case strings.HasPrefix(k, "leader.transitions{event=lost"), strings.HasPrefix(k, "leader.transitions{event=released"):
			ends += v
		}
	}
	assert.Greater(t, gains+got["leader.events.missed"], 400.0)
	if got["leader.events.missed"] == 0 {
		assert.InDelta(t, gains, ends, 0, "each leadership has ended, once")
		assert.InDelta(t, runs.Load(), gains, 0)
	}
}
