// SPDX-License-Identifier: MIT

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/oxygenhub/leader/soak/history"
	"github.com/oxygenhub/leader/soak/internal/crew"
)

// Target is a fleet. Its methods are called from several goroutines, but for those of a place from two at most: that of its
// process, and that of its network.
type Target interface {
	Kill(place int) error  // SIGKILL, and wait until it is gone
	Leave(place int) error // in the orderly way, and wait
	Start(place int) error // another process
	Signal(place int, stop bool) error
	Order(place int, order string, arg any) error
	Crowd(n int) (disperse func() error, err error)

	// Terminate makes ready to have the server end the sessions of a place, and returns what does it.
	Terminate(ctx context.Context, place int) (now func() error, err error)
	Network(place int) Network
	Cut(place int, how string) error // of a place that is a host
	Mend(place int) error

	Stop(mode string) error // of the server
	StartServer() error
	CrashBackend(ctx context.Context) error
	FillLocks(ctx context.Context) (empty func() error, err error)
	ReadOnly(ctx context.Context, on bool) error
	BouncePooler(on bool) error
	Promote(ctx context.Context) error
	FillDisk() (empty func() error, err error)

	Node(place int) string // of the process that is there now
	Say(history.Event)
}

// Network is that of a place: the proxy of the lock connection, or of the transactions.
type Network interface {
	Lock() Proxy
	App() Proxy
}

// Proxy is what a fault of the network needs of one.
type Proxy interface {
	Swallow(up, down bool)
	Stall(up, down bool)
	Delay(time.Duration)
	Heal()
	Reset()
}

// Inflict carries out a plan, and returns when all has been undone, which it is also when ctx ends.
func Inflict(ctx context.Context, t Target, timing history.Timing, plan []Fault) error {
	began := time.Now()
	type of struct {
		lane  lane
		place int
	}
	lanes := make(map[of][]Fault)
	for _, f := range plan {
		lanes[of{f.lane, f.Place}] = append(lanes[of{f.lane, f.Place}], f)
	}
	var mu sync.Mutex
	var errs error
	var work sync.WaitGroup
	for _, faults := range lanes {
		work.Go(func() { // until its faults are over
			for _, f := range faults {
				if !pause(ctx, time.Until(began.Add(f.At))) {
					return
				}
				if err := happen(ctx, t, timing, f); err != nil {
					mu.Lock()
					errs = errors.Join(errs, fmt.Errorf("%v: %w", f, err))
					mu.Unlock()
					return
				}
			}
		})
	}
	work.Wait()
	return errs
}

// happen does f, leaves it for its time, and undoes it.
func happen(ctx context.Context, t Target, timing history.Timing, f Fault) error {
	injury := f.Injury
	if f.lane == process {
		injury.Node = t.Node(f.Place)
	}
	var terminate func() error
	if f.Kind == Terminate || f.Kind == Killed { // which takes a connection, that may have to be waited for
		var err error
		if terminate, err = t.Terminate(ctx, f.Place); err != nil {
			return err
		}
	}
	t.Say(history.Event{Kind: history.Fault, Fault: &injury})
	undo, err := do(ctx, t, timing, f)
	if err == nil && terminate != nil {
		err = end(t, f, terminate)
	}
	if err != nil {
		return err
	}
	pause(ctx, f.For)
	if f.swallows() {
		tear(t, f)
	}
	if undo != nil {
		err = undo()
	}
	t.Say(history.Event{Kind: history.Heal, Fault: &injury})
	return err
}

// tear resets the connections at the end of a black hole, which a proxy does to those that have lost something, and says so:
// the server has ended their sessions then, and no SessionTimeout is waited for.
func tear(t Target, f Fault) {
	injury := f.Injury
	injury.ID, injury.Kind, injury.Reach, injury.For = f.ID+2*within, Reset, history.ReachCut, 0
	t.Say(history.Event{Kind: history.Fault, Fault: &injury})
	t.Network(f.Place).Lock().Reset()
	t.Say(history.Event{Kind: history.Heal, Fault: &injury})
}

func (f Fault) swallows() bool {
	switch f.Kind {
	case Hole, HoleUp, HoleDown, Killed, AllHole:
		return true
	}
	return false
}

