// SPDX-License-Identifier: MIT

//go:build unix

package leader_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// histFault is one thing that happens to a place.
type histFault struct {
	At, For time.Duration // since the begin of the history; until it is undone
	Place   int
	Kind    string
	Network bool // or the process: a place may have trouble with both at once
}

func (f histFault) String() string {
	return fmt.Sprintf("%v+%v %d %s", f.At.Round(time.Millisecond), f.For.Round(time.Millisecond), f.Place, f.Kind)
}

// What may happen to a process, and to the network: the Leader and the application go to the server by different ways.
var (
	histProcessFaults = []string{"pause", "pause", "kill", "restart"}
	histNetworkFaults = []string{
		"lock: black hole", "lock: black hole to the server", "lock: black hole from the server", "lock: late",
		"lock: reset", "lock: killed in a black hole", "lock: killed in a black hole",
		"app: black hole", "app: black hole to the server", "app: black hole from the server", "app: late",
		"app: late to the server", "both: black hole",
	}
)

// histPlan is the faults of a history that lasts for length. The same random numbers make the same plan.
func histPlan(random *rand.Rand, length time.Duration) (plan []histFault) {
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(random.Int64N(int64(most-least)))
	}
	for place := range histWorkers {
		for _, network := range []bool{false, true} {
			kinds, at := histProcessFaults, between(0, length/2)
			if network {
				kinds = histNetworkFaults
			}
			for at < length {
				f := histFault{At: at, Place: place, Network: network, Kind: kinds[random.IntN(len(kinds))]}
				switch dice := random.IntN(10); { // the lease is 150 ms or more, the session's timeout at least 400 ms
				case dice < 3:
					f.For = between(20*time.Millisecond, 150*time.Millisecond)
				case dice < 7:
					f.For = between(150*time.Millisecond, 600*time.Millisecond)
				default:
					f.For = between(600*time.Millisecond, 1200*time.Millisecond)
				}
				plan = append(plan, f)
				at += f.For + between(50*time.Millisecond, 500*time.Millisecond)
			}
		}
	}
	return plan
}

// disturb carries out the plan, and returns when all has been undone.
func (f *histFleet) disturb(ctx context.Context, plan []histFault) error {
	began := time.Now()
	errs := make([]error, 2*histWorkers)
	var lanes sync.WaitGroup
	for i := range errs {
		lane := slices.DeleteFunc(slices.Clone(plan), func(f histFault) bool { return f.Place != i/2 || f.Network != (i%2 == 1) })
		lanes.Go(func() { // until its plan is done
			for _, fault := range lane {
				<-time.After(time.Until(began.Add(fault.At)))
				if errs[i] = f.fault(ctx, fault); errs[i] != nil {
					errs[i] = fmt.Errorf("%v: %w", fault, errs[i])
					return
				}
			}
		})
	}
	lanes.Wait()
	return errors.Join(errs...)
}

// fault has f happen, and undoes it.
func (f *histFleet) fault(ctx context.Context, fault histFault) error {
	place := f.places[fault.Place]
	if fault.Network {
		return place.network(ctx, fault)
	}
	switch fault.Kind {
	case "pause":
		place.signal(syscall.SIGSTOP)
		<-time.After(fault.For)
		place.signal(syscall.SIGCONT)
		return nil
	case "kill":
		place.kill()
	case "restart":
		if err := place.leave(); err != nil {
			return err
		}
		fault.For /= 4 // it takes its time to leave
	}
	<-time.After(fault.For)
	return errors.Join(place.start(), place.begin())
}

func (p *histPlace) network(ctx context.Context, fault histFault) error {
	var err error
	switch fault.Kind {
	case "lock: black hole":
		p.lock.Swallow(true, true)
	case "lock: black hole to the server":
		p.lock.Swallow(true, false)
	case "lock: black hole from the server":
		p.lock.Swallow(false, true)
	case "lock: late":
		p.lock.Stall(true, true)
	case "lock: reset":
		p.lock.Reset()
	case "lock: killed in a black hole":
		p.lock.Swallow(true, true)
		err = p.terminate(ctx)
	case "app: black hole":
		p.app.Swallow(true, true)
	case "app: black hole to the server":
		p.app.Swallow(true, false)
	case "app: black hole from the server":
		p.app.Swallow(false, true)
	case "app: late":
		p.app.Stall(true, true)
	case "app: late to the server":
		p.app.Stall(true, false)
	case "both: black hole":
		p.lock.Swallow(true, true)
		p.app.Swallow(true, true)
	default:
		err = errors.New("nobody knows this fault")
	}
	<-time.After(fault.For)
	for _, proxy := range []*pgtest.Proxy{p.lock, p.app} {
		proxy.Heal()
	}
	return err
}
