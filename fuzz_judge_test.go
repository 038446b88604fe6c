// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// look compares the world with the model.
func (w *fuzzWorld) look() {
	synctest.Wait()
	sure := 0
	for _, c := range w.calls {
		sure += w.judge(c)
	}
	assert.LessOrEqual(w.t, sure, 1, "two are sure to lead")
}

// judge looks at one call, and returns 1 if its task is sure to lead.
func (w *fuzzWorld) judge(c *fuzzCall) (sure int) {
	if c.returned() {
		if !c.checked {
			c.checked = true
			w.result(c)
		}
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.task == nil {
		return 0
	}
	leads := Confirm(c.task) == nil
	w.st.mu.Lock()
	holder := w.st.locks[Key("test", "x")]
	if holder == c.session {
		delete(w.stolen, c.session)
	}
	hidden := w.stolen[c.session] || c.session.hidden() // it cannot know yet
	kept := holder == c.session || w.stolen[c.session] || c.session.forgotten()
	w.st.mu.Unlock()
	assert.True(w.t, kept, "its lock was given back while it runs") // also after it was told
	assert.True(w.t, !leads || hidden || holder == c.session, "it is sure to lead, and does not hold the lock")
	told := c.task.Err() != nil
	// A caller that has gone and a Leader that has resigned always tell; a loss does when it is known.
	assert.True(w.t, told || c.ctx.Err() == nil && w.resigns[c.node] == nil, "it was not told to stop")
	assert.True(w.t, told || leads, "it was not told of the loss")
	if leads && !hidden {
		return 1
	}
	return 0
}

// forgotten tells whether the server has ended s, or would have by the time at which the Leader closed it.
func (s *fakeSession) forgotten() bool {
	return s.how == "server" || s.how == "expired" || s.how != "" && s.when.Sub(s.lastAt) >= s.silence
}

// result checks what a call has returned with what has happened to it: the table of Run and Try.
func (w *fuzzWorld) result(c *fuzzCall) {
	resigned := w.resigns[c.node] != nil
	require.Nil(w.t, c.task, "it has returned before its task")
	lostIt := errors.Is(c.cause, ErrLost)
	own := map[int]error{fuzzNil: nil, fuzzErr: errFuzz}[c.kind]
	switch ends := c.runs > 0 && (c.kind == fuzzPanic || c.kind == fuzzGoexit); {
	case ends && c.kind == fuzzPanic && c.panicked != nil:
		assert.Equal(w.t, errFuzz, c.panicked)
	case ends && errors.Is(c.err, errGoexit):
		assert.Equal(w.t, fuzzGoexit, c.kind)
	case ends:
		w.t.Errorf("a panic or Goexit became %v", c.err)
	case c.runs == 0 && c.once && c.err == nil:
		assert.False(w.t, c.ran)
	case c.runs == 0 || !c.once && lostIt:
		// It waited, for the first time or after a loss.
		assert.True(w.t, errors.Is(c.err, context.Canceled) && c.ctx.Err() != nil || errors.Is(c.err, ErrResigned) && resigned ||
			c.once && errors.Is(c.err, errFakeSoft), "it waited, and returned %v", c.err)
	case c.once && lostIt:
		assert.True(w.t, c.ran)
		assert.ErrorIs(w.t, c.err, ErrLost)
	case c.alone:
		// The lock may turn out to be gone when it is given back: a Try says so.
		assert.True(w.t, errors.Is(c.err, own) || c.err == nil && own == nil || c.once && errors.Is(c.err, ErrLost) ||
			c.ctx.Err() != nil && errors.Is(c.err, context.Canceled) || resigned && errors.Is(c.err, ErrResigned), "it returned by itself, and Run %v", c.err)
	default:
		assert.True(w.t, errors.Is(c.err, context.Canceled) && c.ctx.Err() != nil || errors.Is(c.err, ErrResigned) && resigned ||
			c.once && errors.Is(c.err, ErrLost), "it was told to stop, and Run returned %v", c.err)
	}
}

// end mends all, sees that whoever waits leads in turn, and that nothing is left.
func (w *fuzzWorld) end() {
	w.st.set(func() {
		w.joinLocked()
		w.st.readOnly = false
		for _, b := range w.backends {
			b.failures = 0
			clear(b.faults)
		}
	})
	for range len(w.calls) + 1 {
		// A retired session, a dial, its back-off and a Retry.
		time.Sleep(30 * time.Second)
		w.look()
		leading, waiting := 0, 0
		for _, c := range w.calls {
			if c.returned() {
				continue
			}
			c.mu.Lock()
			switch {
			case c.task != nil:
				leading++
			case w.resigns[c.node] == nil && c.ctx.Err() == nil:
				waiting++
			default:
				w.t.Errorf("a call that is over waits")
			}
			c.mu.Unlock()
		}
		assert.True(w.t, leading > 0 || waiting == 0, "%d wait, and nobody leads", waiting)
		if leading+waiting == 0 {
			break
		}
		for _, c := range w.calls {
			c.mu.Lock()
			leads := c.task != nil
			c.mu.Unlock()
			if leads {
				c.cancel()
				c.let()
			}
		}
	}
	for _, c := range w.calls {
		assert.True(w.t, c.returned(), "a call hangs")
		c.cancel()
	}
	for _, done := range w.resigns {
		if done != nil {
			<-done
		}
	}
	time.Sleep(30 * time.Second)
	assert.Zero(w.t, w.st.held())
}
