// SPDX-License-Identifier: MIT

//go:build unix

package takeover

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/oxygenhub/leader/bench/peer"
)

// event is what is done to a pair in a round, and measured. After the last one nobody needs the pair.
type event func(ctx context.Context, two *pair, last bool) error

// inTurn does a round after the other, in each of which a pair of each peer has its turn, in an order that is drawn. A peer
// that fails has no more turns.
func (r *rig) inTurn(ctx context.Context, c Config, work string, peers []peer.Peer, rounds int, do event) error {
	pairs := make([]*pair, len(peers))
	errs := make([]error, len(peers))
	for i, p := range peers {
		pairs[i], errs[i] = r.pair(ctx, p)
	}
	said := time.Now()
	for i := range rounds {
		for _, k := range rand.Perm(len(pairs)) {
			if errs[k] == nil {
				errs[k] = do(ctx, pairs[k], i == rounds-1)
			}
		}
		if i == rounds-1 || time.Since(said) > 20*time.Second {
			said = time.Now()
			c.Log(fmt.Sprintf("%s: %d of %d rounds", work, i+1, rounds))
		}
	}
	for i, p := range peers {
		errs[i] = of(p, errs[i])
	}
	return errors.Join(errs...)
}

// of says which peer an error is of.
func of(p peer.Peer, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", p, err)
}

// task is rounds of a peer that are done one after the other, while other tasks are.
type task struct {
	peer   peer.Peer
	rounds int
}

// spread makes tasks for several rounds of a peer at the same time.
func spread(p peer.Peer, lanes, rounds int) []task {
	return slices.Repeat([]task{{p, rounds}}, lanes)
}

// together does all tasks at the same time. It is for peers that do little but wait. An error ends only its own task.
func together(ctx context.Context, c Config, work string, tasks []task, do func(context.Context, task) error) error {
	c.Log(fmt.Sprintf("%s: %d pairs at the same time, which do little but wait", work, len(tasks)))
	errs := make([]error, len(tasks))
	var all sync.WaitGroup
	for i, t := range tasks {
		all.Go(func() { errs[i] = of(t.peer, do(ctx, t)) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// alone does the rounds of a task with a pair of its own.
func (r *rig) alone(do event) func(context.Context, task) error {
	return func(ctx context.Context, t task) error {
		two, err := r.pair(ctx, t.peer)
		for i := 0; i < t.rounds && err == nil; i++ {
			err = do(ctx, two, i == t.rounds-1)
		}
		return err
	}
}
