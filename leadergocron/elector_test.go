// SPDX-License-Identifier: MIT

package leadergocron_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leadergocron"
	"github.com/oxygenhub/leader/leadertest"
)

// member is a process of a fleet whose scheduler has an Elector and one job, which runs until its context ends.
type member struct {
	stint
	l      *leader.Leader
	e      *leadergocron.Elector
	stop   func()
	ended  chan error
	failed latest // of gocron.AfterJobRunsWithError
}

// newMember returns one of which nothing runs yet.
func newMember(t *testing.T, at place) *member {
	t.Helper()
	m := &member{stint: newStint(), l: newLeader(t, at), failed: make(latest, 1)}
	m.e = newElector(t, m.l)
	return m
}

func (m *member) start(t *testing.T) {
	t.Helper()
	m.stop, m.ended = start(t, m.e)
	s := newScheduler(t, gocron.WithDistributedElector(m.e))
	every(t, s, m.e.Task(m.job), gocron.AfterJobRunsWithError(m.failed.put))
	t.Cleanup(func() { m.release() }) // before the scheduler waits for it
}

// leads waits until m does.
func (m *member) leads(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return m.e.IsLeader(context.Background()) == nil }, soon, time.Millisecond)
}

// newFleet returns two members, of which the first leads and runs its job.
func newFleet(t *testing.T, at place) (first, second *member) {
	t.Helper()
	first, second = newMember(t, at), newMember(t, at)
	first.start(t)
	first.leads(t)
	second.start(t)
	assert.Positive(t, get(t, first.started))
	return first, second
}

func testElectorLosesSession(t *testing.T, at place) {
	t.Helper()
	first, second := newFleet(t, at)
	require.ErrorIs(t, second.e.IsLeader(t.Context()), leadergocron.ErrStandby)
	leadertest.Kill(t, first.l)
	require.ErrorIs(t, get(t, first.told), leader.ErrLost, "the running job hears of it")
	require.ErrorIs(t, first.e.IsLeader(t.Context()), leadergocron.ErrStandby)
	assert.Positive(t, get(t, second.started), "the other runs it")
	assert.Empty(t, first.failed)
	first.release()
	require.ErrorIs(t, get(t, first.failed), leader.ErrLost, "also if the job says that all was well")
	assert.Empty(t, first.started)
	require.NoError(t, second.e.IsLeader(t.Context()))
}

func TestElectorLosesSession(t *testing.T)         { testElectorLosesSession(t, inMemory(t)) }
func TestElectorLosesSessionSQLite(t *testing.T)   { testElectorLosesSession(t, onSQLite(t)) }
func TestElectorLosesSessionPostgres(t *testing.T) { testElectorLosesSession(t, onPostgres(t)) }

// testElectorEnds: Run is told to stop while a job runs, and gives nothing up before that has returned.
func testElectorEnds(t *testing.T, at place) {
	t.Helper()
	first, second := newFleet(t, at)
	first.stop()
	require.ErrorIs(t, get(t, first.told), context.Canceled)
	require.ErrorIs(t, first.e.IsLeader(t.Context()), leadergocron.ErrStandby)
	require.ErrorIs(t, first.e.Task(first.job)(t.Context()), leadergocron.ErrStandby, "no run begins any more")
	h, err := second.l.Holder(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, first.l.Status().Node, h.Node, "the lock is held")
	assert.Empty(t, first.ended)
	assert.Empty(t, second.started)
	first.release()
	require.ErrorIs(t, get(t, first.ended), context.Canceled)
	get(t, second.started)
	require.ErrorIs(t, first.e.IsLeader(t.Context()), leadergocron.ErrNotRunning)
}

func TestElectorEnds(t *testing.T)         { testElectorEnds(t, inMemory(t)) }
func TestElectorEndsSQLite(t *testing.T)   { testElectorEnds(t, onSQLite(t)) }
func TestElectorEndsPostgres(t *testing.T) { testElectorEnds(t, onPostgres(t)) }

func TestElectorResigns(t *testing.T) {
	first, second := newFleet(t, inMemory(t))
	resigned := make(chan error, 1)
	go func() { resigned <- first.l.Resign(context.Background()) }()
	require.ErrorIs(t, get(t, first.told), leader.ErrResigned)
	assert.Empty(t, resigned, "it waits for the job")
	first.release()
	require.NoError(t, get(t, resigned))
	require.ErrorIs(t, get(t, first.ended), leader.ErrResigned)
	get(t, second.started)
}

