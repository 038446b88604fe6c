// SPDX-License-Identifier: MIT

package leadertest

import (
	"context"
	"errors"
	"time"

	"github.com/oxygenhub/leader/driver"
)

func testCloseFrees(p *place) {
	a, b := p.lasting()
	next := p.next()
	p.try(a, []int64{1, 2}, []int64{1, 2})
	p.within(aSecond, "Close", a.Close)
	p.frees(b, []int64{1, 2}, time.Now().Add(time.Second))
	p.isOver(a)
	p.prove(next)
	p.try(b, []int64{3}, nil)
}

// next opens another session of the node of a, which takes 3: a Leader opens one before it closes that which it has given up.
func (p *place) next() driver.Session {
	p.Helper()
	s := p.openFor("a", time.Minute)
	p.try(s, []int64{3}, []int64{3})
	return s
}

func testKillFrees(p *place) {
	a, b := p.lasting()
	next := p.next()
	p.try(a, []int64{1, 2}, []int64{1, 2})
	p.within(time.Second, "Kill", a.Kill)
	p.frees(b, []int64{1, 2}, time.Now().Add(p.soon))
	p.within(time.Second, "a second Kill", a.Kill)
	p.isOver(a)
	p.within(aSecond, "Close after Kill", a.Close)
	p.prove(next)
	p.try(b, []int64{3}, nil)
}

func testKillEndsWait(p *place) {
	a := p.open("a")
	p.try(a, []int64{1}, []int64{1})
	done := make(chan error, 1)
	go func() { // ends with the session
		_, err := a.Wait(context.Background())
		done <- err
	}()
	p.within(time.Second, "Kill", a.Kill)
	p.within(p.soon, "Wait after Kill", func() { p.over("Wait", <-done) })
	p.isOver(a)
}

// testKillEndsRequest: a request in a black hole is waited for, until Kill.
func testKillEndsRequest(p *place) {
	if p.Cut == nil {
		p.Skip("no Controls.Cut")
	}
	for name, call := range p.methods(1) {
		a := p.open("a")
		p.Cut(p, a)
		done := make(chan error, 1)
		go func() { done <- call(a) }() // ends with Kill
		time.Sleep(20 * time.Millisecond)
		p.within(time.Second, "Kill", a.Kill)
		p.within(p.soon, name+" after Kill", func() {
			if err := <-done; err != nil || name != "Wait" { // its context may have ended first
				p.over(name, err)
			}
		})
	}
}

func testEnded(p *place) {
	if p.End == nil {
		p.Skip("no Controls.End")
	}
	b := p.openFor("b", time.Minute)
	key := int64(0)
	for name, call := range p.methods(98) {
		key++
		a := p.openFor("a", time.Minute)
		p.try(a, []int64{key}, []int64{key})
		p.End(p, a)
		p.within(2*p.soon, name, func() {
			err := call(a)
			if over, ok := errors.AsType[*driver.OverError](err); !ok || !over.Ended {
				p.Errorf("%s: got %v, want a *driver.OverError with Ended: the place has ended the session", name, err)
			}
		})
		p.isOver(a)
		p.try(b, []int64{key}, []int64{key})
	}
}

// testProofsKeep: a session that is proved often enough lives, whatever else it does.
func testProofsKeep(p *place) {
	a, b := p.pair()
	p.try(a, []int64{1}, []int64{1})
	for end := time.Now().Add(3 * p.SessionTimeout); time.Now().Before(end); {
		p.rest(a, p.SessionTimeout/4)
		p.prove(a)
		p.try(b, []int64{1}, nil)
	}
}

// rest waits as a Leader does that has nothing to ask.
func (p *place) rest(s driver.Session, d time.Duration) {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := s.Wait(ctx); err != nil {
			p.Fatalf("Wait: %v", err)
		}
	}
}

// silent wants the locks of a session that asked last at some time between since and until to be freed in time, and not before.
func (p *place) silent(b driver.Session, key int64, since, until time.Time) {
	p.Helper()
	at := p.frees(b, []int64{key}, until.Add(p.SessionTimeout+p.Slack))
	if early := at.Sub(since); early < p.SessionTimeout {
		p.Errorf("the lock was free %v after the last proof was sent: SessionTimeout is %v", early, p.SessionTimeout)
	}
}

// testSilenceFrees: a session that waits for news, and asks nothing, is silent. A driver that keeps it alive by itself holds
// locks for ever that a Leader has given up. The Leader waits again and again, and goes on with another session meanwhile.
func testSilenceFrees(p *place) {
	if p.traits.Durable {
		p.Skip("locks do not expire")
	}
	a, b := p.pair()
	next := p.open("a")
	p.try(a, []int64{1}, []int64{1})
	ctx, cancel := context.WithTimeout(context.Background(), 2*p.SessionTimeout+p.Slack)
	defer cancel()
	since := time.Now()
	p.prove(a)
	until := time.Now()
	done := make(chan error, 1)
	go func() { // ends with ctx or with the session
		for ctx.Err() == nil {
			short, cancel := context.WithTimeout(ctx, p.SessionTimeout/8)
			_, err := a.Wait(short)
			cancel()
			if err != nil {
				done <- err
				return
			}
			if _, err := next.Prove(); err != nil {
				p.Errorf("Prove of another session of the node: %v", err)
			}
		}
		done <- nil
	}()
	p.silent(b, 1, since, until)
	p.within(2*p.SessionTimeout+p.soon, "Wait of a session that has expired", func() {
		if err := <-done; err != nil {
			p.over("Wait", err)
		}
	})
	_, err := a.Prove()
	p.over("Prove of a session that has expired", err)
	p.isOver(a)
}

func testCutFrees(p *place) {
	if p.traits.Durable || p.Cut == nil {
		p.Skip("locks do not expire, or no Controls.Cut")
	}
	a, b := p.pair()
	p.try(a, []int64{1}, []int64{1})
	since := time.Now()
	p.prove(a)
	until := time.Now()
	p.Cut(p, a)
	done := make(chan error, 1)
	go func() { // ends with Kill
		_, err := a.Prove()
		done <- err
	}()
	p.silent(b, 1, since, until)
	a.Kill()
	p.within(p.soon, "Prove after Kill", func() { p.over("Prove in a black hole", <-done) })
}
