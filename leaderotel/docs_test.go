// SPDX-License-Identifier: MIT

package leaderotel_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderotel"
)

// The code of docs/metrics.md, which TestDocsSnippetsAreCode of the root module looks for.

func _(stopping context.Context, lead *leader.Leader, provider *sdkmetric.MeterProvider) error {
	telemetry, err := leaderotel.Instrument(lead, leaderotel.Options{Names: []string{"outbox", "report"}})
	if err != nil {
		return err
	}

	err = lead.Resign(stopping)
	err = errors.Join(err, provider.Shutdown(stopping)) // exports what there is to tell of that
	err = errors.Join(err, telemetry.Stop())
	return err
}

func _(
	ctx context.Context, lead *leader.Leader, telemetry *leaderotel.Instrumentation,
	makeReport, loadOutbox, deliverMail func(context.Context) error,
) (err error) {
	err = lead.Run(ctx, "report", telemetry.Task("report", makeReport)) // a job
	if err != nil {
		return err
	}
	err = lead.Run(ctx, "outbox", func(ctx context.Context) error { // a service
		if err := telemetry.Part("outbox", "load", loadOutbox)(ctx); err != nil {
			return err
		}
		for ctx.Err() == nil {
			if err := telemetry.Part("outbox", "deliver", deliverMail)(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// page is docs/metrics.md.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics.md")
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// table returns the cells of the rows below each header that begins with first, without their backquotes.
func table(t *testing.T, first string) (rows [][]string) {
	t.Helper()
	inside := false
	for line := range strings.SplitSeq(page(t), "\n") {
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		cells := strings.Split(strings.Trim(strings.ReplaceAll(line, "`", ""), "| "), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if inside && cells[0] != "---" {
			rows = append(rows, cells)
		}
		inside = inside || strings.HasPrefix(line, "| "+first+" |")
	}
	require.NotEmpty(t, rows, first)
	return rows
}

// list returns what a cell lists, sorted.
func list(cell string) []string {
	if cell == "" {
		return []string{}
	}
	all := strings.Split(cell, ", ")
	slices.Sort(all)
	return all
}

// row is what the page says of an instrument beside its meaning.
type row struct {
	kind, unit string
	attributes []string
}

// TestDocsHaveAllInstruments, with their kinds, units and attributes, and no others.
func TestDocsHaveAllInstruments(t *testing.T) {
	r := newRig(t, quick(), leaderotel.Options{Names: []string{name}})
	require.NoError(t, r.Run(t.Context(), name, func(context.Context) error { return nil }))
	start(t, r.Leader, obey)
	leads(t, r.Leader)
	require.Eventually(t, func() bool { return r.Status().Counts.Proofs > 0 }, soon, time.Millisecond)
	found := make(map[string]row)
	for _, m := range collect(t, r.reader) {
		found[m.Name] = rowOf(t, m)
	}
	said := make(map[string]row)
	for _, cells := range table(t, "instrument") {
		require.Len(t, cells, 6, cells[0])
		assert.NotContains(t, said, cells[0])
		said[cells[0]] = row{cells[2], cells[3], list(cells[4])}
	}
	assert.Equal(t, found, said)
}

func rowOf(t *testing.T, m metricdata.Metrics) row {
	t.Helper()
	r := row{unit: m.Unit}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		r.kind, r.attributes = kindOf(data.IsMonotonic), attributesOf(data.DataPoints)
	case metricdata.Sum[float64]:
		r.kind, r.attributes = kindOf(data.IsMonotonic), attributesOf(data.DataPoints)
	case metricdata.Gauge[int64]:
		r.kind, r.attributes = "gauge", attributesOf(data.DataPoints)
	case metricdata.Gauge[float64]:
		r.kind, r.attributes = "gauge", attributesOf(data.DataPoints)
	case metricdata.Histogram[float64]:
		r.kind, r.attributes = "histogram", keysOf(nil)
		for _, d := range data.DataPoints {
			r.attributes = keysOf(r.attributes, d.Attributes.ToSlice()...)
		}
	default:
		require.Failf(t, "unknown data", "%T", data)
	}
	return r
}

func kindOf(monotonic bool) string {
	if monotonic {
		return "counter"
	}
	return "up-down"
}

func attributesOf[N int64 | float64](data []metricdata.DataPoint[N]) []string {
	keys := keysOf(nil)
	for _, d := range data {
		keys = keysOf(keys, d.Attributes.ToSlice()...)
	}
	return keys
}

// keysOf adds the keys of attributes to keys, sorted and each once, but not the namespace, which all have.
func keysOf(keys []string, attributes ...attribute.KeyValue) []string {
	all := append([]string{}, keys...)
	for _, a := range attributes {
		if a.Key != leaderotel.KeyNamespace && !slices.Contains(all, string(a.Key)) {
			all = append(all, string(a.Key))
		}
	}
	slices.Sort(all)
	return all
}

// TestDocsHaveAllEvents, with their reasons, as they are shown before anything happens; and what each reason means.
func TestDocsHaveAllEvents(t *testing.T) {
	r := newRig(t, quick(), leaderotel.Options{Names: []string{name}})
	found := make(map[string][]string)
	series := regexp.MustCompile(
		`^leader\.(session\.)?transitions\{event=(\w+),(?:name=\w+,)?namespace=(?:,reason=(\w+))?\}$`)
	for k := range r.collect(t) {
		m := series.FindStringSubmatch(k)
		if m == nil {
			require.NotContains(t, k, "transitions")
			continue
		}
		event := m[1] + m[2]
		found[event] = append(found[event], m[3])
	}
	var known []string
	for _, cells := range table(t, "reason") {
		known = append(known, list(cells[0])...)
	}
	said := make(map[string][]string)
	used := make(map[string]bool)
	for _, of := range []struct{ header, prefix string }{{"of a name", ""}, {"of the session", "session."}} {
		for _, cells := range table(t, of.header) {
			reasons := []string{""}
			if cells[1] != "" {
				reasons = list(strings.Replace(cells[1], "none", "", 1))
			}
			for _, reason := range reasons {
				used[reason] = true
				if reason != "" {
					assert.Contains(t, known, reason, cells[0])
				}
			}
			said[of.prefix+cells[0]] = reasons
		}
	}
	for _, reasons := range found {
		slices.Sort(reasons)
	}
	assert.Equal(t, found, said)
	for _, reason := range known {
		assert.True(t, used[reason], reason)
	}
}

// TestDocsHaveAllOfSpans: their attributes and events.
func TestDocsHaveAllOfSpans(t *testing.T) {
	opts := quick()
	opts.StopTimeout = 10 * time.Millisecond
	r, spans := traced(t, opts)
	slow, leave := stubborn(t, errors.New("disk full"))
	first := make(chan struct{}, 1)
	first <- struct{}{}
	task, began := inside(func(ctx context.Context) error {
		select {
		case <-first:
			return slow(ctx)
		default:
			return obey(ctx)
		}
	})
	stop, ended := start(t, r.Leader, r.Task(name, r.Part(name, "load", task)))
	get(t, began)
	r.store.Session("web-1").End()
	r.has(t, points{
		"leader.transitions{event=lost,name=invoices,reason=connection}": 1,
		"leader.transitions{event=overrun,name=invoices}":                1,
	})
	leave()
	r.has(t, points{"leader.leading{name=invoices}": 1}) // again
	stop()
	require.ErrorIs(t, get(t, ended), context.Canceled)
	require.Len(t, spans.Ended(), 4)

	found := make(map[string][2][]string)
	for _, span := range spans.Ended() {
		kind := strings.NewReplacer("load", "PART", name, "NAME").Replace(span.Name())
		attributes := keysOf(found[kind][0], span.Attributes()...)
		all := found[kind][1]
		for _, e := range span.Events() {
			if !slices.Contains(all, e.Name) {
				all = append(all, e.Name)
			}
		}
		slices.Sort(all)
		found[kind] = [2][]string{attributes, all}
	}
	said := make(map[string][2][]string)
	for _, cells := range table(t, "span") {
		attributes := slices.DeleteFunc(list(cells[2]), func(key string) bool {
			return key == string(leaderotel.KeyNamespace)
		})
		said[cells[0]] = [2][]string{attributes, list(cells[3])}
	}
	assert.Equal(t, found, said)
}
