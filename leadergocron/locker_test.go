// SPDX-License-Identifier: MIT

package leadergocron_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leadergocron"
	"github.com/oxygenhub/leader/leadertest"
)

// locks returns two running Lockers of different processes, and the Leader of the first.
func locks(t *testing.T, at place) (first, second *leadergocron.Locker, l *leader.Leader) {
	t.Helper()
	l = newLeader(t, at)
	return newLocker(t, l, leadergocron.LockerOptions{}), newLocker(t, newLeader(t, at), leadergocron.LockerOptions{}), l
}

// eventually takes the lock of name as soon as k gets it.
func eventually(t *testing.T, k *leadergocron.Locker) gocron.Lock {
	t.Helper()
	for end := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
		lock, err := k.Lock(context.Background(), name)
		if err == nil {
			return lock
		}
		require.ErrorIs(t, err, leadergocron.ErrLocked)
		require.True(t, time.Now().Before(end), "the lock is still held")
	}
}

func dead() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func testLockerExcludes(t *testing.T, at place) {
	t.Helper()
	first, second, _ := locks(t, at)
	lock, err := first.Lock(t.Context(), name)
	require.NoError(t, err)
	for _, k := range []*leadergocron.Locker{first, second} {
		other, err := k.Lock(t.Context(), name)
		require.ErrorIs(t, err, leadergocron.ErrLocked)
		assert.Nil(t, other)
	}
	elsewhere, err := second.Lock(t.Context(), "another job")
	require.NoError(t, err)
	require.NoError(t, elsewhere.Unlock(t.Context()))
	require.NoError(t, lock.Unlock(t.Context()))
	require.NoError(t, lock.Unlock(t.Context()), "once more")
	lock, err = second.Lock(t.Context(), name)
	require.NoError(t, err, "it was free when Unlock returned")
	// As gocron does it while it shuts down.
	if err := lock.Unlock(dead()); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	require.NoError(t, eventually(t, first).Unlock(t.Context()))
}

func TestLockerExcludes(t *testing.T)         { testLockerExcludes(t, inMemory(t)) }
func TestLockerExcludesSQLite(t *testing.T)   { testLockerExcludes(t, onSQLite(t)) }
func TestLockerExcludesPostgres(t *testing.T) { testLockerExcludes(t, onPostgres(t)) }

// crew is a process of a fleet whose scheduler has a Locker and one job, which runs until its context ends.
type crew struct {
	stint
	l       *leader.Leader
	k       *leadergocron.Locker
	s       gocron.Scheduler
	stop    func()
	ended   chan error
	refused latest // of gocron.AfterLockError
	failed  latest
}

func newCrew(t *testing.T, at place) *crew {
	t.Helper()
	c := &crew{stint: newStint(), l: newLeader(t, at), refused: make(latest, 1), failed: make(latest, 1)}
	var err error
	c.k, err = leadergocron.NewLocker(c.l, leadergocron.LockerOptions{})
	require.NoError(t, err)
	c.stop, c.ended = start(t, c.k)
	runs(t, c.k)
	c.s = newScheduler(t, gocron.WithDistributedLocker(c.k))
	every(t, c.s, c.k.Task(name, c.job), gocron.AfterLockError(c.refused.put), gocron.AfterJobRunsWithError(c.failed.put))
	t.Cleanup(c.release)
	return c
}

// newCrews returns two, of which the first runs the job.
func newCrews(t *testing.T, at place) (first, second *crew) {
	t.Helper()
	first = newCrew(t, at)
	assert.Positive(t, get(t, first.started))
	second = newCrew(t, at)
	require.ErrorIs(t, get(t, second.refused), leadergocron.ErrLocked)
	return first, second
}

func testLockerLosesSession(t *testing.T, at place) {
	t.Helper()
	first, second := newCrews(t, at)
	leadertest.Kill(t, first.l)
	require.ErrorIs(t, get(t, first.told), leader.ErrLost, "the running job hears of it")
	assert.Positive(t, get(t, second.started), "the other runs it")
	first.release()
	require.ErrorIs(t, get(t, first.failed), leader.ErrLost)
	require.ErrorIs(t, get(t, first.refused), leadergocron.ErrLocked, "the first asks again")
}

func TestLockerLosesSession(t *testing.T)         { testLockerLosesSession(t, inMemory(t)) }
func TestLockerLosesSessionSQLite(t *testing.T)   { testLockerLosesSession(t, onSQLite(t)) }
func TestLockerLosesSessionPostgres(t *testing.T) { testLockerLosesSession(t, onPostgres(t)) }

