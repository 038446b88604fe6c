// SPDX-License-Identifier: MIT

package leadertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/oxygenhub/leader/driver"
)

// Controls are what [TestDriver] has befall sessions of a driver. Each may be nil where it cannot happen or cannot be made: the
// tests that need it are skipped. Prefer to give all: what has not been tested does not work.
type Controls struct {
	// End has the place end s, as an administrator does. It returns when the locks of s are free.
	End func(tb testing.TB, s driver.Session)
	// Take takes the locks of keys from s, which lives on, behind its back.
	Take func(tb testing.TB, s driver.Session, keys ...int64)
	// Cut has nothing more arrive at the place of what s sends, nor at s, without an error: a black hole.
	Cut func(tb testing.TB, s driver.Session)
	// Another returns another driver for the place of d, as another process has one. The sessions and the Leaders of each test are
	// then those of two processes. Without it, locks that exclude within one process only are not found.
	Another func(tb testing.TB, d driver.Driver) driver.Driver
	// Deaf means that Tell tells nobody, so that standbys find free locks with Options.Retry alone.
	Deaf bool
	// SessionTimeout is that of the sessions. Default 2 s; the tests take about ten times as long. Give more to a place that
	// counts in whole seconds or is slow.
	SessionTimeout time.Duration
	// Slack is how much later than SessionTimeout the place may end a silent session. Default 1 s.
	Slack time.Duration
}

// TestDriver tests what a driver must promise, each promise as a subtest. open returns the driver to test, for a place in which
// nobody holds anything; it is called once for each subtest, and cleans up with t.Cleanup. At most one of controls is used.
//
// Subtests run one after another. They are named as in docs/drivers.md.
func TestDriver(t *testing.T, open func(t *testing.T) driver.Driver, controls ...Controls) {
	t.Helper()
	var c Controls
	if len(controls) > 0 {
		c = controls[0]
	}
	for _, test := range driverTests {
		t.Run(test.name, func(t *testing.T) {
			test.run(newPlace(t, open(t), c))
		})
	}
}

// driverTests is the contract of package driver.
//
//nolint:gochecknoglobals // a table of rows that nobody changes
var driverTests = []struct {
	name string
	run  func(p *place)
}{
	{"Info", testInfo},
	{"OpenHeedsContext", testOpenHeedsContext},
	{"Exclude", testExclude},
	{"EachKeyAlone", testEachKeyAlone},
	{"NoStacking", testNoStacking},
	{"Unlock", testUnlock},
	{"AnyKey", testAnyKey},
	{"ManyKeys", testManyKeys},
	{"Race", testRace},
	{"ProveAlive", testProveAlive},
	{"ProveFindsLoss", testProveFindsLoss},
	{"Holders", testHolders},
	{"Tell", testTell},
	{"WaitInterrupted", testWaitInterrupted},
	{"CloseFrees", testCloseFrees},
	{"KillFrees", testKillFrees},
	{"KillEndsWait", testKillEndsWait},
	{"KillEndsRequest", testKillEndsRequest},
	{"Ended", testEnded},
	{"ProofsKeep", testProofsKeep},
	{"SilenceFrees", testSilenceFrees},
	{"CutFrees", testCutFrees},
	{"Terms", testTerms},
	{"TermsRace", testTermsRace},
	{"Leaders", testLeaders},
}

// place is a driver under test.
type place struct {
	testing.TB
	Controls
	driver driver.Driver
	other  driver.Driver // of another process, if there is Controls.Another
	opened int           // sessions, of one process and the other by turns
	traits driver.Traits
	soon   time.Duration // soon, but for tests of the tests
}

func newPlace(tb testing.TB, d driver.Driver, c Controls) *place {
	tb.Helper()
	if c.SessionTimeout == 0 {
		c.SessionTimeout = 2 * time.Second
	}
	if c.Slack == 0 {
		c.Slack = time.Second
	}
	other := d
	if c.Another != nil {
		other = c.Another(tb, d)
	}
	return &place{TB: tb, Controls: c, driver: d, other: other, traits: d.Traits(), soon: soon}
}

// open opens a session that is closed at the end of the test.
func (p *place) open(node string) driver.Session {
	p.Helper()
	return p.openFor(node, p.SessionTimeout)
}

// lasting is pair for sessions that no silence ends during the test.
func (p *place) lasting() (a, b driver.Session) {
	p.Helper()
	return p.openFor("a", time.Minute), p.openFor("b", time.Minute)
}

