// SPDX-License-Identifier: MIT

package leadergocron_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leadergocron"
)

func TestLockerUnanswered(t *testing.T) {
	nowhere := func(testing.TB) leader.Backend { return leader.Postgres("postgres://127.0.0.1:9/app?sslmode=disable") }
	t.Cleanup(func() { noneLeft(t) })
	k, err := leadergocron.NewLocker(newLeader(t, nowhere), leadergocron.LockerOptions{Wait: 300 * time.Millisecond})
	require.NoError(t, err)
	_, err = k.Lock(t.Context(), name)
	require.ErrorIs(t, err, leadergocron.ErrNotRunning)
	start(t, k)
	runs(t, k)
	require.EqualError(t, k.Run(t.Context()), "leadergocron: Run is running already")
	_, err = k.Lock(t.Context(), name)
	require.ErrorIs(t, err, leadergocron.ErrUnanswered)
	assert.Contains(t, err.Error(), "refused", "it says what went wrong")
}

func TestLockerWaitIsEnded(t *testing.T) {
	nowhere := func(testing.TB) leader.Backend { return leader.Postgres("postgres://127.0.0.1:9/app?sslmode=disable") }
	t.Cleanup(func() { noneLeft(t) })
	k, err := leadergocron.NewLocker(newLeader(t, nowhere), leadergocron.LockerOptions{Wait: time.Hour})
	require.NoError(t, err)
	stop, ended := start(t, k)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.Eventually(t, func() bool { // by its caller
		_, err := k.Lock(ctx, name)
		return errors.Is(err, context.DeadlineExceeded)
	}, soon, time.Millisecond)
	_, err = k.Lock(dead(), name)
	require.ErrorIs(t, err, context.Canceled)
	refused := make(chan error, 1)
	go func() { // by the end of Run
		_, err := k.Lock(context.Background(), name)
		refused <- err
	}()
	stop()
	require.ErrorIs(t, get(t, refused), leadergocron.ErrNotRunning)
	require.ErrorIs(t, get(t, ended), context.Canceled)
}

// TestLockerMinHold: a lock is kept from when it was got, after its job, for no longer than it has to be.
func TestLockerMinHold(t *testing.T) { synctest.Test(t, testLockerMinHold) }

func testLockerMinHold(t *testing.T) {
	at := inMemory(t)
	k, other := newLocker(t, newLeader(t, at), leadergocron.LockerOptions{MinHold: 6 * time.Second}), newLocker(t, newLeader(t, at), leadergocron.LockerOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	lock, err := k.Lock(ctx, name)
	require.NoError(t, err)
	began := time.Now()
	time.Sleep(time.Second)
	cancel() // the scheduler is shut down: Run is not
	synctest.Wait()
	require.NoError(t, lock.Unlock(t.Context()))
	assert.Equal(t, time.Second, time.Since(began), "Unlock does not wait")
	time.Sleep(4900 * time.Millisecond)
	for _, k := range []*leadergocron.Locker{k, other} {
		_, err = k.Lock(t.Context(), name)
		require.ErrorIs(t, err, leadergocron.ErrLocked)
	}
	err = k.Task(name, func(context.Context) error { panic("not held for a job") })(t.Context())
	require.ErrorIs(t, err, leadergocron.ErrStandby)
	assert.Contains(t, err.Error(), "is not held")
	time.Sleep(200 * time.Millisecond)
	lock, err = k.Lock(t.Context(), name)
	require.NoError(t, err)
	time.Sleep(time.Minute) // a job that takes longer
	require.NoError(t, lock.Unlock(t.Context()))
	lock, err = other.Lock(t.Context(), name)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestLockerMinHoldEnds with Run, as the process does.
func TestLockerMinHoldEnds(t *testing.T) {
	at := inMemory(t)
	k, err := leadergocron.NewLocker(newLeader(t, at), leadergocron.LockerOptions{MinHold: time.Hour})
	require.NoError(t, err)
	stop, ended := start(t, k)
	other := newLocker(t, newLeader(t, at), leadergocron.LockerOptions{})
	runs(t, k)
	lock, err := k.Lock(t.Context(), name)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
	_, err = other.Lock(t.Context(), name)
	require.ErrorIs(t, err, leadergocron.ErrLocked)
	stop()
	require.ErrorIs(t, get(t, ended), context.Canceled)
	lock, err = other.Lock(t.Context(), name)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
}
