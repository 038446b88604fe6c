// SPDX-License-Identifier: MIT

//go:build unix

package leader_test

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

func TestProcessKilledIsFollowedWithinRetry(t *testing.T) {
	procBackends(t, func(t *testing.T, job procJob) {
		t.Helper()
		const rounds = 10
		job.Names = []string{"a"}
		f := &procFleet{t: t}
		holder := f.start(job)
		f.await(holder, "start", time.Time{})
		var took []time.Duration
		next := f.start(job) // the one after is started early: its start costs more than a Retry
		for range rounds {
			standby := next
			f.await(standby, "ready", time.Time{})
			next = f.start(job)
			f.await(next, "ready", time.Time{})
			killed := holder.kill()
			started := f.await(nil, "start", killed)
			if started.worker != standby.id {
				standby, next = next, standby
			}
			took = append(took, started.at().Sub(killed))
			holder = standby
		}
		slices.Sort(took)
		t.Logf("followed after median %v, max %v; Retry %v", took[rounds/2], took[rounds-1], job.Options.Retry)
		assert.Less(t, took[rounds-1], job.Options.Retry*13/10+procSlack)
		f.exclusive()
	})
}

func TestProcessToldToStopHandsOver(t *testing.T) {
	procBackends(t, func(t *testing.T, job procJob) {
		t.Helper()
		job.Names = []string{"a", "b", "c"}
		bound := job.Options.Retry*13/10 + procSlack
		if job.Postgres != "" {
			job.Options.Retry = time.Minute // only a notification can be as fast
			bound = 2 * procSlack
		}
		f := &procFleet{t: t}
		holder := f.start(job)
		dbWithin(t, procPatience, "three tasks", func() bool { return f.starts(holder) == 3 })
		standby := f.start(job)
		f.await(standby, "ready", time.Time{})
		told := time.Now()
		holder.signal(syscall.SIGTERM)
		dbWithin(t, procPatience, "three tasks", func() bool { return f.starts(standby) == 3 })
		var took time.Duration
		for _, e := range f.all() {
			if e.Kind == "start" && e.worker == standby.id {
				took = max(took, e.at().Sub(told))
			}
		}
		t.Logf("the last of 3 names was handed over %v after SIGTERM", took)
		assert.Less(t, took, bound)
		holder.clean(t)
		standby.signal(syscall.SIGTERM)
		standby.clean(t)
		f.exclusive()
	})
}

// TestProcessLeavingMainAtOnceHandsOver: Run returns only when the others have been told, so a process may end without
// Resign.
func TestProcessLeavingMainAtOnceHandsOver(t *testing.T) {
	procBackends(t, func(t *testing.T, job procJob) {
		t.Helper()
		job.Names = []string{"a"}
		bound := job.Options.Retry*13/10 + procSlack
		if job.Postgres != "" {
			job.Options.Retry = time.Minute
			bound = 2 * procSlack
		}
		brief := job
		brief.Once = true
		f := &procFleet{t: t}
		holder := f.start(brief)
		f.await(holder, "start", time.Time{})
		standby := f.start(job)
		f.await(standby, "ready", time.Time{})
		told := time.Now()
		holder.signal(syscall.SIGTERM)
		started := f.await(standby, "start", told)
		ended := f.await(holder, "end", told)
		t.Logf("handed over %v after the task's end", started.at().Sub(ended.at()))
		assert.Less(t, started.at().Sub(ended.at()), bound)
		holder.clean(t)
		f.exclusive()
	})
}

// TestProcessFrozenOnSQLiteGoesOnLeading: the kernel holds the lock for as long as the process lives, so there is no lease that
// could end.
func TestProcessFrozenOnSQLiteGoesOnLeading(t *testing.T) {
	opts := leader.Options{
		Retry: 50 * time.Millisecond, Check: 100 * time.Millisecond, Lease: 200 * time.Millisecond, SessionTimeout: 500 * time.Millisecond,
	}
	job := procJob{SQLite: filepath.Join(t.TempDir(), "app.db"), Options: opts, Names: []string{"a"}}
	f := &procFleet{t: t}
	holder := f.start(job)
	f.await(holder, "start", time.Time{})
	standby := f.start(job)
	f.await(standby, "ready", time.Time{})
	holder.stop(t)
	dbHolds(t, 3*opts.SessionTimeout, func() bool { return f.starts(standby) == 0 })
	woken := time.Now()
	holder.signal(syscall.SIGCONT)
	f.await(holder, "tick", woken.Add(500*time.Millisecond))
	for _, e := range f.all() {
		if e.worker != holder.id || e.Kind == "ready" {
			continue
		}
		require.Contains(t, []string{"start", "tick"}, e.Kind, "Confirm has always been nil")
		require.True(t, e.Leading, "IsLeading")
		require.False(t, e.Done, "the context")
	}
	assert.Equal(t, 1, f.starts(holder), "the same task goes on")
	assert.Zero(t, f.starts(standby))
	holder.signal(syscall.SIGTERM)
	holder.clean(t)
	f.await(standby, "start", woken)
	f.exclusive()
}

