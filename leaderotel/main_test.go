// SPDX-License-Identifier: MIT

package leaderotel_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	_ "modernc.org/sqlite"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/leaderotel"
	"github.com/oxygenhub/leader/leadertest"
)

const (
	name = "invoices"
	// soon is what "at once" may take on a busy machine.
	soon = 15 * time.Second
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func quick() leader.Options {
	return leader.Options{
		Node: "web-1", Terms: true, Retry: 10 * time.Millisecond, Check: 20 * time.Millisecond, Lease: time.Second,
		SessionTimeout: 2 * time.Second,
	}
}

// newLeader returns one that resigns at the end of the test.
func newLeader(tb testing.TB, backend leader.Backend, opts leader.Options) *leader.Leader {
	tb.Helper()
	l, err := leader.New(backend, opts)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		assert.NoError(tb, l.Resign(ctx))
	})
	return l
}

func onSQLite(tb testing.TB) leader.Backend {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "app.db")
	db, err := sql.Open("sqlite", file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, db.Close()) })
	return leader.SQLite(db)
}

// rig is a Leader whose metrics a reader collects.
type rig struct {
	*leader.Leader
	store  *leadertest.Store
	reader sdkmetric.Reader
	*leaderotel.Instrumentation
}

// newRig returns one in memory that is stopped at the end of the test.
func newRig(tb testing.TB, lopts leader.Options, opts leaderotel.Options) rig {
	tb.Helper()
	store := leadertest.NewStore()
	r := instrument(tb, store.Backend(), lopts, opts)
	r.store = store
	return r
}

func instrument(tb testing.TB, backend leader.Backend, lopts leader.Options, opts leaderotel.Options) rig {
	tb.Helper()
	r := rig{reader: sdkmetric.NewManualReader()}
	if opts.MeterProvider == nil { // else it may be one of several
		tb.Cleanup(func() { noneLeft(tb) })
		provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
		tb.Cleanup(func() { assert.NoError(tb, provider.Shutdown(context.Background())) })
		opts.MeterProvider = provider
	}
	r.Leader = newLeader(tb, backend, lopts)
	var err error
	r.Instrumentation, err = leaderotel.Instrument(r.Leader, opts)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, r.Stop()) })
	return r
}

// points are the values of a collection: "leader.tries{leader.namespace=test}", and ".count" and ".sum" of histograms.
type points map[string]float64

func (r rig) collect(tb testing.TB) points {
	tb.Helper()
	return pointsOf(tb, collect(tb, r.reader))
}

func collect(tb testing.TB, reader sdkmetric.Reader) []metricdata.Metrics {
	tb.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(tb, reader.Collect(context.Background(), &all))
	var found []metricdata.Metrics
	for _, s := range all.ScopeMetrics {
		found = append(found, s.Metrics...)
	}
	return found
}

func pointsOf(tb testing.TB, metrics []metricdata.Metrics) points {
	tb.Helper()
	p := make(points)
	for _, m := range metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			add(p, m.Name, data.DataPoints)
		case metricdata.Sum[float64]:
			add(p, m.Name, data.DataPoints)
		case metricdata.Gauge[int64]:
			add(p, m.Name, data.DataPoints)
		case metricdata.Gauge[float64]:
			add(p, m.Name, data.DataPoints)
		case metricdata.Histogram[float64]:
			for _, d := range data.DataPoints {
				p[key(m.Name+".count", d.Attributes)] = float64(d.Count)
				p[key(m.Name+".sum", d.Attributes)] = d.Sum
			}
		default:
			require.Failf(tb, "unknown data", "%T", data)
		}
	}
	return p
}

func add[N int64 | float64](p points, metric string, data []metricdata.DataPoint[N]) {
	for _, d := range data {
		p[key(metric, d.Attributes)] = float64(d.Value)
	}
}

// key has the attributes sorted, and none of the namespace of leadertest.
func key(metric string, set attribute.Set) string {
	var attributes []string
	for _, a := range set.ToSlice() {
		if a.Key != leaderotel.KeyNamespace || a.Value.AsString() != leadertest.Namespace {
			attributes = append(attributes, strings.TrimPrefix(string(a.Key), "leader.")+"="+a.Value.String())
		}
	}
	slices.Sort(attributes)
	if len(attributes) == 0 {
		return metric
	}
	return metric + "{" + strings.Join(attributes, ",") + "}"
}

// has waits until a collection has all of want.
func (r rig) has(tb testing.TB, want points) (got points) {
	tb.Helper()
	for end := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
		got = r.collect(tb)
		part := make(points)
		for k := range want {
			if v, ok := got[k]; ok {
				part[k] = v
			}
		}
		if assert.ObjectsAreEqual(want, part) {
			return got
		}
		if time.Now().After(end) {
			require.Equal(tb, want, part)
		}
	}
}

// obey is a task that returns when it is told to.
func obey(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// stubborn is a task that does not heed its context. It returns err when it is let go, or at the end of the test.
func stubborn(tb testing.TB, err error) (task func(context.Context) error, leave func()) {
	tb.Helper()
	left := make(chan struct{})
	return func(context.Context) error {
		select {
		case <-left:
		case <-tb.Context().Done():
		}
		return err
	}, sync.OnceFunc(func() { close(left) })
}

// inside returns task, and what tells when it has begun for the first time: a Leader leads some moments before that.
func inside(task func(context.Context) error) (func(context.Context) error, <-chan struct{}) {
	began := make(chan struct{})
	begin := sync.OnceFunc(func() { close(began) })
	return func(ctx context.Context) error {
		begin()
		return task(ctx)
	}, began
}

// start calls Run of l until stop, or the end of the test.
func start(
	tb testing.TB, l *leader.Leader, task func(context.Context) error,
) (stop context.CancelFunc, ended chan error) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended = make(chan error, 1)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		ended <- l.Run(ctx, name, task)
	}()
	tb.Cleanup(func() {
		cancel()
		<-gone
	})
	return cancel, ended
}

func leads(tb testing.TB, l *leader.Leader) {
	tb.Helper()
	require.Eventually(tb, func() bool { return l.IsLeading(name) }, soon, time.Millisecond)
}

// get waits for something that the test waits for.
func get[T any](tb testing.TB, from <-chan T) (got T) {
	tb.Helper()
	select {
	case got = <-from:
	case <-time.After(soon):
		require.FailNow(tb, "nothing came")
	}
	return got
}

// noneLeft asserts that no goroutine of the package is left, when all of the test has been cleaned up.
func noneLeft(tb testing.TB) {
	tb.Helper()
	buf := make([]byte, 1<<20)
	for end := time.Now().Add(soon); ; time.Sleep(5 * time.Millisecond) {
		stacks := string(buf[:runtime.Stack(buf, true)])
		if !strings.Contains(stacks, "leaderotel.(*") {
			return
		}
		if time.Now().After(end) {
			assert.Fail(tb, "a goroutine has outlived its owner", stacks)
			return
		}
	}
}
