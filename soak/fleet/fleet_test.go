// SPDX-License-Identifier: MIT

//go:build unix

package fleet_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/ledger"
	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/soak/check"
	"github.com/oxygenhub/leader/soak/faults"
	"github.com/oxygenhub/leader/soak/fleet"
	"github.com/oxygenhub/leader/soak/history"
	"github.com/oxygenhub/leader/soak/internal/crew"
)

// program builds the worker once for all tests.
var program = sync.OnceValues(func() (fleet.Worker, error) {
	return fleet.Build(context.Background(), bin, "test")
})

var bin string

func TestMain(m *testing.M) {
	var err error
	if bin, err = os.MkdirTemp("", "soak"); err == nil {
		err = os.Chmod(bin, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // fleets mostly wait; the flag is there
	code := m.Run()
	_ = os.RemoveAll(bin)
	os.Exit(code)
}

// config is of a small fleet.
func config(t *testing.T) fleet.Config {
	t.Helper()
	worker, err := program()
	require.NoError(t, err)
	return fleet.Config{
		Seed: 1, Arena: "direct", Places: 3, Names: []string{"a", "b", "c"}, StopTime: 400 * time.Millisecond,
		Timing: history.Timing{
			Retry: 100 * time.Millisecond, Check: 100 * time.Millisecond, Lease: 600 * time.Millisecond, SessionTimeout: 1500 * time.Millisecond,
		},
		Worker: worker, Dir: t.TempDir(), Log: func(text string) { t.Log(text) },
	}
}

// run is an episode and what the checkers say.
func run(t *testing.T, c fleet.Config) (*history.Episode, check.Result) {
	t.Helper()
	for i := range c.Plan {
		c.Plan[i].ID = i + 1
	}
	ep, err := fleet.Run(t.Context(), c)
	if errors.Is(err, pgtest.ErrSkipped) {
		t.Skip(err)
	}
	require.NoError(t, err)
	result := check.All(ep)
	t.Logf("%v", result.Counts)
	for _, v := range result.Violations {
		t.Logf("%s: %s: %s", v.Rule, v.Name, v.Text)
	}
	return ep, result
}

func shared(t *testing.T) *fleet.Server {
	t.Helper()
	server, err := fleet.NewServer(context.Background(), t.TempDir(), func(text string) { t.Log(text) })
	if errors.Is(err, pgtest.ErrSkipped) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Close()) })
	return server
}

// row is faults of all these kinds, one after the other, in a place.
func row(place int, kinds ...string) (plan []faults.Fault) {
	at := 100 * time.Millisecond
	for _, kind := range kinds {
		f := faults.New(kind, place, at, 300*time.Millisecond)
		plan = append(plan, f)
		at += f.For + 200*time.Millisecond
	}
	return plan
}

// TestPostgresEachFault: each fault is done and undone, and the fleet does not mind.
func TestPostgresEachFault(t *testing.T) {
	t.Parallel()
	c := config(t)
	c.Plan = slices.Concat(
		row(1, faults.Kill, faults.Slow, faults.Panics, faults.Storm, faults.Clock),
		row(2, faults.Pause, faults.Resigns, faults.Stub, faults.Back),
		row(3, faults.Replace),
		row(1, faults.Hole, faults.HoleUp, faults.HoleDown, faults.Delay, faults.Reset),
		row(2, faults.Stall, faults.AppHole, faults.AppReset, faults.AllHole),
		row(3, faults.Terminate, faults.Killed),
		row(0, faults.Crowd, faults.Fast, faults.Immediate, faults.Crash, faults.Full, faults.ReadOnly),
	)
	c.Calm = 2 * time.Second
	ep, result := run(t, c)
	assert.Empty(t, result.Violations)
	done := make(map[string]int)
	for _, e := range ep.Events {
		switch e.Kind {
		case history.Fault:
			done[e.Fault.Kind]++
		case history.Heal:
			done[e.Fault.Kind]--
		}
	}
	for _, kind := range faults.Kinds("direct") {
		undone, ok := done[kind]
		assert.True(t, ok, "%s was not done", kind)
		assert.Zero(t, undone, "%s was not undone", kind)
	}
	assert.NotEmpty(t, ep.Commits)
}