// testLockerEnds: Run is told to stop while a job runs, and gives its lock not back before that has returned.
func testLockerEnds(t *testing.T, at place) {
	t.Helper()
	first, second := newCrews(t, at)
	first.stop()
	require.ErrorIs(t, get(t, first.told), context.Canceled)
	_, err := first.k.Lock(t.Context(), "another job")
	require.ErrorIs(t, err, leadergocron.ErrNotRunning)
	require.ErrorIs(t, first.k.Task(name, first.job)(t.Context()), leadergocron.ErrStandby, "no run begins under this lock any more")
	h, err := second.l.Holder(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, first.l.Status().Node, h.Node, "the lock is held")
	assert.Empty(t, first.ended)
	assert.Empty(t, second.started)
	first.release()
	require.ErrorIs(t, get(t, first.ended), context.Canceled)
	get(t, second.started)
	require.Eventually(t, func() bool { return errors.Is(<-first.refused, leadergocron.ErrNotRunning) }, soon, time.Millisecond)
}

func TestLockerEnds(t *testing.T)         { testLockerEnds(t, inMemory(t)) }
func TestLockerEndsSQLite(t *testing.T)   { testLockerEnds(t, onSQLite(t)) }
func TestLockerEndsPostgres(t *testing.T) { testLockerEnds(t, onPostgres(t)) }

// TestLockerEndsUnderPlainJob: of a job that is not wrapped, a Locker knows that it runs, too.
func TestLockerEndsUnderPlainJob(t *testing.T) {
	at := inMemory(t)
	k, err := leadergocron.NewLocker(newLeader(t, at), leadergocron.LockerOptions{})
	require.NoError(t, err)
	stop, ended := start(t, k)
	runs(t, k)
	other := newLocker(t, newLeader(t, at), leadergocron.LockerOptions{})
	lock, err := k.Lock(t.Context(), name)
	require.NoError(t, err)
	stop()
	require.Eventually(t, func() bool {
		another, err := k.Lock(t.Context(), "another job")
		if err == nil { // Run has not seen its end yet, and would wait for this
			err = another.Unlock(t.Context())
		}
		return errors.Is(err, leadergocron.ErrNotRunning)
	}, soon, time.Millisecond)
	for range 10 {
		_, err = other.Lock(t.Context(), name)
		require.ErrorIs(t, err, leadergocron.ErrLocked)
	}
	assert.Empty(t, ended)
	require.NoError(t, lock.Unlock(t.Context()))
	require.ErrorIs(t, get(t, ended), context.Canceled)
	require.NoError(t, eventually(t, other).Unlock(t.Context()))
}

// TestLockerShutdown: gocron unlocks with a context that has ended.
func TestLockerShutdown(t *testing.T) {
	first, second := newCrews(t, inMemory(t))
	first.release()
	require.NoError(t, first.s.Shutdown())
	require.ErrorIs(t, get(t, first.told), context.Canceled)
	get(t, second.started)
	assert.Empty(t, first.ended, "Run goes on")
}

func TestLockerResigns(t *testing.T) {
	first, second := newCrews(t, inMemory(t))
	resigned := make(chan error, 1)
	go func() { resigned <- first.l.Resign(context.Background()) }()
	require.ErrorIs(t, get(t, first.told), leader.ErrResigned)
	assert.Empty(t, resigned, "it waits for the job")
	first.release()
	require.NoError(t, get(t, resigned))
	get(t, second.started)
	_, err := first.k.Lock(t.Context(), name)
	require.ErrorIs(t, err, leader.ErrResigned)
}

// TestLockerUnlockTellsOfLoss: and a lock that was lost is no lock.
func TestLockerUnlockTellsOfLoss(t *testing.T) {
	first, second, l := locks(t, inMemory(t))
	lock, err := first.Lock(t.Context(), name)
	require.NoError(t, err)
	leadertest.Kill(t, l)
	taken := eventually(t, second)
	require.ErrorIs(t, first.Task(name, func(context.Context) error { panic("not held") })(t.Context()), leadergocron.ErrStandby)
	require.ErrorIs(t, lock.Unlock(t.Context()), leader.ErrLost)
	require.NoError(t, taken.Unlock(t.Context()))
}

