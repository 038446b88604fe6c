// SPDX-License-Identifier: MIT

package leaderotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/oxygenhub/leader"
)

// instruments has one field for each row of docs/metrics.md.
type instruments struct {
	leading, running, calls metric.Int64ObservableUpDownCounter
	term                    metric.Int64ObservableGauge
	age                     metric.Float64ObservableGauge
	transitions             metric.Int64ObservableCounter
	led, waited             metric.Float64Histogram

	tasks, connected, retired        metric.Int64ObservableUpDownCounter
	connects, connectErrors, losses  metric.Int64ObservableCounter
	sessionTransitions, missedEvents metric.Int64ObservableCounter
	proofs, proofErrors              metric.Int64ObservableCounter
	tries, tryErrors                 metric.Int64ObservableCounter
	proofTime                        metric.Float64ObservableCounter
	proofAge, proofLast, lease       metric.Float64ObservableGauge
}

// Buckets of the histograms, in seconds: a takeover takes milliseconds, a standby may wait for weeks; a job leads for
// milliseconds, a service for weeks.
func waitBuckets() []float64 {
	return []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60, 300, 900, hour, 6 * hour, day}
}

func ledBuckets() []float64 {
	return []float64{.1, 1, 5, 15, 60, 300, 900, hour, 6 * hour, day, 3 * day, week, 2 * week, 4 * week}
}

const (
	hour = 3600.0
	day  = 24 * hour
	week = 7 * day
)

// create makes all instruments, and returns those that observe is to fill.
func (in *instruments) create(m metric.Meter) ([]metric.Observable, error) {
	c := creator{meter: m}
	in.leading = c.level("leader.leading", "{leader}", "1 if this process leads the name, else 0.")
	in.running = c.level("leader.running", "{task}", "1 while the task runs here, also when it was told to stop, else 0.")
	in.calls = c.level("leader.calls", "{call}", "Calls of Run and Try for the name that go on in this process.")
	in.term = c.number("leader.term", "{term}", "Term that this process leads the name under.")
	in.age = c.seconds("leader.leadership.age", "For how long this process has led the name.")
	in.transitions = c.count("leader.transitions", "{transition}", "Transitions of the name, by event and reason.")
	in.waited = c.histogram("leader.wait.duration", "From when the name was wanted until it was led.", waitBuckets())
	in.led = c.histogram("leader.leadership.duration", "For how long the name was led, at the end.", ledBuckets())

	in.tasks = c.level("leader.tasks", "{task}", "Names in each state.")
	in.connected = c.level("leader.session.connected", "{session}", "1 while there is a session, else 0.")
	in.retired = c.level("leader.session.retired", "{session}", "Sessions given up but held open, as tasks still run.")
	in.connects = c.count("leader.session.connects", "{session}", "Sessions opened.")
	in.connectErrors = c.count("leader.session.connect.errors", "{error}", "Attempts to open a session that have failed.")
	in.losses = c.count("leader.session.losses", "{session}", "Sessions lost.")
	in.sessionTransitions = c.count(
		"leader.session.transitions", "{transition}", "Transitions of the session, by event and reason.")
	in.missedEvents = c.count("leader.events.missed", "{event}", "Events that were not counted: too many at once.")
	in.proofs = c.count("leader.proofs", "{proof}", "Proofs that the session lives and has its locks.")
	in.proofErrors = c.count("leader.proof.errors", "{error}", "Proofs that have failed while the session lived.")
	in.proofTime = c.secondsTotal("leader.proof.time", "Time that all good proofs took together.")
	in.proofLast = c.seconds("leader.proof.last_duration", "Time that the last good proof took.")
	in.proofAge = c.seconds("leader.proof.age", "Time since the last good proof was sent.")
	in.lease = c.seconds("leader.lease", "The age of a proof at which leadership ends (Options.Lease).")
	in.tries = c.count("leader.tries", "{try}", "Statements that have asked for locks.")
	in.tryErrors = c.count("leader.try.errors", "{error}", "Tries that have failed, for all names or some.")
	return c.observed, errors.Join(c.errs...)
}

// creator makes instruments, and keeps the errors.
type creator struct {
	meter    metric.Meter
	observed []metric.Observable
	errs     []error
}

func keep[T metric.Observable](c *creator, instrument T, err error) T {
	c.observed, c.errs = append(c.observed, instrument), append(c.errs, err)
	return instrument
}

func (c *creator) level(name, unit, what string) metric.Int64ObservableUpDownCounter {
	i, err := c.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
	return keep(c, i, err)
}

func (c *creator) count(name, unit, what string) metric.Int64ObservableCounter {
	i, err := c.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
	return keep(c, i, err)
}

func (c *creator) number(name, unit, what string) metric.Int64ObservableGauge {
	i, err := c.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
	return keep(c, i, err)
}

func (c *creator) seconds(name, what string) metric.Float64ObservableGauge {
	i, err := c.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(what))
	return keep(c, i, err)
}

func (c *creator) secondsTotal(name, what string) metric.Float64ObservableCounter {
	i, err := c.meter.Float64ObservableCounter(name, metric.WithUnit("s"), metric.WithDescription(what))
	return keep(c, i, err)
}

