// SPDX-License-Identifier: MIT

package leadergocron_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/leadergocron"
)

// What is asked at the same tick by two nodes, of which the second has a clock that is late, and what that means.

// judge is an Elector or a Locker that tells what it has answered, and what it has given back.
type judge struct {
	gocron.Elector
	gocron.Locker
	answered, unlocked chan error
}

func newJudge(e gocron.Elector, k gocron.Locker) judge {
	return judge{e, k, make(chan error, 1), make(chan error, 1)}
}

func (j judge) IsLeader(ctx context.Context) error {
	err := j.Elector.IsLeader(ctx)
	j.answered <- err
	return err
}

func (j judge) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lock, err := j.Locker.Lock(ctx, key)
	j.answered <- err
	return judged{lock, j.unlocked}, err
}

type judged struct {
	gocron.Lock
	unlocked chan error
}

func (j judged) Unlock(ctx context.Context) error {
	err := j.Lock.Unlock(ctx)
	j.unlocked <- err
	return err
}

// atThree starts a scheduler with a short job that is due at three. pass has its clock get there.
func atThree(t *testing.T, opt gocron.SchedulerOption) (pass func()) {
	t.Helper()
	clock := clockwork.NewFakeClockAt(time.Date(2026, 1, 1, 2, 59, 30, 0, time.UTC))
	s := newScheduler(t, opt, gocron.WithClock(clock), gocron.WithLocation(time.UTC))
	_, err := s.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(func() {}), gocron.WithName(name))
	require.NoError(t, err)
	require.NoError(t, clock.BlockUntilContext(t.Context(), 1))
	return func() { clock.Advance(30 * time.Second) }
}

// TestClocksLockerRunsTwice is why the package comment advises against a Locker.
func TestClocksLockerRunsTwice(t *testing.T) {
	require.NoError(t, askedLate(t, leadergocron.LockerOptions{}))
}

func TestClocksMinHoldRunsOnce(t *testing.T) {
	require.ErrorIs(t, askedLate(t, leadergocron.LockerOptions{MinHold: time.Hour}), leadergocron.ErrLocked)
}

// askedLate returns what the Locker of the late node says.
func askedLate(t *testing.T, opts leadergocron.LockerOptions) error {
	t.Helper()
	at := inMemory(t)
	first, second := newJudge(nil, newLocker(t, newLeader(t, at), opts)), newJudge(nil, newLocker(t, newLeader(t, at), opts))
	early, late := atThree(t, gocron.WithDistributedLocker(first)), atThree(t, gocron.WithDistributedLocker(second))
	early()
	require.NoError(t, get(t, first.answered))
	require.NoError(t, get(t, first.unlocked), "the job has run")
	late()
	return get(t, second.answered)
}

func TestClocksElectorRunsOnce(t *testing.T) {
	at := inMemory(t)
	leading, standby := newElector(t, newLeader(t, at)), newElector(t, newLeader(t, at))
	start(t, leading)
	require.Eventually(t, func() bool { return leading.IsLeader(t.Context()) == nil }, soon, time.Millisecond)
	start(t, standby)
	first, second := newJudge(leading, nil), newJudge(standby, nil)
	early, late := atThree(t, gocron.WithDistributedElector(first)), atThree(t, gocron.WithDistributedElector(second))
	early()
	require.NoError(t, get(t, first.answered))
	late()
	require.Error(t, get(t, second.answered))
}
