// SPDX-License-Identifier: MIT

package cost

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/bench/result"
)

const (
	// namesOfAll is how many names each process of a fleet contends for.
	namesOfAll = 10
	// arrival is how far apart the members of a fleet start: what counts is how they live, not how they come.
	arrival = 4 * time.Millisecond
)

// Processes is what the standbys of a fleet cost as it grows. The member that leads all names is there before them, and what
// the server needs with it alone is not theirs.
func Processes(ctx context.Context, c Config) ([]result.Row, error) {
	counts := []int{1, 10, 100, 500}
	if c.Quick {
		counts = []int{1, 10}
	}
	settings := c.Settings
	if len(settings) == 0 {
		settings = []Setting{{Name: defaults}}
	}
	t := newTable("processes")
	err := withLab(ctx, c, func(b *lab) error {
		if err := pause(ctx, c.span(5*time.Second, 0)); err != nil { // a server that has just started has work of its own
			return err
		}
		for _, count := range counts {
			for _, setting := range settings { // in turn: what a large fleet leaves behind is the same for all
				if len(setting.Counts) > 0 && !slices.Contains(setting.Counts, count) {
					continue
				}
				c.logf("processes: %d, %s", count, setting.Name)
				if err := b.processes(ctx, c, t, count, setting); err != nil {
					return fmt.Errorf("%d processes, %s: %w", count, setting.Name, err)
				}
			}
		}
		return nil
	}, "max_connections=1100") // a member opens a second one to look for a pooler
	for _, measure := range []string{"statements", "bytes", "cpu", "server memory"} {
		t.note(measure, "Per standby. A standby is a Leader with 10 names; all of them live in one process of the benchmark.")
	}
	t.note("server cpu", "All processes of the server, with the one of the holder and those that have ended.")
	return t.rows, err
}

// fleet is a holder with its standbys, whose meter is one.
type fleet struct {
	b          *lab
	postmaster int
	meter      *meter
	count      int
	setting    string
	alone      []rates // of the server with the holder alone, before the standbys and after them
	together   []rates
}

// rates is what the server uses.
type rates struct {
	cpu       float64 // s/s
	memory    float64 // bytes
	processes float64
	sent      reading
	took      float64 // s
}

func (b *lab) processes(ctx context.Context, c Config, t *table, count int, setting Setting) error {
	postmaster, err := b.postmaster()
	if err != nil {
		return err
	}
	names := numbered(namesOfAll)
	holder, err := b.join(ctx, &meter{}, "holder", names, nil)
	if err != nil {
		return err
	}
	defer holder.leave()
	if err := until(ctx, "the holder leads", func() bool { return len(holder.Leading()) == len(names) }); err != nil {
		return err
	}
	f := &fleet{b: b, postmaster: postmaster, meter: &meter{}, count: count, setting: setting.Name}
	window := max(c.span(4*time.Second, 1500*time.Millisecond), retryOf(setting))
	if err := f.watch(ctx, window, 1, &f.alone); err != nil {
		return err
	}
	if err := f.standBy(ctx, names, setting, func() error { return f.watch(ctx, window, c.few(3, 1), &f.together) }); err != nil {
		return err
	}
	if err := f.watch(ctx, window, 1, &f.alone); err != nil {
		return err
	}
	f.tell(t)
	return nil
}

// standBy has the standbys come, calls f when all contend, and has them leave.
func (f *fleet) standBy(ctx context.Context, names []string, setting Setting, then func() error) error {
	for i := range f.count {
		standby, err := f.b.join(ctx, f.meter, fmt.Sprintf("standby-%d", i), names, setting.Change)
		if err != nil {
			return err
		}
		defer standby.leave()
		if err := pause(ctx, arrival); err != nil {
			return err
		}
	}
	tries := int64(2 * f.count) // the first of a session, and one of those that this is about
	if err := until(ctx, "all stand by", func() bool { return f.meter.tries.Load() >= tries }); err != nil {
		return err
	}
	return then()
}

// retryOf is how often a standby of a setting tries.
func retryOf(setting Setting) time.Duration {
	var opts leader.Options
	if setting.Change != nil {
		setting.Change(&opts)
	}
	return cmp.Or(opts.Retry, time.Second)
}

// watch measures the server some times over.
func (f *fleet) watch(ctx context.Context, length time.Duration, times int, into *[]rates) error {
	for range times {
		start, sent := time.Now(), f.meter.read()
		before, err := usageOf(f.postmaster)
		if err != nil {
			return err
		}
		if err := pause(ctx, length); err != nil {
			return err
		}
		took := time.Since(start).Seconds()
		sent = f.meter.read().minus(sent)
		after, err := usageOf(f.postmaster)
		if err != nil {
			return err
		}
		*into = append(*into, rates{
			cpu:       (after.cpu - before.cpu).Seconds() / took,
			memory:    float64(after.memory),
			processes: float64(after.processes),
			sent:      sent,
			took:      took,
		})
	}
	return nil
}

// tell notes what the standbys add to a holder.
func (f *fleet) tell(t *table) {
	x := float64(f.count)
	add := func(measure, unit string, sample float64) {
		t.add(column{ours, f.setting, measure, unit, x}, sample)
	}
	var alone rates
	// Of few standbys it is less than what the server does by itself, and not the same at any two times.
	dependable := f.count >= 10
	for _, r := range f.alone {
		n := float64(len(f.alone))
		alone.cpu, alone.memory, alone.processes = alone.cpu+r.cpu/n, alone.memory+r.memory/n, alone.processes+r.processes/n
	}
	for _, r := range f.together {
		add("statements", "1/s", float64(r.sent.statements)/r.took/x)
		add("bytes", "B/s", float64(r.sent.bytes)/r.took/x)
		if dependable {
			add("cpu", "s/s", (r.cpu-alone.cpu)/x)
			add("server memory", "B", (r.memory-alone.memory)/x)
		}
		add("server cpu", "s/s", r.cpu)
		add("server processes", "1", r.processes-alone.processes)
	}
}