func (c *creator) histogram(name, what string, buckets []float64) metric.Float64Histogram {
	h, err := c.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what),
		metric.WithExplicitBucketBoundaries(buckets...))
	c.errs = append(c.errs, err)
	return h
}

// observe is called for each collection. It asks the Leader, not the database.
func (i *Instrumentation) observe(ctx context.Context, o metric.Observer) error {
	i.settle(ctx)
	s := i.l.Status()
	namespace := i.namespaceOf(s)
	i.observeSession(o, s)
	all, missed := i.shown(s)
	o.ObserveInt64(i.missedEvents, missed, i.set(namespace))
	for label, t := range all {
		if label == "" {
			i.observeTransitions(o, i.sessionTransitions, namespace, label, t.counts)
			continue
		}
		set := i.set(namespace, KeyName.String(label))
		o.ObserveInt64(i.leading, t.leading, set)
		o.ObserveInt64(i.running, t.running, set)
		o.ObserveInt64(i.calls, t.calls, set)
		if t.leading == 1 && label != Other {
			o.ObserveFloat64(i.age, t.age, set)
			if t.term != 0 {
				o.ObserveInt64(i.term, t.term, set)
			}
		}
		i.observeTransitions(o, i.transitions, namespace, label, t.counts)
	}
	return nil
}

func (i *Instrumentation) set(namespace string, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(i.attributes(namespace, more...)...)
}

func (i *Instrumentation) observeSession(o metric.Observer, s leader.Status) {
	set := i.set(s.Namespace)
	o.ObserveInt64(i.connected, number(s.Connected), set)
	o.ObserveInt64(i.retired, int64(s.Retired), set)
	o.ObserveInt64(i.connects, int64(s.Counts.Connects), set)
	o.ObserveInt64(i.connectErrors, int64(s.Counts.ConnectErrors), set)
	o.ObserveInt64(i.losses, int64(s.Losses), set)
	o.ObserveInt64(i.proofs, int64(s.Counts.Proofs), set)
	o.ObserveInt64(i.proofErrors, int64(s.Counts.ProofErrors), set)
	o.ObserveFloat64(i.proofTime, s.Counts.ProofTime.Seconds(), set)
	o.ObserveInt64(i.tries, int64(s.Counts.Tries), set)
	o.ObserveInt64(i.tryErrors, int64(s.Counts.TryErrors), set)
	o.ObserveFloat64(i.lease, s.Lease.Seconds(), set)
	if s.Counts.Proofs > 0 {
		o.ObserveFloat64(i.proofLast, s.ProofTook.Seconds(), set)
	}
	if s.Connected {
		o.ObserveFloat64(i.proofAge, s.ProofAge.Seconds(), set)
	}
	states := make(map[leader.State]int64)
	for _, t := range s.Tasks {
		states[t.State]++
	}
	for _, state := range []leader.State{
		leader.StateConnecting, leader.StateContending, leader.StateCooling, leader.StateTakeover, leader.StateLeading,
		leader.StateStopping, leader.StateOverrun,
	} {
		o.ObserveInt64(i.tasks, states[state], i.set(s.Namespace, KeyState.String(string(state))))
	}
}

// observeTransitions shows those of name, or of the session.
func (i *Instrumentation) observeTransitions(
	o metric.Observer, counter metric.Int64ObservableCounter, namespace, name string, counts map[transition]int64,
) {
	for _, t := range transitionsOf(name) {
		counts[t] += 0 // a rate needs a zero before the first of them
	}
	for t, n := range counts {
		attributes := []attribute.KeyValue{KeyEvent.String(eventName(t.kind))}
		if name != "" {
			attributes = append(attributes, KeyName.String(name))
		}
		if t.reason != "" {
			attributes = append(attributes, KeyReason.String(string(t.reason)))
		}
		o.ObserveInt64(counter, n, i.set(namespace, attributes...))
	}
}

// task is what is shown of one name, or of all that share a label.
type task struct {
	leading, running, calls, term int64
	age                           float64
	counts                        map[transition]int64
}

// shown returns what is shown of each name that was ever seen, and what was counted of the session, as that of "".
func (i *Instrumentation) shown(s leader.Status) (all map[string]*task, missed int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	labels := make([]string, len(s.Tasks))
	for n, t := range s.Tasks {
		labels[n] = i.labelLocked(t.Name)
	}
	all = map[string]*task{"": {counts: make(map[transition]int64)}}
	for name := range i.known {
		all[name] = &task{counts: make(map[transition]int64)}
	}
	if i.others {
		all[Other] = &task{counts: make(map[transition]int64)}
	}
	for t, n := range i.counts {
		all[t.name].counts[t] = n
	}
	for n, t := range s.Tasks {
		all[labels[n]].add(t)
	}
	return all, i.missed
}

func (t *task) add(s leader.TaskStatus) {
	t.calls += int64(s.Standbys) + 1
	switch s.State {
	case leader.StateLeading:
		t.leading++
		t.age = max(time.Since(s.Since).Seconds(), 0) // the clock may have been set back
		t.term = int64(s.Term)
		t.running++
	case leader.StateStopping, leader.StateOverrun:
		t.running++
	}
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
