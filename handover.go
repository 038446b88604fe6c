// SPDX-License-Identifier: MIT

package leader

import (
	"errors"
	"strings"
)

// ErrHandOver is the cause of a task's context when somebody has asked the holder of its name, over the database, to hand it over, as
// the command "leader resign" does. When the task has returned, its lock is given back, and this Leader does not contend for
// the name for three times Options.Retry, so that another process takes over; then [Leader.Run], which goes on, does, as after
// [StepDown]. A Try returns it, joined with the task's own error. See Options.NoHandover.
var ErrHandOver = errors.New("leader: asked to hand over")

const (
	// handOverPauses is for how many times Options.Retry a holder that was asked leaves the name to others.
	handOverPauses = 3
	// handOverPrefix begins the payload of a notification that asks for it. What it asks of follows, as in the list of keys that
	// are free, of which nobody takes it for a part.
	handOverPrefix = "resign:"
)

// pleader is a session on which such requests are heard.
type pleader interface {
	// pleas returns the keys whose holders were asked to hand over, since the last call. Only the worker calls it, after
	// wait, which returns for them, too.
	pleas() []int64
}

// parsePleas reads the payload of a notification that asks for a handover. parseKeys, and so every older version, finds nothing in it.
func parsePleas(payload string) []int64 {
	if keys, asks := strings.CutPrefix(payload, handOverPrefix); asks {
		return parseKeys(keys)
	}
	return nil
}

// pleadedLocked tells the tasks to stop that lead names of keys, in the session of w.
func (l *Leader) pleadedLocked(w *worker, keys []int64) {
	if w != l.current || l.opts.NoHandover {
		return
	}
	for _, key := range keys {
		s := l.keys[key]
		if s == nil {
			continue
		}
		c := s.first()
		if c == nil || c.state != StateLeading || c.grant == nil || c.grant.cancel == nil || !c.grant.leads() {
			continue // it stops already, or has not begun
		}
		c.grant.pleaded = true
		c.grant.cancel(ErrHandOver)
		l.stopLocked(c, ReasonHandOver)
		l.emitLocked(c.grant.event(Event{Kind: Stopping, Reason: ReasonHandOver, Err: ErrHandOver}))
	}
}

// pause returns what the task of g, which has returned, asked for, or what was asked of it.
func (l *Leader) pause(g *grant, taskErr error) *stepDown {
	if down := steppedDown(taskErr); down != nil {
		return down
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !g.pleaded {
		return nil
	}
	return &stepDown{err: ErrHandOver, pause: handOverPauses * l.opts.Retry, pleaded: true}
}