// TestProcessFrozenOnPostgresKnowsOnWaking: a process must not believe its old lease when it wakes, whatever it does first. The
// server has ended its session by then, but for one before 14, which nothing tells that a process is frozen: the kernel goes on
// answering for it.
func TestProcessFrozenOnPostgresKnowsOnWaking(t *testing.T) {
	url := pgtest.URL(t)
	major := dbMajor(t, url)
	dbCheckLeaks(t, url)
	opts := leader.Options{Retry: 200 * time.Millisecond, Check: 300 * time.Millisecond, Lease: time.Second, SessionTimeout: 2 * time.Second}
	job := procJob{Postgres: url, Options: opts, Names: []string{"a"}, Probe: true}
	f := &procFleet{t: t}
	holder := f.start(job)
	f.await(holder, "start", time.Time{})
	standby := f.start(job)
	f.await(standby, "ready", time.Time{})
	for range 2 {
		frozen := time.Now()
		holder.stop(t)
		stopped := time.Now()
		terms := f.starts(holder)
		if major >= 14 {
			took := f.await(standby, "start", frozen).at().Sub(frozen)
			t.Logf("PostgreSQL %d: followed %v after the freeze", major, took)
			assert.Less(t, took, opts.SessionTimeout+opts.Retry*13/10+procSlack)
			assert.Greater(t, took, opts.Lease, "the silence is counted from the last proof, a Check or a slow statement ago")
		} else {
			standing := f.starts(standby)
			dbHolds(t, opts.SessionTimeout+procSlack, func() bool { return f.starts(standby) == standing })
		}
		woken := time.Now()
		holder.signal(syscall.SIGCONT)
		f.knew(holder, stopped, woken)
		if major >= 14 {
			dbHolds(t, opts.SessionTimeout, func() bool { return f.starts(holder) == terms })
		} else {
			dbWithin(t, procPatience, "somebody leads", func() bool { return f.lastStart(holder, standby).at().After(woken) })
		}
		if f.workers[f.lastStart(holder, standby).worker] == standby {
			holder, standby = standby, holder
		}
	}
	holder.signal(syscall.SIGTERM)
	holder.clean(t)
	left := time.Now()
	dbWithin(t, procPatience, "the other one leads", func() bool { return f.lastStart(standby).at().After(left.Add(-procSlack)) })
	standby.signal(syscall.SIGTERM)
	standby.clean(t)
	f.exclusive()
}

// lastStart returns the last task that one of workers has begun.
func (f *procFleet) lastStart(workers ...*procWorker) (last procEvent) {
	for _, e := range f.all() {
		if e.Kind == "start" && slices.Contains(workers, f.workers[e.worker]) && e.Nano > last.Nano {
			last = e
		}
	}
	return last
}

// knew requires that w, which stood still from stopped to woken and does nothing but ask, never heard after it woke that it
// leads, and was told to stop at once.
func (f *procFleet) knew(w *procWorker, stopped, woken time.Time) {
	f.t.Helper()
	late := f.await(w, "late", woken)
	assert.False(f.t, late.Leading, "IsLeading with a lease that is over")
	told := f.await(w, "told", woken)
	assert.False(f.t, told.Leading)
	probe := f.await(w, "probe", woken)
	f.t.Logf("told %v after SIGCONT; the last yes of Confirm, IsLeading and the context %v, %v and %v after it", told.at().Sub(woken),
		time.Unix(0, probe.Confirmed).Sub(woken), time.Unix(0, probe.Led).Sub(woken), time.Unix(0, probe.Open).Sub(woken))
	assert.LessOrEqual(f.t, probe.Confirmed, stopped.UnixNano(), "Confirm said yes to who asked after waking")
	assert.LessOrEqual(f.t, probe.Led, stopped.UnixNano(), "IsLeading said yes to who asked after waking")
	assert.Less(f.t, time.Unix(0, probe.Open).Sub(woken), procSlack)
	assert.Less(f.t, told.at().Sub(woken), procSlack)
	for _, e := range f.all() {
		if e.worker == w.id && e.Kind == "tick" {
			require.False(f.t, e.Term == told.Term && e.at().After(stopped), "the task went on after it woke")
		}
	}
}

func TestProcessKilledOnSQLiteIsFollowedThoughItsChildLives(t *testing.T) {
	job := procJob{SQLite: filepath.Join(t.TempDir(), "app.db"), Options: leader.Options{Retry: 100 * time.Millisecond}, Names: []string{"a"}}
	f := &procFleet{t: t}
	parent := job
	parent.Child = true
	holder := f.start(parent)
	child := f.await(holder, "child", time.Time{}).PID
	defer syscall.Kill(child, syscall.SIGKILL)
	standby := f.start(job)
	f.await(standby, "ready", time.Time{})
	killed := holder.kill()
	took := f.await(standby, "start", killed).at().Sub(killed)
	assert.Less(t, took, job.Options.Retry*13/10+procSlack)
	require.NoError(t, syscall.Kill(child, 0), "the child lives")
	f.exclusive()
}

func TestProcessesContendingUnderKillsExclude(t *testing.T) {
	procBackends(t, func(t *testing.T, job procJob) {
		t.Helper()
		job.Names = []string{"a", "b", "c", "d", "e"}
		job.Return = 200 * time.Millisecond
		job.Options.Retry = 50 * time.Millisecond
		f := &procFleet{t: t}
		fleet := []*procWorker{f.start(job), f.start(job), f.start(job)}
		for _, w := range fleet {
			f.await(w, "ready", time.Time{})
		}
		var kills int
		next := time.Now()
		dbHolds(t, 5*time.Second, func() bool {
			if time.Now().After(next) {
				next = time.Now().Add(200*time.Millisecond + rand.N(600*time.Millisecond))
				victim := rand.IntN(len(fleet))
				fleet[victim].kill()
				fleet[victim] = f.start(job)
				kills++
			}
			return true
		})
		for _, w := range fleet {
			f.await(w, "start", time.Time{}) // everyone has had a turn
		}
		for _, w := range fleet {
			w.signal(syscall.SIGTERM)
		}
		for _, w := range fleet {
			w.clean(t)
		}
		tasks := f.exclusive()
		t.Logf("%d tasks of 5 names, %d kills", tasks, kills)
		assert.Greater(t, tasks, 20)
	})
}
