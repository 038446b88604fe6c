// SPDX-License-Identifier: MIT

// Package leaderotel has OpenTelemetry metrics and traces for a leader.Leader. It needs the API of OpenTelemetry only;
// where they go is up to the service:
//
//	telemetry, err := leaderotel.Instrument(lead, leaderotel.Options{Names: []string{"outbox", "report"}})
//	...
//	err = lead.Run(ctx, "outbox", deliverMail)
//	...
//	_ = lead.Resign(stopping)       // gives all locks back
//	_ = provider.Shutdown(stopping) // exports what there is to tell of that
//	_ = telemetry.Stop()
//
// # Metrics
//
// docs/metrics.md lists them, with dashboards and alerts. Those that tell how it is, and what the Leader counts itself,
// are read from [leader.Leader.Status] when they are collected: they are never old and ask no database. Transitions and
// durations come from [leader.Leader.Watch]; a collection waits until all that have happened are counted. If a reader
// of them, as an exporter that hangs, has more than 1,024 wait, the oldest are lost to the counts, and
// leader.events.missed says how many were.
//
// Every transition is shown with zero before it happens, for each name that is known and each reason, so that a rate
// sees the first one. Names are known from [Options.Names], and from when the Leader contends for them.
//
// # Traces
//
// [Instrumentation.Task] makes a span of each leadership of a job. It is exported when it ends: for a service, which
// leads for weeks, take [Instrumentation.Part] for the takeover and for each round of its work.
//
// # Not guaranteed
//
// Metrics of several processes are collected at different times. So the sum of leader.leading over a fleet can be 0 or
// 2 for a moment without anything being wrong, and says nothing of whether a lock excludes: see docs/guarantees.md for
// that.
package leaderotel
