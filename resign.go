// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Resign stops contending for every name, cancels all tasks with [ErrResigned] as the cause, waits for them to return, gives all
// locks back and closes the session. The Leader stays resigned: Run and Try return [ErrResigned]. If ctx ends first, Resign
// returns an error that wraps ctx.Err() and names the tasks that are still running; their locks stay held, and proved,
// until they return. From inside a task, known by ctx, it waits for all other tasks but not for that one, whose lock is
// given back when it returns. Any number of calls may be made, also concurrently.
func (l *Leader) Resign(ctx context.Context) error {
	inner := insideOf(ctx)
	l.mu.Lock()
	l.resignLocked()
	var task *grant // the outermost one that ctx belongs to
	for g := inner; g != nil; g = g.outer {
		if c := l.candidateLocked(g); c != nil {
			task = g
			l.insideLocked(c)
			defer l.outside(c)
		}
	}
	l.mu.Unlock()
	if task == nil {
		return l.rest(ctx, false)
	}
	ctx, cancel := patience(ctx, task)
	defer cancel()
	return l.rest(ctx, true)
}

// patience returns the context that bounds a Resign from inside a task, whose own context is ended by the very call: the
// caller's of that task, and the deadline of ctx.
func patience(ctx context.Context, task *grant) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	switch {
	case !errors.Is(context.Cause(ctx), ErrResigned):
		return ctx, func() {}
	case ok:
		return context.WithDeadline(task.caller, deadline)
	}
	return context.WithCancel(task.caller)
}

// rest waits until all has come to rest that a Resign waits for.
func (l *Leader) rest(ctx context.Context, inside bool) error {
	for {
		wait, logged := l.restless(inside)
		if wait == nil {
			waitShortly(ctx, logged)
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return l.stillRunning(ctx.Err(), inside)
		}
	}
}

// waitShortly waits for the log, but not for a handler that blocks.
func waitShortly(ctx context.Context, logged <-chan struct{}) {
	if logged == nil {
		return
	}
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	select {
	case <-logged:
	case <-ctx.Done():
	case <-patience.C:
	}
}

// stillRunning is the error of a Resign that gave up waiting.
func (l *Leader) stillRunning(err error, inside bool) error {
	names := l.runningNames(inside)
	if len(names) == 0 {
		return fmt.Errorf("leader: resign: the session is still being closed: %w", err)
	}
	slices.Sort(names)
	return fmt.Errorf("leader: resign: tasks still running: %s: %w", strings.Join(names, ", "), err)
}

func (l *Leader) runningNames(inside bool) (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, s := range l.slots {
		if c := s.first(); c.grant != nil && (!inside || c.resigning == 0) {
			names = append(names, strconv.Quote(name))
		}
	}
	return names
}

// resignLocked stops contending for good and tells all tasks to stop.
func (l *Leader) resignLocked() {
	if l.resigned {
		return
	}
	l.resigned, l.idleAt = true, time.Time{}
	for _, s := range l.slots {
		for _, c := range s.queue {
			if c.grant == nil || c.grant.cancel == nil { // its task has not started
				l.dismissLocked(c, ErrResigned)
				continue
			}
			c.grant.cancel(ErrResigned)
			if c.state == StateLeading {
				l.stopLocked(c, ReasonResigned)
				l.emitLocked(c.grant.event(Event{Kind: Stopping, Reason: ReasonResigned, Err: ErrResigned}))
			}
		}
	}
	clear(l.contenders)
	l.failAsksLocked(ErrResigned)
	l.known.close()
	l.poke()
}

// candidateLocked returns the candidate whose task g is, if it still runs.
func (l *Leader) candidateLocked(g *grant) *candidate {
	if s := l.slots[g.name]; g.leader == l && s != nil && s.first() != nil && s.first().grant == g {
		return s.first()
	}
	return nil
}

// insideLocked notes that Resign was called from inside the task of c: another such call does not wait for it, or two
// tasks that resign would wait for each other.
func (l *Leader) insideLocked(c *candidate) {
	if c.resigning++; c.resigning == 1 {
		l.inside++
		l.changedLocked()
	}
}

func (l *Leader) outside(c *candidate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.resigning--; c.resigning == 0 && !c.left {
		l.inside--
	}
}

// restless returns what a Resign has to wait for before it asks again: nil when all has come to rest, and then what tells
// that the log is written.
func (l *Leader) restless(inside bool) (wait, logged <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	others := l.candidates
	if inside {
		others -= l.inside
	}
	switch {
	case others > 0:
		return l.changed, nil
	case l.candidates > 0:
		return nil, nil // the rest ends after the tasks that resign
	case l.running != nil:
		return l.running, nil
	}
	if asking := l.known.close(); asking != nil {
		return asking, nil
	}
	l.hub.close()
	return nil, l.logged
}

// changedLocked wakes the calls of Resign.
func (l *Leader) changedLocked() {
	if l.resigned {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}
