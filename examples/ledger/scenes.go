// SPDX-License-Identifier: MIT

package main

import (
	"context"
)

// freeze stops the process at the worst moment: Fence has looked at its clock, and has not yet asked the table.
func (f *fleet) freeze(ctx context.Context, w *worker) error {
	if !canFreeze {
		f.chapter("nobody is frozen: this system has no SIGSTOP")
		return nil
	}
	f.chapter("%s is frozen in the middle of a write (SIGSTOP)", w.name)
	if err := f.hold(ctx, w); err != nil {
		return err
	}
	if err := f.free(ctx, w); err != nil {
		return err
	}
	if err := f.until(ctx, "another one leads", func() bool { return f.leader != w }); err != nil {
		return err
	}
	f.look(ctx) // the new one writes
	f.chapter("%s wakes, and goes on with its write under term %d", w.name, w.term)
	w.outcome = ""
	if err := f.wake(w); err != nil {
		return err
	}
	return f.until(ctx, "its write has ended", func() bool { return w.outcome != "" })
}

// free makes the lock of a frozen process free.
func (f *fleet) free(ctx context.Context, w *worker) error {
	switch {
	case !f.table.postgres:
		f.look(ctx)
		f.say("nobody takes over: the kernel keeps the lock of a frozen process. So somebody deletes the lock file by hand,")
		f.say("which nobody should")
		return f.table.deleteLock()
	case f.table.version < 14_00_00:
		f.say("before PostgreSQL 14 there is no idle_session_timeout, so its connection is cut as well")
		w.proxy.cut()
		defer w.proxy.mend()
		return f.until(ctx, "another one leads", func() bool { return f.leader != w })
	}
	f.say("the server ends its silent session after %v", options.SessionTimeout)
	return nil
}

func (f *fleet) kill(ctx context.Context, w *worker) error {
	f.chapter("kill -9 %s, and start it again once another one leads", w.name)
	if err := f.remove(w); err != nil {
		return err
	}
	if err := f.until(ctx, "another one leads", func() bool { return f.leader != w }); err != nil {
		return err
	}
	return f.start(w.name) //nolint:contextcheck // stop ends it
}

// partition is of the worst kind: the server hears that the connection has ended, and frees the lock; the worker hears
// nothing, trusts its lease for a while, and can write still, on another connection.
func (f *fleet) partition(ctx context.Context, w *worker) error {
	if !f.table.postgres {
		return nil
	}
	f.chapter("%s is cut off from its lock, but not from the table", w.name)
	w.outcome = ""
	w.proxy.cut()
	defer w.proxy.mend()
	return f.until(ctx, "another one leads, and this one knows", func() bool { return f.leader != w && w.outcome != "" })
}
