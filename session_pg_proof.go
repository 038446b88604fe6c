// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// dearCount is from when on counting locks is worth doing less often, and mostCount how often it is done at least.
const dearCount, mostCount = 5 * time.Millisecond, 30 * time.Second

const (
	sqlAlive = `SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only'),
		ARRAY(SELECT pg_catalog.current_setting(n) FROM pg_catalog.unnest($1::pg_catalog.text[]) AS n),
		ARRAY(SELECT pg_catalog.pg_listening_channels()), `
	sqlTook  = `, extract(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.statement_timestamp())::pg_catalog.float8`
	sqlProve = sqlAlive + `(SELECT pg_catalog.count(*)` + sqlOurs + `)` + sqlTook
	sqlCheap = sqlAlive + `-1::pg_catalog.int8` + sqlTook
	sqlHeld  = `SELECT pg_catalog.pg_backend_pid(), ARRAY(SELECT ` + sqlKey + sqlOurs + `)`
)

// set makes settings, and remembers what the server made of them, for the proofs to compare.
func (s *pgSession) set(ctx context.Context, names, values []string) error {
	rows, err := s.conn.Query(ctx, sqlSet, names, values)
	if err != nil {
		return err
	}
	made, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	s.names, s.values = append(s.names, names...), append(s.values, made...)
	return nil
}

// countingDue reports whether a proof is to count our locks. Counting reads the lock table of the whole cluster: where that is
// large, it is done so often that it takes at most a part in 400 of the time. A session that should hold nothing has nothing to
// lose, and looks now and then for what nobody asked for.
func (s *pgSession) countingDue() bool {
	switch since := time.Since(s.counted); {
	case len(s.held) == 0:
		return since >= mostCount
	case s.dear > dearCount:
		return since >= min(400*s.dear, mostCount)
	}
	return true
}

// prove asks the server for our own process and its settings, and counts our locks if that is due.
func (s *pgSession) prove() (lost []int64, err error) {
	sql, counting := sqlProve, s.countingDue()
	if !counting {
		sql = sqlCheap
	}
	var now vitals
	began := time.Now()
	if err := s.conn.QueryRow(context.Background(), sql, s.mode(), s.names).Scan(&now.pid, &now.recovery, &now.readOnly, &now.values, &now.channels, &now.locks, &now.took); err != nil {
		return nil, s.orOver(err)
	}
	s.quick = time.Since(began) < oneGo
	if err := s.changed(now); err != nil {
		return nil, &sessionError{err: err}
	}
	lost, s.gone = s.gone, nil
	if !counting {
		return lost, nil
	}
	s.counted = time.Now()
	cost := time.Duration(now.took * float64(time.Second))
	s.dear, s.took = min(cost, s.took), cost
	believed := len(s.held)
	if now.locks == believed {
		return lost, nil
	}
	missing, err := s.reconcile()
	if err == nil && len(missing) > 0 && len(s.held) == 0 {
		// Whoever takes every lock may have done more to the session.
		err = &sessionError{err: fmt.Errorf("%w: none of %d, as after DISCARD ALL or pg_advisory_unlock_all on it", errLockGone, believed)}
	}
	return append(lost, missing...), err
}

// vitals is what a proof asks.
type vitals struct {
	pid      uint32
	recovery bool
	readOnly string
	values   []string // of the settings that we made
	channels []string // that the session listens to
	locks    int
	took     float64 // the server's time: that of a slow network says nothing about the lock table
}

// changed tells why the session is not any more what it was when it was set up. One that has lost its settings is given up also
// if it has all its locks: nothing would free them when this host dies.
func (s *pgSession) changed(now vitals) error {
	switch {
	case now.pid != s.info.pid:
		return fmt.Errorf("%w (%d instead of %d)", errMoved, now.pid, s.info.pid)
	case now.recovery || now.readOnly != "off":
		return unusable(now.recovery)
	}
	for i, name := range s.names {
		if i >= len(now.values) || now.values[i] != s.values[i] {
			return fmt.Errorf("the setting %s of the session is not %q any more, as after DISCARD ALL, RESET ALL or SET on it", name, s.values[i])
		}
	}
	if !slices.Contains(now.channels, s.channel) {
		return fmt.Errorf("the session does not listen to %s any more, as after DISCARD ALL or UNLISTEN on it", s.channel)
	}
	return nil
}

// reconcile compares the locks that we hold with those that we believe to hold. It forgets and returns those that are
// missing, and gives back those that nobody asked for.
func (s *pgSession) reconcile() (missing []int64, err error) {
	var pid uint32
	var keys []int64
	if err := s.conn.QueryRow(context.Background(), sqlHeld).Scan(&pid, &keys); err != nil {
		return nil, s.orOver(err)
	}
	if pid != s.info.pid { // what another process holds may be what another of us leads by
		return nil, s.orOver(errMoved)
	}
	have := make(map[int64]struct{}, len(keys))
	var extra []int64
	for _, key := range keys {
		have[key] = struct{}{}
		if _, ok := s.held[key]; !ok {
			extra = append(extra, key)
		}
	}
	for key := range s.held {
		if _, ok := have[key]; !ok {
			delete(s.held, key)
			missing = append(missing, key)
		}
	}
	for len(extra) > 0 { // a lock can be held several times over
		gone, err := s.each(sqlUnlock, extra, false)
		if err != nil {
			return missing, s.orOver(err)
		}
		extra = slices.DeleteFunc(extra, func(key int64) bool { return slices.Contains(gone, key) })
	}
	return missing, nil
}