// end has the server end sessions. In a black hole that is a fault of its own: the server has done so, and the process does
// not hear of it.
func end(t Target, f Fault, terminate func() error) error {
	if f.Kind != Killed {
		return terminate()
	}
	injury := f.Injury
	injury.ID, injury.Kind, injury.Reach, injury.For = f.ID+within, Terminate, history.ReachSession, 0
	t.Say(history.Event{Kind: history.Fault, Fault: &injury})
	err := terminate()
	t.Say(history.Event{Kind: history.Heal, Fault: &injury})
	return err
}

// within makes the number of a fault that is part of another.
const within = 1000

// do does f.
func do(ctx context.Context, t Target, timing history.Timing, f Fault) (undo func() error, err error) {
	switch f.lane {
	case process:
		return onProcess(ctx, t, timing, f)
	case network:
		return onNetwork(t, timing, f)
	}
	return onFleet(ctx, t, f)
}

func onProcess(ctx context.Context, t Target, timing history.Timing, f Fault) (undo func() error, err error) {
	random := rand.New(rand.NewPCG(f.Dice, 2))
	order := func(order string, arg any) error { return t.Order(f.Place, order, arg) }
	mood := func(kind string) (func() error, error) {
		return func() error { return order(crew.Tasks, "") }, order(crew.Tasks, kind)
	}
	switch f.Kind {
	case Kill:
		return func() error { return t.Start(f.Place) }, t.Kill(f.Place)
	case Replace:
		return func() error { return t.Start(f.Place) }, t.Leave(f.Place)
	case Pause:
		return func() error { return t.Signal(f.Place, false) }, t.Signal(f.Place, true)
	case Resigns:
		for range 2 + random.IntN(6) {
			if err = order(crew.Resign, ""); err != nil || !pause(ctx, time.Duration(random.Int64N(int64(timing.Lease)))) {
				break
			}
		}
		return nil, err
	case Storm:
		return nil, order(crew.Storm, 20+random.IntN(60))
	case Clock: // sometimes by less than the lease, which must do no harm
		return nil, order(crew.Clock, timing.Lease/2+time.Duration(random.Int64N(int64(3*timing.Lease))))
	case Back:
		return nil, order(crew.Clock, -time.Duration(random.Int64N(int64(time.Hour))))
	case Slow:
		return mood(crew.Slow)
	case Stub:
		return mood(crew.Stubborn)
	case Panics:
		return mood(crew.Panics)
	}
	return nil, errUnknown
}

var errUnknown = errors.New("nobody knows how to do this fault")

func onNetwork(t Target, timing history.Timing, f Fault) (undo func() error, err error) {
	switch f.Kind {
	case Terminate: // by happen
		return nil, nil //nolint:nilnil // there is nothing to undo
	case LinkDown, Silence, NoRoute:
		return func() error { return t.Mend(f.Place) }, t.Cut(f.Place, f.Kind)
	}
	lock, app := t.Network(f.Place).Lock(), t.Network(f.Place).App()
	switch f.Kind {
	case Hole, Killed:
		lock.Swallow(true, true)
	case HoleUp:
		lock.Swallow(true, false)
	case HoleDown:
		lock.Swallow(false, true)
	case Delay: // up to more than the lease
		lock.Delay(timing.Lease/10 + time.Duration(f.Dice%uint64(timing.Lease)))
	case Stall:
		lock.Stall(true, true)
	case Reset:
		lock.Reset()
	case AppHole:
		app.Swallow(true, true)
	case AppReset:
		app.Reset()
	case AllHole:
		lock.Swallow(true, true)
		app.Swallow(true, true)
	default:
		return nil, errUnknown
	}
	return func() error {
		lock.Heal()
		app.Heal()
		return nil
	}, nil
}

// onFleet is what hits the whole fleet.
func onFleet(ctx context.Context, t Target, f Fault) (undo func() error, err error) {
	switch f.Kind {
	case Fast, Immediate:
		mode := "fast"
		if f.Kind == Immediate {
			mode = "immediate"
		}
		return t.StartServer, t.Stop(mode)
	case Crash:
		return nil, t.CrashBackend(ctx)
	case Full:
		return t.FillLocks(ctx)
	case ReadOnly:
		undo := func() error { return t.ReadOnly(context.WithoutCancel(ctx), false) }
		return undo, t.ReadOnly(ctx, true)
	case Crowd:
		return t.Crowd(3 + int(f.Dice%5))
	case Bounce:
		return func() error { return t.BouncePooler(true) }, t.BouncePooler(false)
	case Promote:
		return nil, t.Promote(ctx)
	case DiskFull:
		return t.FillDisk()
	}
	return nil, errUnknown
}

// pause returns false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
