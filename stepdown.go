// SPDX-License-Identifier: MIT

package leader

import (
	"errors"
	"fmt"
	"maps"
	"time"
)

// stepDown is the error of a task that asks for a pause.
type stepDown struct {
	err     error
	pause   time.Duration
	pleaded bool // not the task has asked for it, but somebody else: ErrHandOver
}

func (e *stepDown) Error() string {
	switch {
	case e.pleaded:
		return e.err.Error()
	case e.err == nil:
		return "leader: stepped down"
	}
	return fmt.Sprintf("leader: stepped down: %v", e.err)
}

func (e *stepDown) Unwrap() error { return e.err }

// StepDown returns the error that a task returns to hand its name to another process when it cannot do its work here, because
// of err: the lock is given back, and this Leader does not contend for the name for the time of pause, which should be
// several times Options.Retry and is at least one. Then [Leader.Run], which goes on, does: also if no other process has
// taken over. Meanwhile the state of the name is [StateCooling], a Run of it that is called in the pause waits for its end,
// and Try does not get it. A call of [Leader.Try] whose task steps down returns err, wrapped; the pause is the same.
func StepDown(err error, pause time.Duration) error {
	return &stepDown{err: err, pause: max(pause, 0)}
}

// steppedDown returns what a task has asked for by its error, whose methods may be the user's: never under mu.
func steppedDown(taskErr error) *stepDown {
	var down *stepDown
	errors.As(taskErr, &down)
	return down
}

// coolLocked keeps this Leader from the name of s for a while, also if all calls of Run for it end meanwhile. Without a least
// pause a task that fails at once would be run in a loop.
func (l *Leader) coolLocked(s *slot, down *stepDown) {
	now := time.Now()
	s.coolUntil = now.Add(max(down.pause, l.opts.Retry))
	s.err = down
	maps.DeleteFunc(l.pauses, func(_ string, until time.Time) bool { return !now.Before(until) })
	l.pauses[s.name] = s.coolUntil
	l.emitLocked(Event{Kind: SteppedDown, Name: s.name, Err: down, more: &more{wait: s.coolUntil.Sub(now)}})
}

// cool keeps this Leader from the name of c, whose lock was given back, and has c contend again after the pause, unless it is a
// Try or the Leader has resigned.
func (l *Leader) cool(c *candidate, down *stepDown) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resigned {
		return false
	}
	c.freed, c.freeErr = false, nil
	l.coolLocked(c.slot, down)
	if c.once {
		return false
	}
	l.contendLocked(c.slot)
	return true
}

// ready reports whether the lock of s may be asked for.
func (s *slot) ready(now time.Time) bool { return !now.Before(s.readyAt()) }

// readyAt is from when on ready says so.
func (s *slot) readyAt() time.Time {
	if s.coolUntil.After(s.notBefore) {
		return s.coolUntil
	}
	return s.notBefore
}

func (s *slot) cooling(now time.Time) bool { return now.Before(s.coolUntil) }