func (p *place) openFor(node string, silence time.Duration) driver.Session {
	p.Helper()
	timeout := p.traits.OpenTimeout
	if timeout == 0 {
		timeout = p.soon
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	d := p.driver
	if p.opened++; p.opened%2 == 0 {
		d = p.other
	}
	s, err := d.Open(ctx, driver.Config{Node: node, SessionTimeout: silence})
	if err != nil {
		p.Fatalf("Open: %v", err)
	}
	p.Cleanup(func() {
		s.Kill()
		s.Close()
	})
	return s
}

func (p *place) pair() (a, b driver.Session) {
	p.Helper()
	return p.open("a"), p.open("b")
}

// soon bounds what must not wait for anybody.
const soon = 5 * time.Second

// aSecond is what a busy machine makes of the second that is promised.
const aSecond = 1500 * time.Millisecond

// try asks for keys and wants to hold those of want.
func (p *place) try(s driver.Session, keys, want []int64) {
	p.Helper()
	began := time.Now()
	held, err := s.Try(keys)
	if err != nil {
		p.Fatalf("Try(%v): %v", some(keys), err)
	}
	p.same("Try", held, want)
	if took := time.Since(began); took > p.soon {
		p.Errorf("Try took %v: it must not wait for a lock", took)
	}
}

func (p *place) unlock(s driver.Session, keys, missing []int64) {
	p.Helper()
	got, err := s.Unlock(keys)
	if err != nil {
		p.Fatalf("Unlock(%v): %v", some(keys), err)
	}
	p.same("Unlock: missing", got, missing)
}

func (p *place) prove(s driver.Session, lost ...int64) {
	p.Helper()
	got, err := s.Prove()
	if err != nil {
		p.Fatalf("Prove: %v", err)
	}
	p.same("Prove: lost", got, lost)
}

func (p *place) same(what string, got, want []int64) {
	p.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		p.Fatalf("%s: got %v, want %v", what, some(got), some(want))
	}
}

// some is what to print of keys.
func some(keys []int64) []int64 { return keys[:min(len(keys), 20)] }

// over wants err to say that a session is over.
func (p *place) over(what string, err error) {
	p.Helper()
	if _, ok := errors.AsType[*driver.OverError](err); !ok {
		p.Errorf("%s: got %v, want a *driver.OverError", what, err)
	}
}

// within has f return in time.
func (p *place) within(limit time.Duration, what string, f func()) {
	p.Helper()
	done := make(chan struct{})
	go func() { // the end of f
		defer close(done)
		f()
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		p.Fatalf("%s has not returned within %v", what, limit)
	}
}

// frees wants all of keys to be free for s by deadline, and returns when the first was.
func (p *place) frees(s driver.Session, keys []int64, deadline time.Time) (first time.Time) {
	p.Helper()
	left := slices.Clone(keys)
	for {
		held, err := s.Try(left)
		if err != nil {
			p.Fatalf("Try: %v", err)
		}
		if len(held) > 0 && first.IsZero() {
			first = time.Now()
		}
		left = slices.DeleteFunc(left, func(key int64) bool { return slices.Contains(held, key) })
		if len(left) == 0 {
			return first
		}
		if time.Now().After(deadline) {
			p.Fatalf("the locks %v are still held", some(left))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// methods are all that can tell that a session is over.
func (p *place) methods(key int64) map[string]func(s driver.Session) error {
	keys := []int64{key}
	return map[string]func(s driver.Session) error{
		"Try":     func(s driver.Session) error { _, err := s.Try(keys); return err },
		"Unlock":  func(s driver.Session) error { _, err := s.Unlock(keys); return err },
		"Tell":    func(s driver.Session) error { return s.Tell(keys) },
		"Prove":   func(s driver.Session) error { _, err := s.Prove(); return err },
		"Holders": func(s driver.Session) error { _, err := s.Holders(keys); return err },
		"Wait": func(s driver.Session) error {
			ctx, cancel := context.WithTimeout(context.Background(), p.soon)
			defer cancel()
			_, err := s.Wait(ctx)
			return err
		},
	}
}

// isOver wants all methods of s to say that it is over, and to go on doing so.
func (p *place) isOver(s driver.Session) {
	p.Helper()
	for range 2 {
		for name, call := range p.methods(99) {
			p.within(2*p.soon, name, func() { p.over(name, call(s)) })
		}
	}
}
