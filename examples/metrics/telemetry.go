// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderotel"
)

// The names that the program contends for: outbox as long as it runs, report for a moment every few seconds.
const (
	outbox = "outbox"
	report = "report"
)

// instrument returns the telemetry of lead, and what serves its metrics.
func instrument(lead *leader.Leader) (*leaderotel.Instrumentation, http.Handler, error) {
	exporter, err := prometheus.New(prometheus.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	if err != nil {
		return nil, nil, err
	}
	telemetry, err := leaderotel.Instrument(lead, leaderotel.Options{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter)),
		Names:         []string{outbox, report},
	})
	return telemetry, promhttp.Handler(), err
}

// deliver stands for a service.
func deliver(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// reports stands for a job that one process does, and the others skip. Errors are in the log and in the metrics.
func reports(ctx context.Context, lead *leader.Leader, telemetry *leaderotel.Instrumentation) {
	every := time.NewTicker(2 * time.Second)
	defer every.Stop()
	for {
		_, _ = lead.Try(ctx, report, telemetry.Task(report, func(context.Context) error { return nil }))
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}
