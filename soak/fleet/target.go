// SPDX-License-Identifier: MIT

//go:build unix

package fleet

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"

	"github.com/oxygenhub/leader/soak/faults"
	"github.com/oxygenhub/leader/soak/history"
)

var _ faults.Target = (*Fleet)(nil)

// Say puts an event on the tape of the laboratory.
func (f *Fleet) Say(e history.Event) { f.tape.Say(e) }

func (f *Fleet) place(id int) *place { return f.places[id-1] }

// Node is the process that faults of the place are about.
func (f *Fleet) Node(place int) string { return f.place(place).current().node }

// Kill ends the process of a place without a warning.
func (f *Fleet) Kill(place int) error {
	f.place(place).current().kill()
	return nil
}

// Leave has the process of a place leave in the orderly way.
func (f *Fleet) Leave(place int) error { return f.place(place).current().leave() }

// Start has another process in a place.
func (f *Fleet) Start(place int) error { return f.place(place).renew() }

// Signal stops the process of a place, or has it go on.
func (f *Fleet) Signal(place int, stop bool) error {
	sig := syscall.SIGCONT
	if stop {
		sig = syscall.SIGSTOP
	}
	return f.place(place).current().cmd.Process.Signal(sig)
}

// Order gives the process of a place an order.
func (f *Fleet) Order(place int, order string, arg any) error {
	return f.place(place).current().order(order, arg)
}

// Crowd starts n more processes at once, which disperse tells to leave.
func (f *Fleet) Crowd(n int) (disperse func() error, err error) {
	crowd := make([]*proc, n)
	errs := make([]error, n)
	var work sync.WaitGroup
	for i := range n {
		p := f.places[i%len(f.places)]
		work.Go(func() { // until it has been started
			if crowd[i], errs[i] = p.start(); errs[i] == nil {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.others = append(p.others, crowd[i])
			}
		})
	}
	work.Wait()
	crowd = slices.DeleteFunc(crowd, func(w *proc) bool { return w == nil })
	return func() error {
		var work sync.WaitGroup
		errs := make([]error, len(crowd))
		for i, w := range crowd {
			work.Go(func() { errs[i] = w.leave() })
		}
		work.Wait()
		return errors.Join(errs...)
	}, errors.Join(errs...)
}

// Terminate has the server end the sessions of all Leaders of a place, as soon as now is called.
func (f *Fleet) Terminate(ctx context.Context, place int) (now func() error, err error) {
	return f.base.terminate(ctx, func() (apps []string) {
		for _, w := range f.place(place).all() {
			apps = append(apps, "leader/"+w.node)
		}
		return apps
	})
}

// Network is that of a place.
func (f *Fleet) Network(place int) faults.Network { return f.place(place) }

// Cut takes the host of a place off the network.
func (f *Fleet) Cut(place int, how string) error {
	return f.tried(func() error { return f.base.cut(place, how) })
}

// Mend is the end of Cut.
func (f *Fleet) Mend(place int) error { return f.tried(func() error { return f.base.mend(place) }) }

// Stop stops the server, in a mode of pg_ctl.
func (f *Fleet) Stop(mode string) error { return f.tried(func() error { return f.base.stop(mode) }) }

// StartServer is the end of Stop.
func (f *Fleet) StartServer() error { return f.tried(f.base.start) }

// CrashBackend kills a process of the server that is none of the fleet's: the server ends all sessions and recovers.
func (f *Fleet) CrashBackend(ctx context.Context) error {
	return f.tried(func() error { return f.base.crashBackend(ctx) })
}

// FillLocks takes all locks that there is room for.
func (f *Fleet) FillLocks(ctx context.Context) (empty func() error, err error) {
	return f.base.fillLocks(ctx)
}

// ReadOnly has the server take no writes, or take them again.
func (f *Fleet) ReadOnly(ctx context.Context, on bool) error { return f.base.readOnly(ctx, on) }

// BouncePooler stops the pooler, or starts it again.
func (f *Fleet) BouncePooler(on bool) error {
	return f.tried(func() error { return f.base.bounce(on) })
}

// Promote has the primary die and makes a primary of its replica.
func (f *Fleet) Promote(ctx context.Context) error {
	return f.tried(func() error { return f.base.promote(ctx) })
}

// FillDisk takes the room that the database has left.
func (f *Fleet) FillDisk() (empty func() error, err error) { return f.base.fillDisk() }

// tried turns what would end a test into an error.
func (f *Fleet) tried(do func() error) error {
	var inner error
	return errors.Join(f.stage.Try(func() { inner = do() }), inner)
}
