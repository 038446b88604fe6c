// SPDX-License-Identifier: MIT

package cost

import (
	"context"
	"errors"
	"runtime"
	"runtime/metrics"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oxygenhub/leader/bench/result"
)

// twinDelay is how long after a statement of the library, and after each other, those of its twins come: the next one of the library
// comes about as long after them, so that the caches of the processor are as cold for all.
const twinDelay = 250 * time.Millisecond

const (
	sqlRawTry   = "SELECT k, pg_try_advisory_lock(k) FROM unnest($1::int8[]) AS k"
	sqlRawAlive = "SELECT 1"
)

// Names is what a standby and a holder cost as names grow, on the server and in this process. Whenever the standby has
// tried, two connections without a library try the same keys, and whenever the holder has asked, they ask for nothing. So all
// do as much in the same time.
func Names(ctx context.Context, c Config) ([]result.Row, error) {
	counts := []int{1, 10, 100, 1000, 5000}
	if c.Quick {
		counts = []int{1, 1000}
	}
	t := newTable("names")
	err := withLab(ctx, c, func(b *lab) error {
		for _, count := range counts {
			c.logf("names: %d", count)
			if err := b.names(ctx, c, t, count); err != nil {
				return err
			}
		}
		return nil
	}, "max_locks_per_transaction=512")
	t.note("standby process memory", "Heap and stacks of this process, the callers of Run and the connection included.")
	t.note("holder process memory", "Heap and stacks of this process, the callers of Run, the contexts of the tasks and the connection included.")
	t.note("standby cpu", "Of the server's process for this connection. The library's standby proves its session every 2 s as well.")
	return t.rows, err
}

