// SPDX-License-Identifier: MIT

package cost

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/bench/result"
)

// herdWindow is for how long after a release its statements are counted, and before it those that would have come anyway.
const herdWindow = 200 * time.Millisecond

// Herd is what many standbys of one name do when it is released: when the first of them leads, and how often they ask.
func Herd(ctx context.Context, c Config) ([]result.Row, error) {
	t := newTable("herd")
	standbys := c.few(100, 10)
	err := withLab(ctx, c, func(b *lab) error {
		c.logf("herd: %d standbys", standbys)
		herds := []*herd{{peer: ours, setting: defaults}, {peer: raw}}
		for _, h := range herds {
			defer h.disband()
			if err := b.gather(ctx, h, standbys+1); err != nil {
				return err
			}
		}
		for i := range c.few(40, 2) {
			order := []*herd{herds[i%2], herds[1-i%2]}
			for _, h := range order {
				if err := h.measure(ctx, t, standbys); err != nil {
					return fmt.Errorf("herd of %s, round %d: %w", h.peer, i, err)
				}
			}
		}
		return nil
	}, "max_connections=600")
	t.note("takeover", "From the return of the holder's task until another one's runs. All processes live in one of the benchmark.")
	t.note("tries", "Statements for the lock within 200 ms of the release, without those of the 200 ms before it, per standby.")
	t.note("most tries", "Of one standby within 200 ms of the release, with those that would have come anyway.")
	return t.rows, err
}

// herd is a fleet that contends for one name. The member that has given it up contends again after the round.
type herd struct {
	peer, setting string
	meters        []*meter
	leads         chan led      // of the member that leads now
	back          chan struct{} // has the member that has given the name up contend again
	stop          context.CancelFunc
	members       sync.WaitGroup
}

// led is the news that a member leads.
type led struct {
	at      time.Time
	release chan<- chan time.Time // has it return, and tell when
}

// lead is the task of a member: it returns when it is told to.
func (h *herd) lead(ctx context.Context) error {
	release := make(chan chan time.Time)
	select {
	case h.leads <- led{time.Now(), release}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case told := <-release:
		told <- time.Now()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *herd) disband() {
	if h.stop != nil {
		h.stop()
		h.members.Wait()
	}
}

// gather starts a herd of count members, which each contend until it is disbanded.
func (b *lab) gather(ctx context.Context, h *herd, count int) error {
	ctx, h.stop = context.WithCancel(ctx)
	h.leads, h.back = make(chan led, 1), make(chan struct{})
	for i := range count {
		m := &meter{}
		h.meters = append(h.meters, m)
		var contend func(context.Context) error
		var err error
		if h.peer == ours {
			contend, err = b.libraryMember(m, strconv.Itoa(i), h.lead)
		} else {
			contend, err = b.rawMember(ctx, m, h.lead)
		}
		if err != nil {
			return err
		}
		h.members.Go(func() { // until the herd is disbanded
			for ctx.Err() == nil {
				_ = contend(ctx) // a member that fails is missed when its turn comes
				select {
				case <-h.back:
				case <-ctx.Done():
				}
			}
		})
		if err := pause(ctx, arrival); err != nil {
			return err
		}
	}
	return until(ctx, "the herd has gathered", func() bool {
		for _, m := range h.meters {
			if m.tries.Load() == 0 {
				return false
			}
		}
		return true
	})
}

// libraryMember is a Leader.
func (b *lab) libraryMember(m *meter, node string, task func(context.Context) error) (func(context.Context) error, error) {
	backend, err := m.backend(b.server.URL())
	if err != nil {
		return nil, err
	}
	l, err := leader.New(backend, leader.Options{Node: node, Namespace: namespace})
	return func(ctx context.Context) error { return l.Run(ctx, "herd", task) }, err
}

// rawMember is a loop that a user would write: it listens, and tries when it is told of a release and each second.
func (b *lab) rawMember(ctx context.Context, m *meter, task func(context.Context) error) (func(context.Context) error, error) {
	config, err := m.config(b.server.URL())
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	b.stage.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) }) // or its server is gone
	if _, err := conn.Exec(ctx, "LISTEN "+rawChannel); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		for {
			var got bool
			if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", rawKey).Scan(&got); err != nil {
				return err
			}
			if got {
				break
			}
			second, cancel := context.WithTimeout(ctx, time.Second)
			_, _ = conn.WaitForNotification(second) // whatever ends the wait, the next try tells
			cancel()
		}
		_ = task(ctx) // the connection is closed at the end
		return conn.PgConn().Exec(ctx, fmt.Sprintf("SELECT pg_advisory_unlock(%d); NOTIFY %s", rawKey, rawChannel)).Close()
	}, nil
}

// Of a lock that is no library's.
const (
	rawKey     int64 = 1
	rawChannel       = "bench_raw"
)

// measure has the member that leads give the name up.
func (h *herd) measure(ctx context.Context, t *table, standbys int) error {
	holder, err := h.next(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, herdWindow); err != nil { // the herd of the other contender, and the last release
		return err
	}
	first := h.tries()
	if err := pause(ctx, herdWindow); err != nil {
		return err
	}
	before := h.tries()
	told := make(chan time.Time, 1)
	holder.release <- told
	released := <-told
	successor, err := h.next(ctx)
	if err != nil {
		return err
	}
	h.leads <- successor // for the next round
	if err := pause(ctx, herdWindow-time.Since(released)); err != nil {
		return err
	}
	anyway, caused, most := int64(0), int64(0), int64(0)
	for i, n := range h.tries() {
		anyway += before[i] - first[i]
		caused += n - before[i]
		most = max(most, n-before[i])
	}
	t.add(column{h.peer, h.setting, "takeover", "s", float64(standbys)}, successor.at.Sub(released).Seconds())
	t.add(column{h.peer, h.setting, "tries", "1", float64(standbys)}, float64(caused-anyway)/float64(standbys))
	t.add(column{h.peer, h.setting, "most tries", "1", float64(standbys)}, float64(most))
	select {
	case h.back <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// next is the member that leads.
func (h *herd) next(ctx context.Context) (led, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	select {
	case l := <-h.leads:
		return l, nil
	case <-ctx.Done():
		return led{}, fmt.Errorf("wait for a leader: %w", ctx.Err())
	}
}

// tries is how often each member has asked.
func (h *herd) tries() []int64 {
	counts := make([]int64, len(h.meters))
	for i, m := range h.meters {
		counts[i] = m.tries.Load()
	}
	return counts
}
