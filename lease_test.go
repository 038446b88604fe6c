// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadingSince(t *testing.T) {
	for name, row := range map[string]struct {
		from, to reading
		want     time.Duration
	}{
		"together":       {reading{10, 100}, reading{13, 103}, 3},
		"suspended":      {reading{10, 100}, reading{11, 200}, 100},
		"wall set back":  {reading{10, 100}, reading{15, 2}, 5},
		"wall set ahead": {reading{10, 100}, reading{15, 1000}, 900},
		"same":           {reading{10, 100}, reading{10, 100}, 0},
	} {
		assert.Equal(t, row.want, row.to.since(row.from), name)
	}
}

func TestLease(t *testing.T) { synctest.Test(t, testLease) }

func testLease(t *testing.T) {
	s := &lease{clock: &clock{epoch: time.Now()}, length: 6 * time.Second}
	s.renew(s.clock.read())
	time.Sleep(6*time.Second - 1)
	require.NoError(t, s.err())
	time.Sleep(time.Nanosecond)
	require.Equal(t, errLeaseEnd, s.err())
	s.renew(s.clock.read())
	require.NoError(t, s.err())
	why := errors.New("why")
	s.end(why)
	s.renew(s.clock.read())
	assert.Equal(t, why, s.err(), "an end is for good")

	s = &lease{clock: &clock{epoch: time.Now()}} // without expiry
	s.renew(s.clock.read())
	time.Sleep(time.Hour)
	require.NoError(t, s.err())
	s.clock.skew.Add(int64(time.Hour))
	require.NoError(t, s.err())
}

func TestConfirmAndDeadlineOutsideATask(t *testing.T) {
	require.ErrorIs(t, Confirm(context.Background()), errOutside)
	require.NotErrorIs(t, Confirm(context.Background()), ErrLost)
	_, ok := Deadline(context.Background())
	assert.False(t, ok)
}

func TestConfirmAndDeadline(t *testing.T) { synctest.Test(t, testConfirmAndDeadline) }

func testConfirmAndDeadline(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	var task context.Context
	require.NoError(t, l.Run(t.Context(), "x", func(ctx context.Context) error {
		task = ctx //nolint:fatcontext // to use it too late is the test
		for range 100 {
			time.Sleep(999 * time.Millisecond)
			synctest.Wait()
			require.NoError(t, Confirm(ctx))
			deadline, ok := Deadline(ctx)
			require.True(t, ok)
			assert.Equal(t, st.lastProof(b.session()).Add(6*time.Second), deadline)
		}
		derived, cancel := context.WithCancel(ctx)
		cancel()
		require.NoError(t, Confirm(derived), "a context of its own, however it ended, says nothing of the lock")
		return nil
	}))
	require.ErrorIs(t, Confirm(task), ErrLost, "the task has returned")
	_, ok := Deadline(task)
	assert.False(t, ok)
}

// nosy is a context of the user whose methods ask the Leader something: they must not be run where that would block.
type nosy struct {
	context.Context //nolint:containedctx // it is one
	l               *Leader
}

func (n nosy) Value(key any) any { n.l.Status(); return n.Context.Value(key) }

func TestRunLeavesForeignContextsAlone(t *testing.T) {
	synctest.Test(t, testRunLeavesForeignContextsAlone)
}

func testRunLeavesForeignContextsAlone(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	l.Watch(nosy{ctx, l})
	j := &job{}
	calls := []*call{goRun(nosy{ctx, l}, l, "x", j.task), goTry(nosy{ctx, l}, l, "y", j.task), goRun(nosy{ctx, l}, l, "x", obey)}
	synctest.Wait()
	b.session().terminate()
	time.Sleep(time.Second)
	cancel()
	for _, c := range calls {
		<-c.done
	}
	c := goRun(nosy{t.Context(), l}, l, "x", j.task)
	synctest.Wait()
	require.NoError(t, l.Resign(nosy{t.Context(), l}))
	<-c.done
}
