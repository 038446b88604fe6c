// SPDX-License-Identifier: MIT

package leaderotel_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderotel"
	"github.com/oxygenhub/leader/leadertest"
)

// traced returns a rig whose spans are recorded.
func traced(t *testing.T, opts leader.Options, extra ...attribute.KeyValue) (rig, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	return newRig(t, opts, leaderotel.Options{TracerProvider: provider, Attributes: extra}), spans
}

// the returns the only span, when it has ended.
func the(t *testing.T, spans *tracetest.SpanRecorder) sdktrace.ReadOnlySpan {
	t.Helper()
	require.Eventually(t, func() bool { return len(spans.Ended()) > 0 }, soon, time.Millisecond)
	require.Len(t, spans.Ended(), 1)
	return spans.Ended()[0]
}

// events are what a span has heard, as "lost connection".
func events(span sdktrace.ReadOnlySpan) (all []string) {
	for _, e := range span.Events() {
		text := e.Name
		for _, a := range e.Attributes {
			if a.Key == leaderotel.KeyReason || a.Key == "exception.message" {
				text += " " + a.Value.AsString()
			}
		}
		all = append(all, text)
	}
	return all
}

func TestTaskIsASpan(t *testing.T) {
	r, spans := traced(t, quick(), attribute.String("place", "east"))
	var term leader.Term
	require.NoError(t, r.Run(t.Context(), name, r.Task(name, func(ctx context.Context) error {
		term, _ = leader.TermOf(ctx)
		require.True(t, trace.SpanFromContext(ctx).IsRecording())
		return r.Part(name, "load", func(context.Context) error { return nil })(ctx)
	})))
	require.Len(t, spans.Ended(), 2)
	part, span := spans.Ended()[0], spans.Ended()[1]
	assert.Equal(t, "lead invoices", span.Name())
	assert.Equal(t, []attribute.KeyValue{
		attribute.String("place", "east"), leaderotel.KeyName.String(name), leaderotel.KeyNode.String("web-1"),
		leaderotel.KeyNamespace.String(leadertest.Namespace), leaderotel.KeyTerm.Int64(int64(term)),
	}, span.Attributes())
	assert.Equal(t, codes.Unset, span.Status().Code)
	assert.Empty(t, span.Events())
	assert.Equal(t, "load invoices", part.Name())
	assert.Equal(t, span.SpanContext().SpanID(), part.Parent().SpanID())
	assert.Contains(t, part.Attributes(), leaderotel.KeyTerm.Int64(int64(term)))
}

func TestSpanOfAServicesRoundHasNoParent(t *testing.T) {
	r, spans := traced(t, quick())
	require.NoError(t, r.Run(t.Context(), name, func(ctx context.Context) error {
		round := r.Part(name, "round", func(context.Context) error { return nil })
		return errors.Join(round(ctx), round(ctx))
	}))
	require.Len(t, spans.Ended(), 2)
	assert.False(t, spans.Ended()[0].Parent().IsValid())
	assert.NotEqual(t, spans.Ended()[0].SpanContext().TraceID(), spans.Ended()[1].SpanContext().TraceID())
}

