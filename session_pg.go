// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// maxBatch is how many keys one statement asks for: beyond what one process runs, so that it stays one statement.
	maxBatch = 10_000
	// maxPayload is how many keys fit into one notification, of at most 8,000 bytes.
	maxPayload = 400
	// noSuchStatement is the SQLSTATE of a prepared statement that is not there.
	noSuchStatement = "26000"
	// byeTimeout bounds the polite end of a session.
	byeTimeout = 500 * time.Millisecond
)

var (
	errMoved     = errors.New("another process of the server answered: there is a pooler in between that is not in session mode")
	errForgotten = errors.New("the server has forgotten a statement that the session has prepared, as after DISCARD ALL or DEALLOCATE ALL on it, " +
		"or behind a pooler that is not in session mode")
)

// All names are qualified: search_path is set only after the first of these statements. Locking functions stand in the target
// list, with no WHERE, LIMIT or CTE beside them: those may evaluate them twice, or for rows that nobody wanted.
const (
	sqlWho   = `SELECT pg_catalog.version(), pg_catalog.pg_backend_pid()`
	sqlWhere = `SELECT pg_catalog.pg_is_in_recovery(),
		pg_catalog.current_setting('transaction_read_only'), pg_catalog.current_setting('server_version_num')::pg_catalog.int4,
		pg_catalog.current_database()::pg_catalog.text, pg_catalog.current_schema()::pg_catalog.text`
	sqlSet = `SELECT pg_catalog.set_config(($1::pg_catalog.text[])[i], ($2::pg_catalog.text[])[i], false)
		FROM pg_catalog.generate_subscripts($1::pg_catalog.text[], 1) AS i`
	// On another process than ours, $2, they do nothing and say null: a pooler's mode can change behind our back.
	sqlTry    = `SELECT k, CASE WHEN ` + sqlHere + ` THEN pg_catalog.pg_try_advisory_lock(k) END` + sqlKeys
	sqlUnlock = `SELECT k, CASE WHEN ` + sqlHere + ` THEN pg_catalog.pg_advisory_unlock(k) END` + sqlKeys
	sqlHere   = `pg_catalog.int4eq(pg_catalog.pg_backend_pid(), $2::pg_catalog.int4)`
	sqlKeys   = ` FROM pg_catalog.unnest($1::pg_catalog.int8[]) AS k`
	sqlTell   = `SELECT pg_catalog.pg_notify($1, p) FROM pg_catalog.unnest($2::pg_catalog.text[]) AS p`

	sqlOurs = ` FROM pg_catalog.pg_locks AS l WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ExclusiveLock'
		AND l.granted AND l.pid = pg_catalog.pg_backend_pid()`
	sqlKey = `((l.classid::pg_catalog.int8 << 32) | l.objid::pg_catalog.int8)`

	sqlHolders = `SELECT ` + sqlKey + `, coalesce(l.pid, 0), coalesce(a.application_name, ''),
		(extract(epoch FROM a.backend_start) * 1000)::pg_catalog.int8
		FROM pg_catalog.pg_locks AS l LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
		WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ExclusiveLock' AND l.granted
		AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
		AND ` + sqlKey + ` = ANY ($1::pg_catalog.int8[])`
)

// pgSession is one connection to a PostgreSQL server, and the advisory locks that its session holds.
type pgSession struct {
	opts  Options
	clock *clock
	wire  *wire
	conn  *pgx.Conn
	info  sessionInfo

	connected atomic.Bool // the driver may not dial any more

	host, address string  // where it has connected to, as people know it
	schema        *string // the current one, if any, before our settings
	pooled        bool    // there is a pooler in between, in session mode

	channel string
	names   []string           // of the settings that were made
	values  []string           // of them, as the server writes them
	held    map[int64]struct{} // the keys that we believe to hold
	pleaded []int64            // those whose holders were asked to hand over, for pleas
	gone    []int64            // those that were found to be lost, and that no proof has told of
	batch   int                // keys per statement: halved when one fails
	counted time.Time          // the last time that the locks were counted
	dear    time.Duration      // what counting takes the server: the less of the last two times
	took    time.Duration      // the last time
	quick   bool               // the last proof was answered soon
	fatal   error              // the server's last words
	spoken  *pgconn.PgError    // the last error of the server, or of a pooler, which may hang up on any
}

