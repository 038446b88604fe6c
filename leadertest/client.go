// SPDX-License-Identifier: MIT

package leadertest

import (
	"context"
	"time"

	"github.com/oxygenhub/leader/driver"
)

// client is the Leader's side of a session.
type client struct{ *Session }

// await waits until the link lets something through.
func (c client) await() error {
	for {
		c.store.mu.Lock()
		open, changed, gone := c.openLocked(), c.changed, c.gone
		c.store.mu.Unlock()
		switch {
		case gone:
			return &driver.OverError{Err: errKilled}
		case open:
			return nil
		}
		select {
		case <-changed:
		case <-c.killed:
		}
	}
}

// ask sends a request, which the store serves with mu held, and waits for the answer.
func (c client) ask(serve func()) error {
	if err := c.await(); err != nil {
		return err
	}
	delay, err := c.served(serve)
	if err != nil {
		return err
	}
	if delay > 0 {
		late := time.NewTimer(delay)
		defer late.Stop()
		select {
		case <-late.C:
		case <-c.killed:
		}
	}
	return c.await()
}

func (c client) served(serve func()) (delay time.Duration, err error) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	switch {
	case c.gone:
		return 0, &driver.OverError{Err: errKilled}
	case !c.alive:
		return 0, &driver.OverError{Err: errEnded, Ended: true}
	}
	c.hearLocked()
	serve()
	return c.delay, nil
}

func (c client) Info() driver.Info {
	return driver.Info{Namespace: Namespace, Place: "leadertest", PID: c.pid}
}

func (c client) Try(keys []int64) (got []int64, err error) {
	err = c.ask(func() {
		for _, key := range keys {
			if c.store.locks[key].session == nil {
				c.store.locks[key] = held{c.Session, time.Now()}
				c.believed[key] = struct{}{}
				got = append(got, key)
			}
		}
	})
	return got, err
}

func (c client) Unlock(keys []int64) (missing []int64, err error) {
	err = c.ask(func() {
		for _, key := range keys {
			if c.store.locks[key].session == c.Session {
				delete(c.store.locks, key)
			} else {
				missing = append(missing, key)
			}
			delete(c.believed, key)
		}
	})
	return missing, err
}

func (c client) Tell(keys []int64) error {
	return c.ask(func() {
		for _, other := range c.store.sessions {
			if other != c.Session {
				other.news = append(other.news, keys...)
				other.changeLocked()
			}
		}
	})
}

func (c client) Prove() (lost []int64, err error) {
	err = c.ask(func() {
		for key := range c.believed {
			if c.store.locks[key].session != c.Session {
				delete(c.believed, key)
				lost = append(lost, key)
			}
		}
	})
	return lost, err
}

func (c client) Holders(keys []int64) (map[int64]driver.Holder, error) {
	holders := make(map[int64]driver.Holder)
	err := c.ask(func() {
		for _, key := range keys {
			if h := c.store.locks[key]; h.session != nil {
				holders[key] = driver.Holder{Node: h.session.node, PID: h.session.pid, Since: h.since}
			}
		}
	})
	return holders, err
}

func (c client) Wait(ctx context.Context) ([]int64, error) {
	for {
		keys, changed, err := c.look()
		if len(keys) > 0 || err != nil {
			return keys, err
		}
		select {
		case <-changed:
		case <-c.killed:
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// look takes what the store has sent without having been asked.
func (c client) look() (keys []int64, changed chan struct{}, err error) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	switch {
	case c.gone:
		return nil, nil, &driver.OverError{Err: errKilled}
	case !c.openLocked():
		return nil, c.changed, nil
	case !c.alive:
		return nil, nil, &driver.OverError{Err: errEnded, Ended: true}
	}
	keys, c.news = c.news, nil
	return keys, c.changed, nil
}

func (c client) Close() { c.Kill() }

func (c client) Kill() { c.set(c.leaveLocked) }
