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
	sqlAlive = `SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only'), `
	sqlTook  = `, extract(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.statement_timestamp())::pg_catalog.float8`
	sqlProve = sqlAlive + `(SELECT pg_catalog.count(*)` + sqlOurs + `)` + sqlTook
	sqlCheap = sqlAlive + `-1::pg_catalog.int8` + sqlTook
	sqlHeld  = `SELECT ` + sqlKey + sqlOurs
)

// prove asks the server for our own process and counts our locks. Counting reads the lock table of the whole cluster: where that
// is large, it is done so often that it takes at most a part in 400 of the time.
func (s *pgSession) prove() (lost []int64, err error) {
	sql, counting := sqlProve, true
	if s.dear > dearCount && time.Since(s.counted) < min(400*s.dear, mostCount) {
		sql, counting = sqlCheap, false
	}
	var pid uint32
	var recovery bool
	var readOnly string
	var n int
	var took float64 // the server's time: that of a slow network says nothing about the lock table
	if err := s.conn.QueryRow(context.Background(), sql).Scan(&pid, &recovery, &readOnly, &n, &took); err != nil {
		return nil, s.orOver(err)
	}
	switch {
	case pid != s.info.pid:
		return nil, &sessionError{err: fmt.Errorf("server process %d answered instead of %d: there is a pooler in between that is not in session mode", pid, s.info.pid)}
	case recovery || readOnly != "off":
		return nil, &sessionError{err: unusable(recovery)}
	}
	lost, s.gone = s.gone, nil
	if !counting {
		return lost, nil
	}
	s.counted = time.Now()
	cost := time.Duration(took * float64(time.Second))
	s.dear, s.took = min(cost, s.took), cost
	if n != len(s.held) {
		missing, err := s.reconcile()
		return append(lost, missing...), err
	}
	return lost, nil
}

// reconcile compares the locks that we hold with those that we believe to hold. It forgets and returns those that are
// missing, and gives back those that nobody asked for.
func (s *pgSession) reconcile() (missing []int64, err error) {
	rows, err := s.conn.Query(context.Background(), sqlHeld)
	if err != nil {
		return nil, s.orOver(err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, s.orOver(err)
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
