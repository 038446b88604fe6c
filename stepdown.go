// SPDX-License-Identifier: MIT

package leader

import (
	"errors"
	"fmt"
	"time"
)

// stepDown is the error of a task that asks for a pause.
type stepDown struct {
	err   error
	pause time.Duration
}

func (e *stepDown) Error() string {
	if e.err == nil {
		return "leader: stepped down"
	}
	return fmt.Sprintf("leader: stepped down: %v", e.err)
}

func (e *stepDown) Unwrap() error { return e.err }

// StepDown returns the error that a task returns to hand its name to another process when it cannot do its work here, because
// of err: the lock is given back, and this Leader does not contend for the name for the time of pause, which should be
// several times Options.Retry. Then [Leader.Run], which goes on, does: also if no other process has taken over. Meanwhile
// the state of the name is [StateCooling], and Try does not get it. A call of [Leader.Try] whose task steps down returns err,
// wrapped.
func StepDown(err error, pause time.Duration) error {
	return &stepDown{err, max(pause, 0)}
}

// steppedDown returns what a task has asked for by its error, whose methods may be the user's: never under mu.
func steppedDown(taskErr error) *stepDown {
	var down *stepDown
	errors.As(taskErr, &down)
	return down
}

// coolLocked keeps this Leader from the name of s for a while.
func (l *Leader) coolLocked(s *slot, down *stepDown) {
	s.coolUntil = time.Now().Add(down.pause)
	s.err = down
	l.emitLocked(Event{Kind: SteppedDown, Name: s.name, Err: down})
}

// cool has c, whose lock was given back, contend again after the pause, unless the Leader has resigned.
func (l *Leader) cool(c *candidate, down *stepDown) (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resigned {
		return false
	}
	c.freed, c.freeErr = false, nil
	l.coolLocked(c.slot, down)
	l.contendLocked(c.slot)
	return true
}

// ready reports whether the lock of s may be asked for.
func (s *slot) ready(now time.Time) bool { return !now.Before(s.notBefore) && !s.cooling(now) }

func (s *slot) cooling(now time.Time) bool { return now.Before(s.coolUntil) }
