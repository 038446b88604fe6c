// SPDX-License-Identifier: MIT

package check

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/oxygenhub/leader/soak/history"
)

// decide is how long the search for an order may take for each name.
const decide = 10 * time.Second

// step is what happens to a lock.
type step int

const (
	lock   step = iota // by holder, who has it then
	unlock             // by holder, who had it
	busy               // a Try was told that somebody has it
)

type operation struct {
	step   step
	holder int // a task, from 1 on; 0 is nobody
}

// lockModel is a lock: one holder or none.
func lockModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return 0 },
		Step: func(state, input, _ any) (bool, any) {
			op := input.(operation)
			switch op.step {
			case lock:
				return state == 0, op.holder
			case unlock:
				return state == op.holder, 0
			default:
				return state != 0, state
			}
		},
	}
}

// linear looks for an order of all locks and unlocks of a name in which the lock has one holder at a time. A lock lies
// between the call and the begin of the task. An unlock lies between the end of the task and the return of Run; that of a
// process that has died, or has lost its session, lies at some time after the first one at which the server may have freed
// it: nobody can say when it did.
func linear(v *view) {
	cover := v.cover(Order)
	byName := make(map[string][]*Span)
	for _, s := range v.spans {
		byName[s.Name] = append(byName[s.Name], s)
	}
	for _, name := range v.names() {
		history := v.operations(byName[name])
		tries := v.tries(name)
		if len(history) == 0 {
			continue
		}
		cover.Checked += len(history) + len(tries)
		history = append(history, tries...)
		switch porcupine.CheckOperationsTimeout(lockModel(), history, decide) {
		case porcupine.Illegal:
			at, text, events := v.shortest(byName[name], tries)
			v.violate(Order, name, at, text, events...)
		case porcupine.Unknown:
			cover.Skipped += len(history)
		}
	}
}

func (v *view) operations(spans []*Span) (all []porcupine.Operation) {
	for n, s := range spans {
		free := v.freeFrom(s)
		gone := v.end + 1
		if !s.Died && !s.Lost() && free == s.End {
			gone = s.Returned
		}
		all = append(
			all,
			porcupine.Operation{ClientId: n, Input: operation{lock, n + 1}, Call: int64(min(s.Called, s.Start)), Return: int64(s.Start)},
			porcupine.Operation{ClientId: n, Input: operation{unlock, n + 1}, Call: int64(free), Return: int64(max(free, gone))},
		)
	}
	return all
}

// tries are the calls of Try that were told that another has the lock. Where somebody may have had it without a task, they
// say nothing.
func (v *view) tries(name string) (all []porcupine.Operation) {
	for _, c := range v.calls {
		if c.event.Name != name || !c.event.Once || c.done.Kind == "" || c.done.Ran || c.done.Text != "" || len(c.spans) > 0 {
			continue
		}
		if slices.ContainsFunc(v.calls, func(o *call) bool { return o != c && o.event.Name == name && o.hidden(c.from, c.until) }) {
			v.cover(Order).Skipped++
			continue
		}
		all = append(all, porcupine.Operation{Input: operation{busy, 0}, Call: int64(c.from), Return: int64(c.until)})
	}
	return all
}

// hidden says whether the caller may have had the lock in these times without a task that shows it.
func (c *call) hidden(from, until time.Duration) bool {
	if c.from > until || c.until < from {
		return false
	}
	return len(c.spans) == 0 || c.spans[len(c.spans)-1].Start < from // it may have got it again, and lost it
}

// shortest returns where the order fails: the first task with which there is none.
func (v *view) shortest(spans []*Span, tries []porcupine.Operation) (time.Duration, string, []history.Event) {
	fails := func(n int) bool {
		ops := v.operations(spans[:n])
		if n == len(spans) {
			ops = append(ops, tries...)
		}
		return porcupine.CheckOperationsTimeout(lockModel(), ops, decide) == porcupine.Illegal
	}
	n := 1 + sort.Search(len(spans)-1, func(n int) bool { return fails(n + 1) }) // an order of more tasks is one of fewer
	last := spans[n-1]
	text := fmt.Sprintf("there is no order with %v, which was called at %v", last, v.since(last.Called))
	events := slices.Clone(last.events)
	if n > 1 {
		before := spans[n-2]
		text += fmt.Sprintf(", after %v, whose lock may be free from %v on", before, v.since(v.freeFrom(before)))
		events = append(slices.Clone(before.events), events...)
	}
	return last.Start, text, events
}
