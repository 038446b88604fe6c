// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Holder is who has the lock of a name.
type Holder struct {
	Name  string
	Held  bool      // somebody has it. If nobody has, all but Name and Ended is zero
	Node  string    // Options.Node of the holder; without a term cut to 56 bytes for PostgreSQL, and "" if it is not one of ours
	PID   uint32    // of its process on SQLite, of the server's process for its session on PostgreSQL
	Since time.Time // of its term; without one, of its session on PostgreSQL (zero if this role may not see it), of the lock on SQLite

	// The rest needs Options.Terms.

	// Current means that Node, Addr, Term and Since are of the term that goes on. It is false while a takeover or a
	// release is under way, but for the TakeoverDelay of a term that has begun.
	Current bool
	Addr    string // Options.Addr of the holder
	Term    Term
	Ended   End // the last term of the name that is over
}

// End is how a term has ended. Term and At are zero where a later term has taken their place.
type End struct {
	Term   Term
	Reason EndReason // "" if no term has ended
	At     time.Time // zero if it did not say so itself
}

// View is who leads, as [Leader.Observe] sees it.
type View struct {
	Time    time.Time // when the database had answered, or had not
	Holders []Holder  // by name
	Err     error     // why the database did not answer: then it is not known who leads, and no Holder is Held
}

// Holder asks the database who has the lock of name. It blocks until the session, which it opens if need be, has the answer,
// or returns an error that wraps ctx.Err() when ctx ends. Calls made at the same time are answered by one statement.
func (l *Leader) Holder(ctx context.Context, name string) (Holder, error) {
	holders, err := l.Holders(ctx, name)
	if err != nil {
		return Holder{}, err
	}
	return holders[0], nil
}

// Holders is [Leader.Holder] for several names, in their order. Without names, which needs Options.Terms, it is for all that
// leader_terms has of the namespace, sorted.
func (l *Leader) Holders(ctx context.Context, names ...string) ([]Holder, error) {
	for _, name := range names {
		if err := validText("the name", name, 1024); err != nil {
			return nil, err
		}
	}
	if len(names) == 0 && l.store == nil {
		return nil, errors.New("leader: holders of all names: without Options.Terms there is no table of them: give the names")
	}
	a := &ask{names: names, reply: make(chan answer, 1)}
	l.mu.Lock()
	if err := l.openLocked(); err != nil {
		l.mu.Unlock()
		return nil, err
	}
	l.asks = append(l.asks, a)
	l.startLoopLocked() //nolint:contextcheck // the loop outlives the call
	l.mu.Unlock()
	select {
	case r := <-a.reply:
		return l.holdersOf(ctx, a, r)
	case <-ctx.Done():
		ended := ctx.Err() // a method of the caller's: not under mu
		l.mu.Lock()
		defer l.mu.Unlock()
		a.gone = true
		l.asks = slices.DeleteFunc(l.asks, func(other *ask) bool { return other == a })
		l.poke()
		return nil, notAnswered("holder of", strings.Join(names, ", "), ended, l.err)
	}
}

// holdersOf makes the result of an answer, with terms if it has none because the session does not read them.
func (l *Leader) holdersOf(ctx context.Context, a *ask, r answer) ([]Holder, error) {
	rows, err := r.rows, r.err
	if err == nil && l.store != nil && rows == nil {
		rows, err = l.store.read(ctx, r.site, a.keys(r.site.namespace))
		if err == nil && len(a.names) == 0 && len(rows) > 0 { // now that the names are known
			for _, row := range rows {
				a.names = append(a.names, row.name)
			}
			slices.Sort(a.names)
			return l.Holders(ctx, a.names...)
		}
	}
	switch {
	case errors.Is(err, ErrResigned) || errors.Is(err, ErrUnsupported):
		return nil, err
	case err != nil:
		return nil, &askError{strings.Join(a.names, ", "), err}
	}
	names := a.names
	if len(names) == 0 {
		for _, row := range rows {
			names = append(names, row.name)
		}
		slices.Sort(names)
	}
	holders := make([]Holder, len(names))
	for i, name := range names {
		key := Key(r.site.namespace, name)
		holders[i] = r.holders[key]
		holders[i].Name = name
		if row, ok := rows[key]; ok {
			holders[i].add(row)
		}
	}
	return holders, nil
}

// add adds what the table says. Its row is that of the holder only if the holder's session wrote it: between the lock and
// the term it is still that of the last one.
func (h *Holder) add(row termRow) {
	switch {
	case !row.released.IsZero():
		h.Ended = End{Term: row.term, Reason: row.ended, At: row.released}
	case h.Held && h.PID == row.pid && strings.HasPrefix(row.node, h.Node):
		h.Current, h.Node, h.Addr, h.Term, h.Since = true, row.node, row.addr, row.term, row.taken
		h.Ended.Reason = row.ended
	default:
		h.Ended = End{Term: row.term, Reason: EndDied}
	}
}

// Observe calls view with who leads names, or without names, which needs Options.Terms, all that leader_terms has: first with what is, then after each
// change, until ctx ends, and returns ctx.Err(), or [ErrResigned] after Resign. It is no candidate for them. It asks every
// Options.Retry, with one statement or two for all names; when the database does not answer for Options.Lease, view gets
// to know that nothing is known. It calls view in its own goroutine, which may take its time.
func (l *Leader) Observe(ctx context.Context, view func(View), names ...string) error {
	var last View
	for first := true; ; first = false {
		v, err := l.view(ctx, last, names)
		if err != nil {
			return err
		}
		if first || !slices.Equal(v.Holders, last.Holders) || (v.Err == nil) != (last.Err == nil) {
			view(v)
		}
		last = v
		pause := time.NewTimer(jitter(l.opts.Retry))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
	}
}

// view asks once. Its error is for the caller of Observe.
func (l *Leader) view(ctx context.Context, last View, names []string) (View, error) {
	asked, cancel := context.WithTimeout(ctx, l.opts.Lease)
	holders, err := l.Holders(asked, names...)
	late := asked.Err() != nil
	cancel()
	switch {
	case ctx.Err() != nil:
		return View{}, ctx.Err()
	case err == nil:
		return View{Time: time.Now(), Holders: holders}, nil
	case !late && !transient(err):
		return View{}, err
	case !late && last.Err == nil && time.Since(last.Time) < l.opts.Lease: // also the zero time is too long ago
		return last, nil
	}
	known := make(map[string]struct{})
	for _, h := range last.Holders {
		known[h.Name] = struct{}{}
	}
	for _, name := range names {
		known[name] = struct{}{}
	}
	v := View{Time: time.Now(), Err: err}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		v.Holders = append(v.Holders, Holder{Name: name})
	}
	return v, nil
}

// transient reports whether a later question may be answered.
func transient(err error) bool {
	var asked *askError
	return errors.As(err, &asked)
}

// askError is what a session said to a question.
type askError struct {
	name string
	err  error
}

func (e *askError) Error() string {
	if e.name == "" {
		return fmt.Sprintf("leader: holders: %v", e.err)
	}
	return fmt.Sprintf("leader: holder of %q: %v", e.name, e.err)
}
func (e *askError) Unwrap() error { return e.err }