// TestPostgresControls: each fleet is deliberately broken, and the checker that is to see it does.
func TestPostgresControls(t *testing.T) {
	server := shared(t)
	everywhere := func(kind string, at, length time.Duration) (plan []faults.Fault) {
		for place := range 3 {
			plan = append(plan, faults.New(kind, place+1, at, length))
		}
		return plan
	}
	for broken, control := range map[string]struct {
		rules  []check.Rule // one of which is broken
		places int
		names  int
		tasks  string
		shift  time.Duration
		calm   time.Duration
		plan   []faults.Fault
	}{
		crew.Early: {rules: []check.Rule{check.Overlap}, calm: 2 * time.Second},
		crew.Split: {rules: []check.Rule{check.Order}, calm: 2 * time.Second},
		crew.Select: {rules: []check.Rule{ledger.Stale, ledger.Order}, tasks: crew.Ordinary, plan: []faults.Fault{
			faults.New(faults.Pause, 1, 100*time.Millisecond, 2500*time.Millisecond),
			faults.New(faults.Pause, 2, 3*time.Second, 2500*time.Millisecond),
			faults.New(faults.Pause, 3, 6*time.Second, 2500*time.Millisecond),
		}, calm: time.Second},
		crew.Lease:  {rules: []check.Rule{check.Late}, tasks: crew.Ordinary, plan: everywhere(faults.Hole, 100*time.Millisecond, 3*time.Second), calm: time.Second},
		crew.Once:   {rules: []check.Rule{check.Unled}, places: 1, tasks: crew.Ordinary, plan: row(1, faults.Terminate), calm: 12 * time.Second},
		crew.Leak:   {rules: []check.Rule{check.Leak}, places: 1, names: 1, tasks: crew.Short, shift: 400 * time.Millisecond, calm: 22 * time.Second},
		crew.Chatty: {rules: []check.Rule{check.Cost}, tasks: crew.Ordinary, calm: 11 * time.Second},
		crew.Stale:  {rules: []check.Rule{check.Holds}, calm: 6 * time.Second},
	} {
		t.Run(broken, func(t *testing.T) {
			t.Parallel()
			c := config(t)
			c.Server, c.Broken, c.Tasks, c.Shift, c.Calm, c.Plan = server, broken, control.tasks, control.shift, control.calm, control.plan
			if control.places > 0 {
				c.Places = control.places
			}
			if control.names > 0 {
				c.Names = c.Names[:control.names]
			}
			_, result := run(t, c)
			seen := make(map[check.Rule]int)
			for _, v := range result.Violations {
				seen[v.Rule]++
			}
			assert.True(t, slices.ContainsFunc(control.rules, func(r check.Rule) bool { return seen[r] > 0 }), "%v instead of %q", seen, control.rules)
		})
	}
	assert.Len(t, crew.Broken(), 8, "all of them are above")
}

// TestPostgresArenas: what the other arenas have is done and undone there, and the fleet does not mind.
func TestPostgresArenas(t *testing.T) {
	t.Parallel()
	for arena, plan := range map[string][]faults.Fault{
		"pooler":  slices.Concat(row(0, faults.Bounce, faults.Fast), row(1, faults.Hole), row(2, faults.Kill)),
		"replica": slices.Concat(row(0, faults.Promote), row(1, faults.AllHole), row(2, faults.Kill)),
		"remote":  slices.Concat(row(1, faults.LinkDown), row(2, faults.Silence), row(3, faults.NoRoute)),
	} {
		t.Run(arena, func(t *testing.T) {
			t.Parallel()
			c := config(t)
			c.Arena, c.Plan, c.Calm = arena, plan, 2*time.Second
			ep, result := run(t, c)
			assert.Empty(t, result.Violations)
			assert.NotEmpty(t, ep.Commits)
		})
	}
}

func TestSQLiteEachFault(t *testing.T) {
	t.Parallel()
	c := config(t)
	c.Arena, c.Calm = "sqlite", time.Second
	c.Plan = slices.Concat(
		row(1, faults.Kill, faults.Slow, faults.Panics, faults.Storm, faults.Clock),
		row(2, faults.Pause, faults.Resigns, faults.Stub, faults.Back),
		row(3, faults.Replace),
		row(0, faults.Crowd, faults.DiskFull),
	)
	ep, result := run(t, c)
	assert.Empty(t, result.Violations)
	assert.NotEmpty(t, ep.Commits)
}
