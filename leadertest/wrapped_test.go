// SPDX-License-Identifier: MIT

package leadertest

import (
	"context"

	"github.com/oxygenhub/leader/driver"
)

// wrapped breaks a session: what is not set works.
type wrapped struct {
	driver.Session

	info    func(driver.Info) driver.Info
	try     func(keys []int64) ([]int64, error)
	unlock  func(keys []int64) ([]int64, error)
	tell    func(keys []int64) error
	prove   func() ([]int64, error)
	holders func(keys []int64) (map[int64]driver.Holder, error)
	wait    func(ctx context.Context) ([]int64, error)
	end     func()
	kill    func()
	failure func(error) error
}

func sessionOf(s driver.Session) *Session {
	if w, ok := s.(*wrapped); ok {
		return sessionOf(w.Session)
	}
	return s.(client).Session
}

func (w *wrapped) fail(err error) error {
	if err != nil && w.failure != nil {
		return w.failure(err)
	}
	return err
}

func (w *wrapped) Info() driver.Info {
	if w.info != nil {
		return w.info(w.Session.Info())
	}
	return w.Session.Info()
}

func (w *wrapped) Try(keys []int64) ([]int64, error) {
	call := w.Session.Try
	if w.try != nil {
		call = w.try
	}
	held, err := call(keys)
	return held, w.fail(err)
}

func (w *wrapped) Unlock(keys []int64) ([]int64, error) {
	call := w.Session.Unlock
	if w.unlock != nil {
		call = w.unlock
	}
	missing, err := call(keys)
	return missing, w.fail(err)
}

func (w *wrapped) Tell(keys []int64) error {
	call := w.Session.Tell
	if w.tell != nil {
		call = w.tell
	}
	return w.fail(call(keys))
}

func (w *wrapped) Prove() ([]int64, error) {
	call := w.Session.Prove
	if w.prove != nil {
		call = w.prove
	}
	lost, err := call()
	return lost, w.fail(err)
}

func (w *wrapped) Holders(keys []int64) (map[int64]driver.Holder, error) {
	call := w.Session.Holders
	if w.holders != nil {
		call = w.holders
	}
	found, err := call(keys)
	return found, w.fail(err)
}

func (w *wrapped) Wait(ctx context.Context) ([]int64, error) {
	call := w.Session.Wait
	if w.wait != nil {
		call = w.wait
	}
	keys, err := call(ctx)
	return keys, w.fail(err)
}

func (w *wrapped) Close() {
	if w.end != nil {
		w.end()
		return
	}
	w.Session.Close()
}

func (w *wrapped) Kill() {
	if w.kill != nil {
		w.kill()
		return
	}
	w.Session.Kill()
}

// brokenDriver breaks a driver and the sessions that it opens.
type brokenDriver struct {
	storeDriver

	apart bool // each process has locks and terms of its own
	open  func(ctx context.Context, config driver.Config) (driver.Session, error)
	spoil func(s driver.Session, w *wrapped)
	read  func(namespace string, keys []int64) (string, []int64)
	swap  func(ctx context.Context, key, last int64, next driver.Term) (bool, error)
}

// another is the driver of another process.
func (d *brokenDriver) another() driver.Driver {
	if !d.apart {
		return d
	}
	return &brokenDriver{storeDriver: storeDriver{NewStore()}}
}

func (d *brokenDriver) Open(ctx context.Context, config driver.Config) (driver.Session, error) {
	open := d.storeDriver.Open
	if d.open != nil {
		open = d.open
	}
	s, err := open(ctx, config)
	if err != nil || d.spoil == nil {
		return s, err
	}
	w := &wrapped{Session: s}
	d.spoil(s, w)
	return w, nil
}

func (d *brokenDriver) ReadTerms(ctx context.Context, namespace string, keys []int64) (map[int64]driver.Term, error) {
	if d.read != nil {
		namespace, keys = d.read(namespace, keys)
	}
	return d.storeDriver.ReadTerms(ctx, namespace, keys)
}

func (d *brokenDriver) SwapTerm(ctx context.Context, key, last int64, next driver.Term) (bool, error) {
	if d.swap != nil {
		return d.swap(ctx, key, last, next)
	}
	return d.storeDriver.SwapTerm(ctx, key, last, next)
}