// TestElectorJobsRunOnOne: plain jobs, of two schedulers, over a shutdown in the right order.
func TestElectorJobsRunOnOne(t *testing.T) {
	at := inMemory(t)
	var counts [2]atomic.Int32
	var electors [2]*leadergocron.Elector
	var stops [2]func()
	var schedulers [2]gocron.Scheduler
	for i := range counts {
		electors[i] = newElector(t, newLeader(t, at))
		stops[i], _ = start(t, electors[i])
		s, err := gocron.NewScheduler(gocron.WithDistributedElector(electors[i]))
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Shutdown() })
		every(t, s, func(context.Context) error {
			counts[i].Add(1)
			return nil
		})
		schedulers[i] = s
		s.Start()
	}
	ran := func(i int, least int32) {
		t.Helper()
		require.Eventually(t, func() bool { return counts[i].Load() >= least }, soon, time.Millisecond)
	}
	require.Eventually(t, func() bool { return counts[0].Load()+counts[1].Load() > 0 }, soon, time.Millisecond)
	leads := 0
	if counts[1].Load() > 0 {
		leads = 1
	}
	ran(leads, 10)
	assert.Zero(t, counts[1-leads].Load())
	require.NoError(t, schedulers[leads].Shutdown())
	last := counts[leads].Load()
	stops[leads]()
	ran(1-leads, 10)
	assert.Equal(t, last, counts[leads].Load())
}

// TestElectorTaskConfirms: the context of a wrapped task is the leadership's and that of the job.
func TestElectorTaskConfirms(t *testing.T) {
	e := newElector(t, newLeader(t, onSQLite(t)))
	start(t, e)
	require.Eventually(t, func() bool { return e.IsLeader(t.Context()) == nil }, soon, time.Millisecond)
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
	task := e.Task(func(ctx context.Context) error {
		require.NoError(t, leader.Confirm(ctx))
		assert.Equal(t, "kept", ctx.Value(key{}))
		require.NoError(t, ctx.Err())
		cancel()
		<-ctx.Done()
		return errors.New("its own")
	})
	require.EqualError(t, task(ctx), "its own")
}

func TestElectorNotRunning(t *testing.T) {
	e := newElector(t, newLeader(t, inMemory(t)))
	require.ErrorIs(t, e.IsLeader(t.Context()), leadergocron.ErrNotRunning)
	err := e.Task(func(context.Context) error { panic("not led") })(t.Context())
	require.ErrorIs(t, err, leadergocron.ErrStandby)
	assert.Contains(t, err.Error(), name)
	stop, ended := start(t, e)
	require.Eventually(t, func() bool { return e.IsLeader(t.Context()) == nil }, soon, time.Millisecond)
	require.EqualError(t, e.Run(t.Context()), "leadergocron: Run is running already")
	require.NoError(t, e.IsLeader(t.Context()), "the first goes on")
	stop()
	require.ErrorIs(t, get(t, ended), context.Canceled)
	start(t, e) // again
	require.Eventually(t, func() bool { return e.IsLeader(t.Context()) == nil }, soon, time.Millisecond)
}

// TestElectorIgnoresOthers: the name is led on the same Leader by a Run of somebody else, whose jobs are not ours.
func TestElectorIgnoresOthers(t *testing.T) {
	l := newLeader(t, inMemory(t))
	e := newElector(t, l)
	require.NoError(t, l.Run(t.Context(), name, func(context.Context) error {
		start(t, e)
		require.Eventually(t, func() bool { return errors.Is(e.IsLeader(t.Context()), leadergocron.ErrStandby) }, soon, time.Millisecond)
		require.ErrorIs(t, e.Task(func(context.Context) error { return nil })(t.Context()), leadergocron.ErrStandby)
		return nil
	}))
}

func TestElectorRefusesBadInput(t *testing.T) {
	_, err := leadergocron.NewElector(nil, name)
	require.EqualError(t, err, "leadergocron: the Leader is nil: make one with leader.New")
	l := newLeader(t, inMemory(t))
	for _, bad := range []string{"", "a\x00b", "\xff", strings.Repeat("a", 1025)} {
		_, err := leadergocron.NewElector(l, bad)
		require.ErrorContains(t, err, "the name of the Elector is")
	}
}

// TestGocronIgnoresLockersOfElectors is what the package comment says of gocron.
func TestGocronIgnoresLockersOfElectors(t *testing.T) {
	l := newLeader(t, inMemory(t))
	e := newElector(t, l)
	k, err := leadergocron.NewLocker(l, leadergocron.LockerOptions{}) // does not run: it would give no lock
	require.NoError(t, err)
	start(t, e)
	s := newScheduler(t, gocron.WithDistributedElector(e), gocron.WithDistributedLocker(k))
	ran := make(chan struct{}, 1000)
	every(t, s, func(context.Context) error {
		ran <- struct{}{}
		return nil
	})
	get(t, ran)
}
