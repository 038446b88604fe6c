// SPDX-License-Identifier: MIT

// Package cost measures what the library costs: the database, as names and processes grow; the process that uses it; and
// the calls on its hot paths. Beside each figure is that of the same work done by hand on the driver, of the same round.
package cost

import (
	"context"
	"fmt"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/bench/result"
)

// The contenders.
const (
	ours        = "leader"
	raw         = "raw"          // the driver as it works behind any pooler: no named statements, as the library
	rawPrepared = "raw prepared" // the driver with named statements
)

// Settings of contenders.
const (
	defaults = "defaults"
	terms    = "Terms"
)

// Config is how to measure.
type Config struct {
	Quick    bool         // with the fewest repeats: to see that it works, not for the figures
	Log      func(string) // of what goes on
	Dir      string       // for temporary files; "" is the default place
	Settings []Setting    // of the fleets of Processes; none is the defaults
}

// Setting is a way to run a fleet.
type Setting struct {
	Name   string
	Change func(*leader.Options) // nil changes nothing
	Counts []int                 // of its standbys, instead of all
}

// Fleets are the settings of a benchmark: with a connection for each standby, and with none between two tries. A connect takes
// the server many times what a statement does, and 500 of them in a second more than a small one has.
func Fleets() []Setting {
	rest := func(retry time.Duration) func(*leader.Options) {
		return func(o *leader.Options) { o.Disconnect, o.Retry = true, retry }
	}
	return []Setting{
		{Name: defaults},
		{"Disconnect", rest(0), []int{100}},
		{"Disconnect, Retry 10 s", rest(10 * time.Second), []int{100, 500}},
	}
}

// Work is something to measure.
type Work struct {
	Name string
	Run  func(context.Context, Config) ([]result.Row, error)
}

// Works are all of this package. They take 8 minutes, in Quick half of one.
func Works() []Work {
	return []Work{
		{"names", Names},
		{"processes", Processes},
		{"connect", Connect},
		{"herd", Herd},
		{"throughput", Throughput},
		{"fence", Fence},
		{"hot", Hot},
		{"start", Start},
		{"size", Size},
	}
}

// few is n, or less if the run is quick.
func (c Config) few(n, quick int) int {
	if c.Quick {
		return quick
	}
	return n
}

// span is d, or less if the run is quick.
func (c Config) span(d, quick time.Duration) time.Duration {
	if c.Quick {
		return quick
	}
	return d
}

func (c Config) logf(format string, args ...any) { c.Log(fmt.Sprintf(format, args...)) }

// table collects the rows of a work, sample by sample.
type table struct {
	work  string
	rows  []result.Row
	index map[column]int
}

// column is what tells the rows of a work apart.
type column struct {
	peer, setting, measure, unit string
	x                            float64
}

func newTable(work string) *table { return &table{work: work, index: make(map[column]int)} }

func (t *table) add(c column, sample float64) {
	i, ok := t.index[c]
	if !ok {
		i = len(t.rows)
		t.index[c] = i
		t.rows = append(t.rows, result.Row{Work: t.work, Peer: c.peer, Setting: c.setting, Measure: c.measure, Unit: c.unit, X: c.x})
	}
	t.rows[i].Samples = append(t.rows[i].Samples, sample)
}

// note says about all rows of a measure what a reader has to know.
func (t *table) note(measure, text string) {
	for i := range t.rows {
		if t.rows[i].Measure == measure {
			t.rows[i].Note = text
		}
	}
}

// until polls for what is to come soon.
func until(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for !done() {
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
	}
	return nil
}

// pause sleeps, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