func TestSpanTellsOfALoss(t *testing.T) {
	r, spans := traced(t, quick())
	task, began := inside(func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	start(t, r.Leader, r.Task(name, task))
	get(t, began)
	r.store.Session("web-1").End()
	span := the(t, spans)
	assert.Equal(t, []string{"lost connection"}, events(span), "nor the error of a task that was told")
	assert.Equal(t, codes.Error, span.Status().Code)
	assert.Contains(t, span.Status().Description, "leadership lost")
	assert.Contains(t, span.Attributes(), leaderotel.KeyReason.String("connection"))
}

func TestSpanTellsOfAStopAndAnOverrun(t *testing.T) {
	opts := quick()
	opts.StopTimeout = 10 * time.Millisecond
	r, spans := traced(t, opts)
	slow, leave := stubborn(t, errors.New("disk full"))
	task, began := inside(slow)
	_, ended := start(t, r.Leader, r.Task(name, task))
	get(t, began)
	resigned := make(chan error, 1)
	go func() { resigned <- r.Resign(context.Background()) }()
	r.has(t, points{"leader.transitions{event=overrun,name=invoices}": 1})
	leave()
	require.ErrorIs(t, get(t, ended), leader.ErrResigned)
	require.NoError(t, get(t, resigned))
	span := the(t, spans)
	assert.Equal(t, []string{"stopping resigned", "overrun resigned", "exception disk full"}, events(span))
	assert.Equal(t, codes.Error, span.Status().Code)
	assert.Equal(t, "disk full", span.Status().Description)
}

func TestSpanOfATaskThatObeys(t *testing.T) {
	r, spans := traced(t, quick())
	task, began := inside(func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	stop, ended := start(t, r.Leader, r.Task(name, task))
	get(t, began)
	stop()
	require.ErrorIs(t, get(t, ended), context.Canceled)
	span := the(t, spans)
	assert.Equal(t, []string{"stopping caller"}, events(span))
	assert.Equal(t, codes.Unset, span.Status().Code)
}

func TestSpanTellsOfAnError(t *testing.T) {
	r, spans := traced(t, quick())
	failed := errors.New("disk full")
	require.ErrorIs(t, r.Run(t.Context(), name, r.Task(name, func(context.Context) error { return failed })), failed)
	span := the(t, spans)
	assert.Equal(t, []string{"exception disk full"}, events(span))
	assert.Equal(t, codes.Error, span.Status().Code)
}

func TestSpanEndsWhenATaskUnwinds(t *testing.T) {
	for what, unwind := range map[string]func(){"panic": func() { panic("at the disk") }, "Goexit": runtime.Goexit} {
		t.Run(what, func(t *testing.T) {
			r, spans := traced(t, quick())
			gone := make(chan any, 1)
			go func() {
				defer func() { gone <- recover() }()
				_ = r.Run(context.Background(), name, r.Task(name, func(context.Context) error {
					unwind()
					return nil
				}))
			}()
			if panicked := get(t, gone); what == "panic" {
				assert.Equal(t, "at the disk", panicked)
			} else {
				assert.Nil(t, panicked)
			}
			span := the(t, spans)
			assert.Equal(t, codes.Error, span.Status().Code)
			assert.Contains(t, span.Status().Description, "a panic or runtime.Goexit")
			key := leader.Key(leadertest.Namespace, name)
			require.Eventually(t, func() bool { return r.store.Holder(key) == nil }, soon, time.Millisecond)
		})
	}
}

// TestSpanAfterALossDoesNotWait: a part that begins when the loss was told already hears no more of it.
func TestSpanAfterALossDoesNotWait(t *testing.T) {
	r, spans := traced(t, quick())
	task, leave := stubborn(t, nil)
	var first sync.Once
	start(t, r.Leader, func(ctx context.Context) error {
		var err error
		first.Do(func() {
			err = task(ctx)
			for range 5 { // the machine may be slow, but not in each of them
				err = errors.Join(err, r.Part(name, "last", func(context.Context) error { return nil })(ctx))
			}
		})
		return errors.Join(err, obey(ctx))
	})
	leads(t, r.Leader)
	r.store.Session("web-1").End()
	r.has(t, points{"leader.transitions{event=lost,name=invoices,reason=connection}": 1})
	leave()
	require.Eventually(t, func() bool { return len(spans.Ended()) == 5 }, soon, time.Millisecond)
	shortest := time.Hour
	for _, span := range spans.Ended() {
		assert.Equal(t, codes.Error, span.Status().Code)
		shortest = min(shortest, span.EndTime().Sub(span.StartTime()))
	}
	assert.Less(t, shortest, 100*time.Millisecond)
}

// TestSpanHearsOfItsOwnLossOnly: an SDK holds up the goroutine that reads events, until the name is led anew.
func TestSpanHearsOfItsOwnLossOnly(t *testing.T) {
	t.Cleanup(func() { noneLeft(t) })
	reader, wait := sdkmetric.NewManualReader(), make(chan struct{})
	spans := tracetest.NewSpanRecorder()
	r := newRig(t, quick(), leaderotel.Options{
		MeterProvider:  slow{sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), wait},
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
	})
	r.reader = reader
	began := make(chan struct{}, 2)
	stop, ended := start(t, r.Leader, r.Task(name, func(ctx context.Context) error {
		began <- struct{}{}
		return obey(ctx)
	}))
	get(t, began)
	r.store.Session("web-1").End()
	get(t, began)
	close(wait)
	r.has(t, points{"leader.transitions{event=lost,name=invoices,reason=connection}": 1})
	stop()
	require.ErrorIs(t, get(t, ended), context.Canceled)
	require.Len(t, spans.Ended(), 2)
	second := spans.Ended()[1]
	assert.Equal(t, []string{"stopping caller"}, events(second))
	assert.Equal(t, codes.Unset, second.Status().Code)
	assert.NotContains(t, second.Attributes(), leaderotel.KeyReason.String("connection"))
}