func (s *pgSession) about() sessionInfo { return s.info }
func (s *pgSession) sent() reading      { return *s.wire.sentAt.Load() }

func (s *pgSession) try(keys []int64) (held []int64, err error) {
	for batch := range slices.Chunk(keys, s.batch) {
		got, err := s.tryBatch(batch)
		held = append(held, got...)
		if err != nil {
			s.batch = max(1, s.batch/2)
			return held, err
		}
	}
	s.batch = min(maxBatch, 2*s.batch)
	return held, nil
}

func (s *pgSession) tryBatch(keys []int64) (held []int64, err error) {
	got, err := s.each(sqlTry, keys, true)
	if err == nil {
		for _, key := range got {
			s.held[key] = struct{}{}
		}
		s.regained(got)
		return got, nil
	}
	if over := s.over(err); over != nil {
		return nil, over
	}
	// The statement failed half-way, and what it had taken stays taken: keep what was asked for.
	for _, key := range keys {
		s.held[key] = struct{}{}
	}
	missing, lookErr := s.reconcile()
	if lookErr != nil {
		if over, ok := errors.AsType[*sessionError](lookErr); ok {
			return nil, over
		}
		return nil, &sessionError{err: lookErr}
	}
	wanted := make(map[int64]struct{}, len(keys))
	for _, key := range keys {
		wanted[key] = struct{}{}
		if _, ok := s.held[key]; ok {
			held = append(held, key)
		}
	}
	for _, key := range missing {
		if _, ok := wanted[key]; !ok {
			s.gone = append(s.gone, key) // for the next proof to tell
		}
	}
	return held, err
}

// mode has the statements that a session does over and over prepared, which saves the server more than half of the work of
// each: parsing and planning. The first time takes one way to the server and back more. A session that ends before its first
// proof, as between two tries with Options.Disconnect, would have nothing of it, and where answers are slow, the proofs would wait
// for it.
func (s *pgSession) mode() pgx.QueryExecMode {
	if !s.quick {
		return pgx.QueryExecModeExec
	}
	return pgx.QueryExecModeCacheStatement
}

// regained forgets that keys were lost before.
func (s *pgSession) regained(keys []int64) {
	if len(s.gone) > 0 {
		s.gone = slices.DeleteFunc(s.gone, func(key int64) bool { return slices.Contains(keys, key) })
	}
}

// each runs a statement that calls a function for each key, and returns the keys for which it said want.
func (s *pgSession) each(sql string, keys []int64, want bool) ([]int64, error) {
	rows, err := s.conn.Query(context.Background(), sql, s.mode(), keys, int32(s.info.pid))
	if err != nil {
		return nil, err
	}
	var some []int64
	var key int64
	var said pgtype.Bool
	moved := false
	_, err = pgx.ForEachRow(rows, []any{&key, &said}, func() error {
		moved = moved || !said.Valid
		if said.Valid && said.Bool == want {
			some = append(some, key)
		}
		return nil
	})
	if err == nil && moved {
		return nil, errMoved
	}
	return some, err
}

func (s *pgSession) unlock(keys []int64) (missing []int64, err error) {
	for batch := range slices.Chunk(keys, maxBatch) {
		some, err := s.each(sqlUnlock, batch, false)
		if err != nil {
			return missing, s.orOver(err)
		}
		missing = append(missing, some...)
		for _, key := range batch {
			delete(s.held, key)
		}
	}
	return missing, nil
}

// tell notifies. Its commit takes a lock of the whole database, which lock_timeout bounds: a stranger's that waits for a
// standby must cost us no more than the standbys' hurry.
func (s *pgSession) tell(keys []int64) error {
	var payloads []string
	for some := range slices.Chunk(keys, maxPayload) {
		texts := make([]string, len(some))
		for i, key := range some {
			texts[i] = fmt.Sprintf("%016x", uint64(key))
		}
		payloads = append(payloads, strings.Join(texts, ","))
	}
	_, err := s.conn.Exec(context.Background(), sqlTell, s.mode(), s.channel, payloads)
	return s.orOver(err)
}

