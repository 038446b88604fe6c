// SPDX-License-Identifier: MIT

package leadergocron

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/oxygenhub/leader"
)

// hold is one call of [Locker.Lock], and the lock if it gets one.
type hold struct {
	key   string
	tasks work // wrapped, under this lock

	got    chan struct{} // closed when the lock is held
	once   sync.Once
	unlock chan struct{} // closed by release
	kept   chan struct{} // closed when the lock is kept on for LockerOptions.MinHold
	ended  chan struct{} // closed when the lock is not held, and will not be: then the rest is set

	ran   bool
	err   error // of Try
	cause error // of the end of its context, if it ended before Try
}

func newHold(key string) *hold {
	return &hold{
		key: key,
		got: make(chan struct{}), unlock: make(chan struct{}), kept: make(chan struct{}), ended: make(chan struct{}),
	}
}

// release has the lock given back, or not be waited for.
func (h *hold) release() { h.once.Do(func() { close(h.unlock) }) }

// refusal is why h has ended without a lock.
func (h *hold) refusal() error {
	switch {
	case !h.ran && h.err == nil:
		return ErrLocked
	case errors.Is(h.cause, ErrUnanswered) && !h.ran:
		return fmt.Errorf("%w: %w", ErrUnanswered, h.err)
	case h.cause != nil:
		return h.cause
	}
	return h.err
}

// Unlock gives the lock back whether ctx has ended or not: gocron calls it with the context of the job, which a shutdown
// ends. It returns when that is done, or goes on in Run because of LockerOptions.MinHold, or with ctx.Err() when ctx ends. If
// the lock was lost before, it returns an error that wraps [leader.ErrLost]. It may be called again, and concurrently.
func (h *hold) Unlock(ctx context.Context) error {
	h.release()
	select {
	case <-h.kept:
		return nil
	case <-h.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	if errors.Is(h.err, leader.ErrLost) {
		return h.err
	}
	return nil
}
