// SPDX-License-Identifier: MIT

//go:build unix

package leader_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/ledger"
	"github.com/oxygenhub/leader/internal/pgtest"
)

const (
	// histNumberEnv is how many histories there are, histSeedEnv says which: the same seed makes the same plans.
	histNumberEnv = "LEADER_TEST_HISTORIES"
	histSeedEnv   = "LEADER_TEST_SEED"
	histDefault   = 20
	// histFleets go on beside each other. A history mostly waits.
	histFleets = 6
)

// TestPostgresHistories: processes that are frozen, killed, replaced and cut off, at random, write to one table through
// the fence. In the order in which the server has committed it, no row of a term follows the begin of a later one.
// When the faults are over, all names are soon led again.
func TestPostgresHistories(t *testing.T) {
	number := histNumber(t)
	run := histRun{t: t, next: func(*histCount) int { return number }}
	run.all()
	assert.Zero(t, run.count.ill, "histories with a violation")
	assert.Equal(t, number, run.count.histories)
}

// TestPostgresHistoriesControl: the same processes look at the term instead, with a plain SELECT. If the checker has
// nothing to say against that, it has nothing to say for Fence either.
func TestPostgresHistoriesControl(t *testing.T) {
	number := histNumber(t)
	rules := []string{ledger.Stale, ledger.Order, ledger.Overlap} // each is broken in one of ten histories, or more
	run := histRun{t: t, plain: true, next: func(count *histCount) int {
		for _, rule := range rules {
			if count.violations[rule] == 0 {
				return 10 * number
			}
		}
		return number / 5
	}}
	run.all()
	for _, rule := range rules {
		assert.NotZero(t, run.count.violations[rule], rule)
	}
	for _, rule := range []string{ledger.Table, ledger.Unbegun, ledger.Other} { // a fence has no part in these
		assert.Zero(t, run.count.violations[rule], rule)
	}
}

func histNumber(t *testing.T) int {
	t.Helper()
	number, err := strconv.Atoi(cmp.Or(os.Getenv(histNumberEnv), strconv.Itoa(histDefault)))
	require.NoError(t, err, histNumberEnv)
	return number
}

// histRun is a number of histories.
type histRun struct {
	t     *testing.T
	plain bool                 // without a fence
	next  func(*histCount) int // how many are wanted, after so many
	seed  uint64
	count histCount
}

func (r *histRun) all() {
	r.t.Helper()
	r.seed = rand.Uint64()
	if text := os.Getenv(histSeedEnv); text != "" {
		var err error
		r.seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(r.t, err, histSeedEnv)
	}
	r.t.Logf("%s=%d", histSeedEnv, r.seed)
	r.count.init()
	server := pgtest.Start(r.t, "wal_level=logical", "max_connections=300")
	var fleets []*histFleet
	for id := range min(histFleets, r.next(&r.count)) {
		fleets = append(fleets, histNewFleet(r.t, server, id, &r.count))
	}
	began := time.Now()
	var work sync.WaitGroup
	for _, f := range fleets {
		work.Go(func() { // until there are enough histories, or one goes wrong
			for {
				number, ok := r.count.begin(r.next)
				if !ok {
					return
				}
				if err := r.history(f, number); err != nil {
					r.t.Errorf("history %d: %v", number, err)
					return
				}
			}
		})
	}
	work.Wait()
	r.t.Logf("%v, in %v", &r.count, time.Since(began).Round(time.Second))
}