// names measures one number of names.
func (b *lab) names(ctx context.Context, c Config, t *table, count int) error {
	names := numbered(count)
	asked := make(chan bool, 64) // a statement of the holder: false; a try of the standby: true
	hear := func(standby bool) func(bool) {
		return func(try bool) {
			if try != standby {
				return
			}
			select {
			case asked <- standby:
			default: // nobody listens yet
			}
		}
	}
	x := float64(count)
	holder, err := b.grow(ctx, t, "holder", names, &meter{sent: hear(false)})
	if err != nil {
		return err
	}
	defer holder.leave()
	standby, err := b.grow(ctx, t, "standby", names, &meter{sent: hear(true)})
	if err != nil {
		return err
	}
	defer standby.leave()
	twins := make([]*twin, 0, 2)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeCacheStatement} {
		t, err := b.newTwin(ctx, mode, keysOf(names))
		if err != nil {
			return err
		}
		defer t.close()
		for _, standby := range []bool{true, false} { // a first time, which prepares what is to be prepared
			if err := t.do(ctx, standby); err != nil {
				return err
			}
		}
		twins = append(twins, t)
	}
	for range c.few(8, 1) {
		window := roundOfNames{b: b, members: map[string]*member{"holder": holder, "standby": standby}, twins: twins, asked: asked}
		if err := window.measure(ctx, t, x, c.span(4*time.Second, 2200*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

// grow has a member contend for names until it leads or stands by for all of them, and notes what that takes in this process.
func (b *lab) grow(ctx context.Context, t *table, role string, names []string, m *meter) (*member, error) {
	x := float64(len(names))
	size, goroutines := ownMemory(), runtime.NumGoroutine()
	grown, err := b.join(ctx, m, role, names, nil)
	if err != nil {
		return nil, err
	}
	err = until(ctx, role+" has settled", func() bool {
		if role == "holder" {
			return len(grown.Leading()) == len(names)
		}
		return m.tries.Load() >= 2
	})
	if err != nil {
		grown.leave()
		return nil, err
	}
	t.add(column{ours, defaults, role + " process memory per name", "B", x}, (ownMemory()-size)/x)
	t.add(column{ours, defaults, role + " goroutines per name", "1", x}, float64(runtime.NumGoroutine()-goroutines)/x)
	return grown, nil
}

// ownMemory is what this process uses in its heap and for stacks, after a collection.
func ownMemory() (size float64) {
	runtime.GC()
	runtime.GC() // what the first one has only found to be free
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	for _, s := range samples {
		size += float64(s.Value.Uint64())
	}
	return size
}

// twin does by hand what a standby and a holder do, on a connection each.
type twin struct {
	name            string
	keys            []int64
	standby, holder *pgx.Conn
}

func (b *lab) newTwin(ctx context.Context, mode pgx.QueryExecMode, keys []int64) (*twin, error) {
	t := &twin{name: raw, keys: keys}
	if mode == pgx.QueryExecModeCacheStatement {
		t.name = rawPrepared
	}
	var err error
	if t.standby, err = b.connect(ctx, mode); err == nil {
		t.holder, err = b.connect(ctx, mode)
	}
	return t, err
}

func (t *twin) do(ctx context.Context, standby bool) error {
	if !standby {
		_, err := t.holder.Exec(ctx, sqlRawAlive)
		return err
	}
	rows, err := t.standby.Query(ctx, sqlRawTry, t.keys)
	if err != nil {
		return err
	}
	var key int64
	var got bool
	_, err = pgx.ForEachRow(rows, []any{&key, &got}, func() error {
		if got {
			return errors.New("the lock of the holder is free")
		}
		return nil
	})
	return err
}

func (t *twin) close() {
	for _, conn := range []*pgx.Conn{t.standby, t.holder} {
		_ = conn.Close(context.Background()) // only read from
	}
}

// roundOfNames measures all contenders at once, each by the server's process of its connection.
type roundOfNames struct {
	b       *lab
	members map[string]*member // by role
	twins   []*twin
	asked   <-chan bool
}

// process is one of the server's.
type process struct {
	peer, role string
	pid        int
	meter      *meter // of ours
}

func (r *roundOfNames) processes(ctx context.Context) (all []process, err error) {
	for _, role := range []string{"standby", "holder"} {
		pid, err := r.b.pid(ctx, "leader/"+role)
		if err != nil {
			return nil, err
		}
		all = append(all, process{ours, role, pid, r.members[role].meter})
		for _, t := range r.twins {
			conn := t.standby
			if role == "holder" {
				conn = t.holder
			}
			all = append(all, process{peer: t.name, role: role, pid: int(conn.PgConn().PID())})
		}
	}
	return all, nil
}

func (r *roundOfNames) measure(ctx context.Context, t *table, x float64, length time.Duration) error {
	processes, err := r.processes(ctx)
	if err != nil {
		return err
	}
	for drained := false; !drained; { // what was asked before the round
		select {
		case <-r.asked:
		default:
			drained = true
		}
	}
	start := time.Now()
	cpu := make([]time.Duration, len(processes))
	counts := make([]reading, len(processes))
	for i, p := range processes {
		if cpu[i], err = cpuTime(p.pid); err != nil {
			return err
		}
		if p.meter != nil {
			counts[i] = p.meter.read()
		}
	}
	if err := r.follow(ctx, length); err != nil {
		return err
	}
	took := time.Since(start).Seconds()
	for i, p := range processes {
		after, err := cpuTime(p.pid)
		if err != nil {
			return err
		}
		size, err := memory(p.pid)
		if err != nil {
			return err
		}
		setting := ""
		if p.peer == ours {
			setting = defaults
		}
		t.add(column{p.peer, setting, p.role + " cpu", "s/s", x}, (after-cpu[i]).Seconds()/took)
		t.add(column{p.peer, setting, p.role + " server memory", "B", x}, float64(size))
		if p.meter != nil {
			n := p.meter.read().minus(counts[i])
			t.add(column{p.peer, setting, p.role + " statements", "1/s", x}, float64(n.statements)/took)
			t.add(column{p.peer, setting, p.role + " bytes", "B/s", x}, float64(n.bytes)/took)
		}
	}
	return nil
}

// follow has the twins do what ours do, for some time, and ends between two statements.
func (r *roundOfNames) follow(ctx context.Context, length time.Duration) error {
	over := time.After(length)
	for ended := false; !ended || len(r.asked) > 0; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case standby := <-r.asked:
			if err := r.twinsDo(ctx, standby); err != nil {
				return err
			}
		case <-over:
			ended = true
		}
	}
	return nil
}

// twinsDo has the twins take turns in who is the first.
func (r *roundOfNames) twinsDo(ctx context.Context, standby bool) error {
	slices.Reverse(r.twins)
	for _, t := range r.twins {
		if err := pause(ctx, twinDelay); err != nil {
			return err
		}
		if err := t.do(ctx, standby); err != nil {
			return err
		}
	}
	return nil
}
