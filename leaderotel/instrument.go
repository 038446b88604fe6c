// SPDX-License-Identifier: MIT

package leaderotel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oxygenhub/leader"
)

// scope is the instrumentation scope of all metrics and spans.
const scope = "github.com/oxygenhub/leader/leaderotel"

const (
	// defaultMaxNames leaves two Leaders of one provider below the 2,000 sets of attributes that the SDK has for an
	// instrument: leader.transitions has 20 for each name.
	defaultMaxNames = 45
	// patience is how long a collection waits for the goroutine that reads events, which may be held up by an SDK.
	patience = time.Second
)

var errNil = errors.New("leaderotel: the Leader is nil: make one with leader.New")

// Options of [Instrument]. The zero value is ready to use.
type Options struct {
	// MeterProvider makes the instruments. Default: the global one, otel.GetMeterProvider().
	MeterProvider metric.MeterProvider
	// TracerProvider makes the spans of [Instrumentation.Task] and [Instrumentation.Part]. Default: the global one.
	TracerProvider trace.TracerProvider
	// Names are shown from the start, with zeros, also while nothing runs for them here: give those that the process is to
	// contend for. Others are shown from when the Leader first does.
	Names []string
	// MaxNames is how many names have series of their own, those of Names included; the rest shares [Other]. The SDK drops
	// attributes beyond a limit of its own (sdk/metric.WithCardinalityLimit, 2,000 by default), of which each name takes
	// 20. Default 45, or as many as Names has.
	MaxNames int
	// Attributes are added to all metrics and spans. Two Leaders of one process whose namespaces are the same need them,
	// or their metrics are added up: KeyNode with leader.Options.Node will do if that is set, or the database's name.
	Attributes []attribute.KeyValue
}

// Instrumentation is what [Instrument] has registered. Its methods may be called concurrently.
type Instrumentation struct {
	l      *leader.Leader
	node   string
	extra  []attribute.KeyValue
	max    int
	tracer trace.Tracer
	instruments

	namespace atomic.Pointer[string] // nil until it is known

	registration metric.Registration
	unwatch      context.CancelFunc
	asks         chan chan struct{} // each is closed when what had happened before is counted
	done         chan struct{}      // closed when the goroutine that reads events has ended

	mu      sync.Mutex
	known   map[string]struct{} // names with series of their own
	others  bool                // there are further ones
	counts  map[transition]int64
	lastSeq uint64 // of the last event; 0 before the first
	missed  int64
	spans   map[string]map[*leadership]struct{}
}

// Instrument registers the metrics of l, and has its Task and Part make spans. Call it before the first Run: what
// happened before is in the gauges and in what the Leader counts itself, but not in the transitions. It starts one
// goroutine, which reads [leader.Leader.Watch] until [Instrumentation.Stop], or until l has resigned; it neither
// connects nor asks the database, and nothing of it, nor of a provider, can hold up the Leader. An error names the
// option, or is the provider's; nothing is registered then.
func Instrument(l *leader.Leader, opts Options) (*Instrumentation, error) {
	if l == nil {
		return nil, errNil
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	if opts.MeterProvider == nil {
		opts.MeterProvider = otel.GetMeterProvider()
	}
	if opts.TracerProvider == nil {
		opts.TracerProvider = otel.GetTracerProvider()
	}
	i := &Instrumentation{
		l:      l,
		node:   l.Status().Node,
		extra:  slices.Clone(opts.Attributes),
		max:    cmp.Or(opts.MaxNames, max(defaultMaxNames, len(opts.Names))),
		tracer: opts.TracerProvider.Tracer(scope),
		asks:   make(chan chan struct{}),
		done:   make(chan struct{}),
		known:  make(map[string]struct{}),
		counts: make(map[transition]int64),
		spans:  make(map[string]map[*leadership]struct{}),
	}
	for _, name := range opts.Names {
		i.known[name] = struct{}{}
	}
	meter := opts.MeterProvider.Meter(scope)
	observed, err := i.create(meter)
	if err != nil {
		return nil, fmt.Errorf("leaderotel: create instruments: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	i.unwatch = cancel
	go i.follow(l.Watch(ctx)) // ends when ctx does, or l has resigned; Stop waits for it
	if i.registration, err = meter.RegisterCallback(i.observe, observed...); err != nil {
		cancel()
		<-i.done
		return nil, fmt.Errorf("leaderotel: register: %w", err)
	}
	return i, nil
}

func (o Options) check() error {
	for _, name := range o.Names {
		if name == "" || len(name) > 1024 || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
			return fmt.Errorf("leaderotel: Options.Names has %.50q: 1 to 1,024 bytes of UTF-8 without NUL are needed", name)
		}
	}
	if o.MaxNames != 0 && o.MaxNames < len(o.Names) {
		return fmt.Errorf("leaderotel: Options.MaxNames is %d: it must be at least 1, and as many as Options.Names has (%d)",
			o.MaxNames, len(o.Names))
	}
	return nil
}

// Stop unregisters the metrics and returns when the goroutine has ended. Call it last: after Resign, and after the
// provider's Shutdown or ForceFlush, whose last collection still asks for them. Spans can still be made, but hear of
// less. The error is the provider's. A second call does nothing.
func (i *Instrumentation) Stop() error {
	err := i.registration.Unregister()
	i.unwatch()
	<-i.done
	if err != nil {
		return fmt.Errorf("leaderotel: unregister: %w", err)
	}
	return nil
}

// attributes of a metric, or of a span.
func (i *Instrumentation) attributes(namespace string, more ...attribute.KeyValue) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, len(i.extra)+len(more)+1)
	all = append(append(all, i.extra...), more...)
	return append(all, KeyNamespace.String(namespace))
}

// namespaceOf keeps the namespace once it is known. It is "" before the first connection.
func (i *Instrumentation) namespaceOf(s leader.Status) string {
	if s.Namespace != "" && i.namespace.Load() == nil {
		i.namespace.Store(&s.Namespace)
	}
	return s.Namespace
}

// knownNamespace asks for the status, which has all names in it, only once.
func (i *Instrumentation) knownNamespace() string {
	if known := i.namespace.Load(); known != nil {
		return *known
	}
	return i.namespaceOf(i.l.Status())
}