// history is one history, from its begin to the verdict.
func (r *histRun) history(f *histFleet, number int) error {
	ctx := r.t.Context()
	random := rand.New(rand.NewPCG(r.seed, uint64(number)))
	job := r.job(random, number)
	plan := histPlan(random, 500*time.Millisecond+time.Duration(random.Int64N(int64(time.Second))))
	for _, p := range f.places {
		p.history, p.born, p.job = number, 0, job
		p.job.Lock, p.job.App = p.lock.URL(f.url), p.app.URL(f.url)
		if err := p.begin(); err != nil {
			return err
		}
	}
	err := f.disturb(ctx, plan)
	healed := time.Now()
	if err == nil {
		err = f.available(ctx, job)
	}
	again := time.Since(healed)
	if err == nil {
		err = f.rest(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w\nthe plan: %v", err, plan)
	}
	logged, err := f.log.Read(ctx)
	if err != nil {
		return err
	}
	for namespace := range logged {
		if namespace != job.Options.Namespace {
			return fmt.Errorf("%s is still at work in history %d", namespace, number)
		}
	}
	events := logged[job.Options.Namespace]
	violations := ledger.Check(events)
	r.count.add(plan, events, violations, again)
	if len(violations) > 0 && !r.plain {
		r.t.Errorf("history %d of seed %d: %s\nthe plan: %v", number, r.seed, histExplain(events, violations), plan)
	}
	return nil
}

func (r *histRun) job(random *rand.Rand, number int) histJob {
	job := histJob{
		Options: leader.Options{
			Terms: true, Schema: "public", Namespace: fmt.Sprintf("h%d", number),
			Retry: 30 * time.Millisecond, Check: 50 * time.Millisecond, Lease: 150 * time.Millisecond, SessionTimeout: 400 * time.Millisecond,
			StopTimeout: 100 * time.Millisecond,
		},
		Names: []string{"a", "b", "c"}, Writers: 1, Mode: histFence,
		Idle: 300*time.Millisecond + time.Duration(random.Int64N(int64(1700*time.Millisecond))),
	}
	if number%4 == 3 {
		job.Mode, job.Writers = histShared, 3 // which other levels of isolation are refused for
	} else {
		levels := []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}
		job.Isolation = levels[random.IntN(len(levels))]
	}
	job.SQL = random.IntN(4) == 0
	if r.plain {
		job.Mode, job.Isolation, job.SQL = histPlain, pgx.ReadCommitted, false
	}
	if random.IntN(3) == 0 { // a process that hears nothing believes in its lease for longer
		job.Options.Lease, job.Options.SessionTimeout = 400*time.Millisecond, 600*time.Millisecond
	}
	if random.IntN(3) == 0 {
		job.Options.TakeoverDelay = 100 * time.Millisecond
	}
	return job
}

// rest has all processes stop, and waits until nothing is left of what they did.
func (f *histFleet) rest(ctx context.Context) error {
	errs := make([]error, len(f.places))
	var stops sync.WaitGroup
	for i, p := range f.places {
		stops.Go(func() { errs[i] = p.stop() }) // which is bounded
	}
	stops.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w\n%s", err, f.sessions(ctx))
	}
	return f.quiet(ctx)
}

// histExplain shows the first violations, and what was committed around the first one of them.
func histExplain(events []ledger.Event, violations []ledger.Violation) string {
	var text strings.Builder
	for _, v := range violations[:min(5, len(violations))] {
		fmt.Fprintf(&text, "\n%v", v)
	}
	of := slices.DeleteFunc(slices.Clone(events), func(e ledger.Event) bool { return e.Name != violations[0].B.Name })
	at := slices.Index(of, violations[0].B)
	for _, e := range of[max(0, at-20):min(len(of), at+5)] {
		fmt.Fprintf(&text, "\n\t%v", e)
	}
	return text.String()
}

// histCount is what happened in all histories of a run.
type histCount struct {
	mu                 sync.Mutex
	begun, histories   int
	ill                int // histories with a violation
	commits, terms     int
	faults, violations map[string]int
	refusals           map[string]int  // by what
	again              []time.Duration // until all names were led again
}

func (c *histCount) init() {
	c.faults, c.violations, c.refusals = make(map[string]int), make(map[string]int), make(map[string]int)
}

// begin returns the number of the next history.
func (c *histCount) begin(wanted func(*histCount) int) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun >= wanted(c) {
		return 0, false
	}
	c.begun++
	return c.begun - 1, true
}

func (c *histCount) refused(by string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusals[by]++
}

func (c *histCount) add(plan []histFault, events []ledger.Event, violations []ledger.Violation, again time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.histories++
	c.again = append(c.again, again)
	terms := make(map[string]bool)
	for _, e := range events {
		if e.Begun {
			terms[fmt.Sprint(e.Name, e.Term)] = true
		} else {
			c.commits++
		}
	}
	c.terms += len(terms)
	for _, f := range plan {
		c.faults[f.Kind]++
	}
	for _, v := range violations {
		c.violations[v.Rule]++
	}
	if len(violations) > 0 {
		c.ill++
	}
}

func (c *histCount) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.again)
	var median, longest time.Duration
	if n := len(c.again); n > 0 {
		median, longest = c.again[n/2], c.again[n-1]
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d histories: %d commits in %d terms; all names led again after %v in the median, at worst %v",
		c.histories, c.commits, c.terms, median.Round(time.Millisecond), longest.Round(time.Millisecond))
	for _, part := range []struct {
		what   string
		counts map[string]int
	}{{"faults", c.faults}, {"refused by", c.refusals}, {"violations", c.violations}} {
		fmt.Fprintf(&text, "\n%s:", part.what)
		for _, kind := range slices.Sorted(maps.Keys(part.counts)) {
			fmt.Fprintf(&text, "\n\t%6d %s", part.counts[kind], kind)
		}
	}
	fmt.Fprintf(&text, "\n%d histories with a violation", c.ill)
	return text.String()
}
