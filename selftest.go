// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// setUpTimeout bounds the statements of setting a session up, without those to a pooler.
const setUpTimeout = 10 * time.Second

// oldest is the oldest major version of the server that will do.
const oldest = 13

// setUp makes the session ready and tests that a lock on it is a lock. dial opens a second connection.
func (s *pgSession) setUp(ctx context.Context, dial func(context.Context) (*pgSession, error)) error {
	own, cancel := context.WithTimeout(ctx, setUpTimeout/2)
	version, err := s.meet(own)
	cancel()
	if err == nil && s.conn.PgConn().PID() != s.info.pid { // the first is of the start-up message
		err = s.affinity(ctx, dial)
		s.pooled = err == nil
	}
	own, cancel = context.WithTimeout(ctx, setUpTimeout/2)
	defer cancel()
	if err == nil && s.pooled {
		err = s.tidy(own)
	}
	if err == nil {
		err = s.furnish(own, version)
	}
	if err != nil {
		return incapable(err)
	}
	if s.opts.Terms {
		if err := s.readyTerms(own); err != nil {
			return err // whatever is wrong with the table can be mended while Run waits
		}
	}
	return incapable(s.testLock(own))
}

// incapable tells errors of a server that lacks what is needed from those that pass.
func incapable(err error) error {
	if errors.Is(err, ErrUnsupported) {
		return err
	}
	if code := sqlState(err); strings.HasPrefix(code, "0A") || strings.HasPrefix(code, "42") && code != insufficientPrivilege {
		return fmt.Errorf("%w: the server lacks what session locks need: keep them in a PostgreSQL database: %w", ErrUnsupported, err)
	}
	return err
}

// meet finds out who has answered, with statements that leave nothing behind.
func (s *pgSession) meet(ctx context.Context) (version int, err error) {
	var text string
	var pid int64 // a look-alike's may be any number
	if err := s.conn.QueryRow(ctx, sqlWho).Scan(&text, &pid); err != nil {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("connected, and no answer (from a pooler whose pool is full?): %w", err)
		}
		return 0, err
	}
	if err := s.recognize(text); err != nil {
		return 0, err
	}
	s.info.pid = uint32(pid)
	var recovery bool
	var readOnly, database string
	if err := s.conn.QueryRow(ctx, sqlWhere).Scan(&recovery, &readOnly, &version, &database, &s.schema); err != nil {
		return 0, err
	}
	s.info.place = database + "@" + s.address
	if version < oldest*10000 {
		return 0, tooOld(text)
	}
	if recovery || readOnly != "off" {
		return 0, unusable(recovery)
	}
	return version, nil
}

// recognize knows look-alikes by what their version() says.
func (s *pgSession) recognize(version string) error {
	found := ""
	switch {
	case strings.Contains(version, "CockroachDB"):
		found = "CockroachDB, whose advisory locks do nothing"
	case strings.Contains(version, "Redshift"):
		found = "Amazon Redshift, which has no advisory locks"
	case regexp.MustCompile(`\.dsql[a-z0-9-]*\.[a-z0-9-]+\.on\.aws$`).MatchString(s.host): // its version says nothing else
		found = "Amazon Aurora DSQL, which has no advisory locks"
	case strings.Contains(version, "-YB-"):
		s.info.warning = fmt.Errorf("the server is YugabyteDB (%.60s), with which this is not tested: its advisory locks are not those of PostgreSQL", version)
	}
	if found != "" {
		return fmt.Errorf("%w: the server is %s (%.60s): keep the locks in a PostgreSQL database", ErrUnsupported, found, version)
	}
	if m := regexp.MustCompile(`^PostgreSQL (\d+)`).FindStringSubmatch(version); m != nil {
		if major, err := strconv.Atoi(m[1]); err == nil && major < oldest {
			return tooOld(version)
		}
	}
	return nil
}

func tooOld(version string) error {
	return fmt.Errorf("%w: the server is %.60s: PostgreSQL %d is the oldest that will do", ErrUnsupported, version, oldest)
}

// unusable says why a server that answers cannot be used now.
func unusable(recovery bool) error {
	if recovery {
		return errors.New("the server is a standby, in recovery: it would grant locks that the primary knows nothing of")
	}
	return errors.New("the session is read-only (default_transaction_read_only of the server, the database or the role)")
}