// wait listens. The notifications of one wake-up are handed on together; our own are not news.
func (s *pgSession) wait(ctx context.Context) ([]int64, error) {
	drained, cancel := context.WithCancel(ctx)
	defer cancel()
	var keys []int64
	for {
		n, err := s.conn.WaitForNotification(drained)
		if n != nil {
			if n.PID != s.info.pid {
				keys = append(keys, parseKeys(n.Payload)...)
				s.pleaded = append(s.pleaded, parsePleas(n.Payload)...)
			}
			if len(keys)+len(s.pleaded) > 0 {
				cancel() // from now on only what has arrived already
			}
			continue
		}
		if over := s.over(err); over != nil {
			return keys, over
		}
		if drained.Err() != nil {
			return keys, nil
		}
	}
}

func (s *pgSession) pleas() []int64 {
	keys := s.pleaded
	s.pleaded = nil
	return keys
}

// parseKeys reads the payload of a notification. What others write into the channel is skipped.
func parseKeys(payload string) []int64 {
	var keys []int64
	for text := range strings.SplitSeq(payload, ",") {
		if raw, err := hex.DecodeString(text); err == nil && len(raw) == 8 {
			key, _ := strconv.ParseUint(text, 16, 64)
			keys = append(keys, int64(key))
		}
	}
	return keys
}

func (s *pgSession) holders(keys []int64) (map[int64]Holder, error) {
	rows, err := s.conn.Query(context.Background(), sqlHolders, keys)
	if err != nil {
		return nil, s.orOver(err)
	}
	holders := make(map[int64]Holder)
	var key int64
	var pid uint32
	var application string
	var since *int64 // ms; hidden from roles without pg_read_all_stats
	_, err = pgx.ForEachRow(rows, []any{&key, &pid, &application, &since}, func() error {
		h := Holder{Held: true, PID: pid}
		if node, ours := strings.CutPrefix(application, applicationPrefix); ours {
			h.Node = node
		}
		if since != nil {
			h.Since = time.UnixMilli(*since)
		}
		holders[key] = h
		return nil
	})
	return holders, s.orOver(err)
}

// close says goodbye, so that the server need not log a broken connection.
func (s *pgSession) close() {
	if s.wire.failure.Load() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), byeTimeout)
		if s.pooled { // which may hand the server's session on as it is: nobody else needs our settings
			_, _ = s.conn.Exec(ctx, "DISCARD ALL")
		}
		_ = s.conn.Close(ctx)
		cancel()
	}
	patience := time.NewTimer(byeTimeout)
	defer patience.Stop()
	for _, done := range []<-chan struct{}{s.wire.end(), s.conn.PgConn().CleanupDone()} {
		select {
		case <-done:
		case <-patience.C: // code of the user hangs
			return
		}
	}
}

func (s *pgSession) kill() { s.wire.end() }

// onPgError remembers the server's last words: the driver would report the end of the connection only.
func (s *pgSession) onPgError(_ *pgconn.PgConn, err *pgconn.PgError) bool {
	s.spoken = err
	if severity := err.SeverityUnlocalized; severity != "FATAL" && severity != "PANIC" {
		return true
	}
	s.fatal = err
	return false
}

// orOver returns err as the session's end if it is, and as it is otherwise.
func (s *pgSession) orOver(err error) error {
	if over := s.over(err); over != nil {
		return over
	}
	return err
}

// over tells whether the session has ended, and whether that was the server's doing. Any error that is not surely the
// server's word or its end of the connection leaves it in doubt.
func (s *pgSession) over(err error) error {
	failure := s.wire.failure.Load()
	switch {
	case s.fatal != nil:
		return &sessionError{err: s.fatal, ended: true}
	case failure != nil:
		over := hungUp(*failure)
		over.cut = !errors.Is(*failure, errGoodbye)
		return over
	case errors.Is(err, errMoved):
		return &sessionError{err: errMoved}
	case sqlState(err) == noSuchStatement:
		return &sessionError{err: fmt.Errorf("%w: %w", errForgotten, err)}
	case err != nil && s.conn.IsClosed():
		return hungUp(err) // as by a close_notify of TLS
	}
	return nil
}

// hungUp is the end of a session whose connection broke. A bare EOF would tell nobody what has ended.
func hungUp(err error) *sessionError {
	if !endOfPeer(err) {
		return &sessionError{err: err}
	}
	err = fmt.Errorf("the server, or something on the way to it, has closed the connection without a word: %w", err)
	return &sessionError{err: err, ended: true}
}
