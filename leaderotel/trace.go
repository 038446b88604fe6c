// SPDX-License-Identifier: MIT

package leaderotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/oxygenhub/leader"
)

// listening is how long the end of a span waits for the word of a loss that its task has heard of already. It holds up
// a release, and is needed in full only if an SDK holds up the goroutine that reads events, or if the loss was told while
// the span was being opened.
const listening = 100 * time.Millisecond

// Task returns task with a span of each of its leaderships: "lead " and the name, in the task's context. Give it to
// [leader.Leader.Run] or [leader.Leader.Try] with the same name. The span has the name, namespace, node and, with
// leader.Options.Terms, the term; events "stopping", "lost" and "overrun" when they come; the task's error; and the
// status Error, with the reason, if the lock was lost or if the task returned an error that is not that of being told
// to stop. A panic and runtime.Goexit end the span on their way.
//
// A span is exported when it ends. That of a service which leads for weeks is seen weeks later, or never if the process
// is killed, and all spans of its work are children of it: so Task is for jobs, and [Instrumentation.Part] for
// services.
func (i *Instrumentation) Task(name string, task func(context.Context) error) func(context.Context) error {
	return i.spanned("lead "+name, name, task)
}

// Part returns work, a part of what the task of name does, with a span of each call: part, which should be one of a few
// constants, and the name. The task of a service calls it with its own context, for the takeover, as "load", and for
// each round of its work. The span is as that of [Instrumentation.Task]; it has no parent if the task's context has
// none.
func (i *Instrumentation) Part(name, part string, work func(context.Context) error) func(context.Context) error {
	return i.spanned(part+" "+name, name, work)
}

func (i *Instrumentation) spanned(title, name string, work func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		attributes := i.attributes(i.knownNamespace(), KeyName.String(name), KeyNode.String(i.node))
		if term, ok := leader.TermOf(ctx); ok {
			attributes = append(attributes, KeyTerm.Int64(int64(term)))
		}
		inside, span := i.tracer.Start(ctx, title, trace.WithAttributes(attributes...))
		defer span.End()
		if !span.IsRecording() {
			return work(inside)
		}
		s := i.open(ctx, name, span)
		returned := false
		defer func() {
			i.close(ctx, name, s)
			if !returned { // not recovered: what unwinds keeps its stack, and we do not know what it is
				span.SetStatus(codes.Error, "a panic or runtime.Goexit has ended the task")
			}
		}()
		err := work(inside)
		returned = true
		conclude(ctx, span, err)
		return err
	}
}

// conclude says how the task went.
func conclude(ctx context.Context, span trace.Span, err error) {
	cause := context.Cause(ctx)
	stopped := cause != nil && (errors.Is(err, cause) || errors.Is(err, ctx.Err()))
	if err != nil && !stopped {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
	if errors.Is(cause, leader.ErrLost) { // says more than what came of it
		span.SetStatus(codes.Error, cause.Error())
	}
}

// leadership is a span that hears of what becomes of its name.
type leadership struct {
	span   trace.Span
	opened time.Time     // what is told of before is of another leadership, or not told here
	late   bool          // the context had ended before: no more will be told
	untold func() bool   // stops the watch of the task's context
	told   chan struct{} // closed when the span has heard that the task was told to stop
	lost   chan struct{} // buffer 1: gets one when the span knows why its lock was lost
}

// open has span hear of the events of name, and of the end of ctx.
func (i *Instrumentation) open(ctx context.Context, name string, span trace.Span) *leadership {
	s := &leadership{
		span: span, opened: time.Now(), late: ctx.Err() != nil, told: make(chan struct{}), lost: make(chan struct{}, 1),
	}
	i.mu.Lock()
	if i.spans[name] == nil {
		i.spans[name] = make(map[*leadership]struct{})
	}
	i.spans[name][s] = struct{}{}
	i.mu.Unlock()
	s.untold = context.AfterFunc(ctx, func() { // ends at once: it only adds to the span
		defer close(s.told)
		if cause := context.Cause(ctx); !errors.Is(cause, leader.ErrLost) {
			span.AddEvent(eventName(leader.Stopping), trace.WithAttributes(KeyReason.String(string(reasonOf(cause)))))
		}
	})
	return s
}

// close ends that. It is bounded, as the lock is held for it.
func (i *Instrumentation) close(ctx context.Context, name string, s *leadership) {
	if !s.untold() {
		<-s.told
	}
	if !s.late && errors.Is(context.Cause(ctx), leader.ErrLost) {
		late := time.NewTimer(listening)
		defer late.Stop()
		select {
		case <-s.lost:
		case <-i.done:
		case <-late.C:
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.spans[name], s)
	if len(i.spans[name]) == 0 {
		delete(i.spans, name)
	}
}

// hear adds what the Leader tells to the span.
func (s *leadership) hear(e leader.Event) {
	if e.Kind != leader.Lost && e.Kind != leader.Overrun || e.Time.Before(s.opened) {
		return
	}
	var attributes []attribute.KeyValue
	if e.Reason != "" {
		attributes = append(attributes, KeyReason.String(string(e.Reason)))
	}
	s.span.AddEvent(eventName(e.Kind), trace.WithTimestamp(e.Time), trace.WithAttributes(attributes...))
	if e.Kind == leader.Lost {
		s.span.SetAttributes(attributes...)
		select {
		case s.lost <- struct{}{}:
		default:
		}
	}
}

// reasonOf is why a task was told to stop, not for a loss.
func reasonOf(cause error) leader.Reason {
	switch {
	case errors.Is(cause, leader.ErrResigned):
		return leader.ReasonResigned
	case errors.Is(cause, leader.ErrHandOver):
		return leader.ReasonHandOver
	}
	return leader.ReasonCaller
}
