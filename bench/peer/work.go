// SPDX-License-Identifier: MIT

//go:build unix

package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// share is one process's share of a peer: what it keeps from one leadership to the next.
type share interface {
	// contend contends until ctx ends: it says when it stands by, when it leads and when that is over, and contends again
	// after a loss. When ctx has ended it gives the leadership up in the way that the peer recommends, and returns.
	contend(ctx context.Context, t *tape) error
	// close ends the process's connections, as far as they answer.
	close()
}

// ended says how a leadership came to its end: by order of ctx, or else by a loss.
func (t *tape) ended(ctx context.Context) {
	if ctx.Err() != nil {
		t.say(Stopped)
	} else {
		t.say(Told)
	}
}

// Work is a process of a peer: it does its job until in ends, and says on out what happens.
func Work(ctx context.Context, job string, in io.Reader, out io.Writer) error {
	var j Job
	if err := json.Unmarshal([]byte(job), &j); err != nil {
		return fmt.Errorf("%s: %w", JobEnv, err)
	}
	p, err := find(j)
	if err != nil {
		return err
	}
	s, err := p.open(ctx, j)
	if err != nil {
		return fmt.Errorf("%s: %w", j.Peer, err)
	}
	t := &tape{node: j.Node, out: out}
	t.say(Ready)
	broken := make(chan error, 2) // one of the orders, one of contending
	go func() { broken <- obey(ctx, s, t, in, broken) }()
	err = <-broken
	s.close()
	return errors.Join(err, t.failed())
}

// obey carries out the orders until there are no more. To contend is not to end before Stop: if it does, broken is told why.
func obey(ctx context.Context, s share, t *tape, in io.Reader, broken chan<- error) error {
	stop := func() error { return nil }
	for lines := bufio.NewScanner(in); lines.Scan(); {
		err := stop()
		stop = func() error { return nil }
		switch order := lines.Text(); {
		case err != nil:
			return err
		case order == Go:
			stop = start(ctx, s, t, broken)
		case order == Stop:
			t.say(Resting)
		default:
			return fmt.Errorf("nobody knows the order %q", order)
		}
	}
	return stop()
}

// start contends until the function is called that it returns, which waits for the end of that.
func start(ctx context.Context, s share, t *tape, broken chan<- error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { // until cancel
		err := s.contend(ctx, t)
		if ctx.Err() == nil {
			broken <- fmt.Errorf("contending has ended: %w", err)
		}
		done <- err
	}()
	return func() error {
		cancel()
		err := <-done
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
}