// tidy takes away what the last client may have left in the session of the server that a pooler lends us. Where it resets
// nothing, a Leader that was killed leaves its prepared statements, which have the names of ours, its locks, which we would hold
// twice, and its search_path, which would tell our namespace.
func (s *pgSession) tidy(ctx context.Context) error {
	const sql = `DEALLOCATE ALL; SELECT CASE WHEN pg_catalog.int4eq(pg_catalog.pg_backend_pid(), %d) THEN pg_catalog.pg_advisory_unlock_all() END`
	if _, err := s.conn.Exec(ctx, fmt.Sprintf(sql, int32(s.info.pid))); err != nil {
		return err
	}
	if s.schema == nil || *s.schema != "pg_catalog" {
		return nil // as the user, or the pooler, has set it
	}
	if _, err := s.conn.Exec(ctx, "RESET search_path"); err != nil {
		return err
	}
	return s.conn.QueryRow(ctx, `SELECT pg_catalog.current_schema()::pg_catalog.text`).Scan(&s.schema)
}

// furnish makes the settings, and listens.
func (s *pgSession) furnish(ctx context.Context, version int) error {
	s.info.namespace = s.opts.Namespace
	switch {
	case s.info.namespace != "":
	case s.schema == nil:
		return fmt.Errorf("%w: this role has no current schema to take the namespace from: set Options.Namespace", ErrUnsupported)
	default:
		s.info.namespace = *s.schema
	}
	names, values := make([]string, 0, 10), make([]string, 0, 10)
	for _, setting := range s.settings(version) {
		names, values = append(names, setting[0]), append(values, setting[1])
	}
	if err := s.set(ctx, names, values); err != nil {
		return err
	}
	if version >= 140000 {
		// Some platforms refuse it: the server then notices a dead client between two statements only.
		check := strconv.FormatInt(s.opts.Check.Milliseconds(), 10)
		if err := s.set(ctx, []string{"client_connection_check_interval"}, []string{check}); s.conn.IsClosed() {
			return err
		}
	}
	s.channel = fmt.Sprintf("leader_%016x", uint64(Key(s.info.namespace, "")))
	_, err := s.conn.Exec(ctx, "LISTEN "+s.channel)
	return err
}

// settings are made by SET, never as start-up parameters, which some poolers refuse. No keepalive ends the session before
// SessionTimeout: that would free its locks.
func (s *pgSession) settings(version int) [][2]string {
	ms := func(d time.Duration) string {
		return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
	}
	timeout := s.opts.SessionTimeout
	seconds := func(d time.Duration) int64 { return int64(max((d+time.Second-1)/time.Second, 1)) }
	// Between two probes Linux does not look whether tcp_user_timeout is over, so they are close. It allows 127 of
	// them, and no first one after more than 32,767 s.
	idle, interval := min(seconds(timeout/2), 32767), seconds(timeout/200)
	count := max((seconds(timeout)-idle+interval-1)/interval, 1)
	settings := [][2]string{
		{"search_path", "pg_catalog, pg_temp"}, // nobody's functions but the server's
		{"statement_timeout", ms(s.opts.Lease)},
		{"lock_timeout", "200"},
		{"idle_in_transaction_session_timeout", ms(timeout)},
		{"synchronous_commit", "off"},
		{"jit", "off"}, // where a role has it for all statements, each of ours took 0.1 s and more to compile
		{"tcp_keepalives_idle", strconv.FormatInt(idle, 10)},
		{"tcp_keepalives_interval", strconv.FormatInt(interval, 10)},
		{"tcp_keepalives_count", strconv.FormatInt(count, 10)},
		{"tcp_user_timeout", ms(timeout)}, // unanswered data, as a notification, switches keepalives off
	}
	if version >= 140000 {
		settings = append(settings, [2]string{"idle_session_timeout", ms(timeout)})
	}
	return settings
}

// testLock takes a lock that nobody else knows of, looks for it, and gives it back.
func (s *pgSession) testLock(ctx context.Context) error {
	key := rand.Int64()
	var got, gone bool
	var n int
	s.info.proved = s.clock.read()
	if err := s.conn.QueryRow(ctx, `SELECT pg_catalog.pg_try_advisory_lock($1)`, key).Scan(&got); err != nil {
		return err
	}
	if err := s.conn.QueryRow(ctx, `SELECT pg_catalog.count(*)`+sqlOurs+` AND `+sqlKey+` = $1`, key).Scan(&n); err != nil {
		return err
	}
	if err := s.conn.QueryRow(ctx, `SELECT pg_catalog.pg_advisory_unlock($1)`, key).Scan(&gone); err != nil {
		return err
	}
	if !got || n != 1 || !gone {
		return fmt.Errorf("%w: a lock that was taken here is not held here (taken %t, seen %d times, given back %t): connect to the server itself, or through a pooler in session mode", ErrUnsupported, got, n, gone)
	}
	return nil
}