func TestLockerPanickingJobUnlocks(t *testing.T) {
	first, second, _ := locks(t, inMemory(t))
	s := newScheduler(t, gocron.WithDistributedLocker(first))
	panicked := make(chan struct{}, 1)
	_, err := s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
		gocron.NewTask(first.Task(name, func(context.Context) error { panic("of the job") })), gocron.WithName(name),
		gocron.WithEventListeners(gocron.AfterJobRunsWithPanic(func(uuid.UUID, string, any) { panicked <- struct{}{} })))
	require.NoError(t, err)
	get(t, panicked)
	require.NoError(t, eventually(t, second).Unlock(t.Context()))
}

// TestLockerTaskOfAnotherName: a task whose job has another name, or none of its own, does not run without a lock.
func TestLockerTaskOfAnotherName(t *testing.T) {
	k := newLocker(t, newLeader(t, inMemory(t)), leadergocron.LockerOptions{})
	s := newScheduler(t, gocron.WithDistributedLocker(k))
	for _, options := range [][]gocron.JobOption{nil, {gocron.WithName(name)}} {
		failed := make(latest, 1)
		options = append(options, gocron.WithEventListeners(gocron.AfterJobRunsWithError(failed.put)))
		task := k.Task("payments", func(context.Context) error { panic("not locked") })
		_, err := s.NewJob(gocron.DurationJob(tick), gocron.NewTask(task), options...)
		require.NoError(t, err)
		err = get(t, failed)
		require.ErrorIs(t, err, leadergocron.ErrStandby)
		assert.Contains(t, err.Error(), "payments")
	}
}

// testLockerManyKeys: 300 locks at once, each for one of two processes.
func testLockerManyKeys(t *testing.T, at place) {
	t.Helper()
	first, second, _ := locks(t, at)
	const keys = 300
	var wg, all sync.WaitGroup
	var winners, refused atomic.Int32
	all.Add(2 * keys)
	for i := range keys {
		for _, k := range []*leadergocron.Locker{first, second} {
			wg.Go(func() {
				lock, err := k.Lock(context.Background(), fmt.Sprintf("job %d", i))
				all.Done()
				if err != nil {
					assert.ErrorIs(t, err, leadergocron.ErrLocked)
					refused.Add(1)
					return
				}
				winners.Add(1)
				all.Wait() // all have asked
				assert.NoError(t, lock.Unlock(context.Background()))
			})
		}
	}
	wg.Wait()
	assert.Equal(t, int32(keys), winners.Load())
	assert.Equal(t, int32(keys), refused.Load())
	for i := range keys {
		lock, err := first.Lock(t.Context(), fmt.Sprintf("job %d", i))
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

func TestLockerManyKeys(t *testing.T)         { testLockerManyKeys(t, inMemory(t)) }
func TestLockerManyKeysPostgres(t *testing.T) { testLockerManyKeys(t, onPostgres(t)) }

// TestLockerManyCallsOfOneKey: whoever gets the lock has it alone, whatever the others do meanwhile.
func TestLockerManyCallsOfOneKey(t *testing.T) {
	first, second, _ := locks(t, inMemory(t))
	var inside, got atomic.Int32
	var wg sync.WaitGroup
	for i := range 40 {
		k := []*leadergocron.Locker{first, second}[i%2]
		wg.Go(func() {
			for range 20 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*100*time.Microsecond)
				lock, err := k.Lock(ctx, name)
				if err == nil {
					assert.Equal(t, int32(1), inside.Add(1))
					got.Add(1)
					inside.Add(-1)
					assert.NotErrorIs(t, lock.Unlock(ctx), leader.ErrLost)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	assert.Positive(t, got.Load())
	require.NoError(t, eventually(t, first).Unlock(t.Context()))
}

func TestLockerRefusesBadInput(t *testing.T) {
	_, err := leadergocron.NewLocker(nil, leadergocron.LockerOptions{})
	require.EqualError(t, err, "leadergocron: the Leader is nil: make one with leader.New")
	l := newLeader(t, inMemory(t))
	for field, opts := range map[string]leadergocron.LockerOptions{
		"Wait": {Wait: -1}, "Wait is 25h": {Wait: 25 * time.Hour}, "MinHold": {MinHold: -1}, "MinHold is 25h": {MinHold: 25 * time.Hour},
	} {
		_, err := leadergocron.NewLocker(l, opts)
		require.ErrorContains(t, err, "LockerOptions."+field)
	}
	_, err = newLocker(t, l, leadergocron.LockerOptions{}).Lock(t.Context(), "")
	require.ErrorContains(t, err, "the name is empty")
}
