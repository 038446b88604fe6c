// SPDX-License-Identifier: MIT

package leader

import (
	"maps"
	"slices"
)

// ask is a question for the holders of locks.
type ask struct {
	names []string    // none: of all that have terms
	reply chan answer // buffer 1
	gone  bool        // nobody waits for the answer
}

func (a *ask) keys(namespace string) []int64 {
	var keys []int64
	for _, name := range a.names {
		keys = append(keys, Key(namespace, name))
	}
	return keys
}

type answer struct {
	holders map[int64]Holder
	rows    map[int64]termRow // nil if the session does not read them
	site    termSite
	err     error
}

// askLocked asks for the holders of all names that were asked for.
func (l *Leader) askLocked() {
	asks, site, reads := l.asks, l.site, l.store != nil && l.current.info.reads
	l.asks, l.asked = nil, asks
	w := l.current
	var keys []int64
	all := false
	for _, a := range asks {
		keys = append(keys, a.keys(site.namespace)...)
		all = all || len(a.names) == 0
	}
	var told answer
	l.orderLocked(func(session) (err error) {
		told, err = askSession(w, keys, all, reads)
		return err
	}, func(err error) {
		l.asked = nil
		told.site, told.err = site, err
		for _, a := range asks {
			a.reply <- told
		}
	})
}

// askSession reads terms first, as they have the names where none were given.
func askSession(w *worker, keys []int64, all, reads bool) (told answer, err error) {
	s := w.session
	if reads {
		wanted := keys
		if all {
			wanted = nil
		}
		if told.rows, err = s.terms(wanted); err != nil {
			return told, err
		}
		if all {
			keys = slices.AppendSeq(keys, maps.Keys(told.rows))
		}
		if w.givenUp() { // the next session is asked again
			return told, nil
		}
	}
	told.holders, err = s.holders(keys)
	return told, err
}

// askAgainLocked puts the questions back that a lost session was asked.
func (l *Leader) askAgainLocked() {
	for _, a := range l.asked {
		if !a.gone {
			l.asks = append(l.asks, a)
		}
	}
	l.asked = nil
	if l.resigned {
		l.failAsksLocked(ErrResigned)
	}
}

func (l *Leader) failAsksLocked(err error) {
	for _, a := range l.asks {
		a.reply <- answer{err: err}
	}
	l.asks = nil
}
