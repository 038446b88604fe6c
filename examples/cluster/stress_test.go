// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sent is a request.
type sent struct {
	addr       string
	begun, end time.Time
	status     int // 0: no answer
	read       bool
}

// stress is what the clients do, and what is done to the leader.
type stress struct {
	fleet  *fleet
	until  time.Time
	kills  int
	cuts   int
	leaves int
	frozen []sent // addr, begun and end

	mu    sync.Mutex
	sents []sent
	acks  []ack
}

func (l *stress) note(s sent, a answer) {
	s.end, s.status = time.Now(), a.status
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sents = append(l.sents, s)
}

// client writes, and reads once in four times. Nothing it does may fail.
func (l *stress) client(t *testing.T, i int) {
	t.Helper()
	acked := map[string]string{}
	for n := 0; time.Now().Before(l.until); n++ {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		key := fmt.Sprintf("client-%d-%d", i, n%8)
		if n%4 == 0 {
			s := sent{addr: l.fleet.book.any(), begun: time.Now(), read: true}
			a, _ := request(ctx, http.MethodGet, s.addr, "/kv/"+key, "") // a process that was killed does not answer
			l.note(s, a)
			if a.header.Get("Served-From") == "memory" && acked[key] != "" && !assert.Equal(t, acked[key], a.body, "the leader has forgotten") {
				cancel()
				return
			}
		}
		ack, err := write(ctx, l.fleet.book, key, fmt.Sprint(n), func(addr string, begun time.Time, a answer, _ error) {
			l.note(sent{addr: addr, begun: begun}, a)
		})
		cancel()
		if !assert.NoError(t, err, "a write failed") {
			return
		}
		acked[key] = ack.value
		l.mu.Lock()
		l.acks = append(l.acks, ack)
		l.mu.Unlock()
	}
}

func (l *stress) kill(t *testing.T, n *node) {
	t.Helper()
	f := l.fleet
	require.NoError(t, f.kill(n))
	require.NoError(t, f.until(t.Context(), "another one leads", func() bool { return n.over && f.leader != n }))
	require.NoError(t, f.start(n.settings))
	require.NoError(t, f.up(t.Context(), n.Name))
	require.NoError(t, f.serves(t.Context(), n))
	l.kills++
}

// freeze freezes the leader until another one leads, or, on SQLite where the kernel keeps its lock, for a while.
func (l *stress) freeze(t *testing.T, n *node) {
	t.Helper()
	f := l.fleet
	frozen := sent{addr: n.addr, begun: time.Now()}
	require.NoError(t, signalStop(n.cmd.Process))
	if f.db.postgres {
		require.NoError(t, f.until(t.Context(), "another one leads", func() bool { return f.leader != n }))
	}
	require.NoError(t, f.look(t.Context()))
	require.NoError(t, signalContinue(n.cmd.Process))
	frozen.end = time.Now()
	l.frozen = append(l.frozen, frozen)
	require.NoError(t, f.serves(t.Context(), nil))
}

// restart ends the leader by SIGTERM.
func (l *stress) restart(t *testing.T, n *node) {
	t.Helper()
	require.NoError(t, l.fleet.again(t.Context(), n.settings))
	require.NoError(t, l.fleet.serves(t.Context(), n))
	l.leaves++
}

// cut has the server end the session of the leader, which does not know for a moment: another one may lead by then.
func (l *stress) cut(t *testing.T) {
	t.Helper()
	f := l.fleet
	terms := len(f.led)
	_, err := f.db.ExecContext(t.Context(), "SELECT pg_terminate_backend(pid::int) FROM leader_terms")
	require.NoError(t, err)
	require.NoError(t, f.until(t.Context(), "somebody leads under a new term", func() bool { return len(f.led) > terms }))
	require.NoError(t, f.serves(t.Context(), nil))
	l.cuts++
}

// report checks that no process that ran made anybody wait, and tells the figures. One that is frozen answers nobody.
func (l *stress) report(t *testing.T) {
	t.Helper()
	var took, takenFrozen []time.Duration
	statuses := map[int]int{}
	reads := 0
	for _, s := range l.sents {
		statuses[s.status]++
		if s.read {
			reads++
		}
		d := s.end.Sub(s.begun)
		if slices.ContainsFunc(l.frozen, func(f sent) bool { return f.addr == s.addr && s.begun.Before(f.end) && s.end.After(f.begun) }) {
			takenFrozen = append(takenFrozen, d)
			continue
		}
		took = append(took, d)
	}
	require.NotEmpty(t, took)
	slices.Sort(took)
	slices.Sort(takenFrozen)
	last := func(d []time.Duration) time.Duration { return append([]time.Duration{0}, d...)[len(d)] }
	t.Logf("%d requests, of which %d reads: %v by status (0: no answer); %d writes acknowledged; %d kills, %d freezes, %d cuts, %d restarts, %d terms",
		len(l.sents), reads, statuses, len(l.acks), l.kills, len(l.frozen), l.cuts, l.leaves, len(l.fleet.led))
	t.Logf("took %v in the median, %v at 99 of 100, %v at most, where %v is allowed; %d requests to a frozen process took at most %v",
		took[len(took)/2], took[len(took)*99/100], last(took), lossBound, len(takenFrozen), last(takenFrozen))
	assert.Less(t, last(took), lossBound, "a request hung")
	assert.NotZero(t, l.kills)
	assert.Equal(t, canFreeze, len(l.frozen) > 0)
	assert.Equal(t, l.fleet.db.postgres, l.cuts > 0)
	assert.True(t, l.fleet.db.postgres || l.leaves > 0)
	assert.NotEmpty(t, l.acks)
}
