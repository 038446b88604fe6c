// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

const (
	// affinityTimeout bounds the test of a pooler, without the dial: a wait for a server connection, then for the
	// notifications, then for cleaning up, and a little for the other statements.
	affinityTimeout = slotTimeout + notifyTries*notifyTimeout + unlistenTimeout + 5*time.Second
	// slotTimeout is how long a pooler may keep the second connection waiting for one of its own to the server.
	slotTimeout = 5 * time.Second
	// notifyTimeout is how long a notification may take, and notifyTries how many may be lost.
	notifyTimeout, notifyTries = 2 * time.Second, 3
	// unlistenTimeout is how long to look for the server process that listens for us and is not ours.
	unlistenTimeout = 2 * time.Second
)

// affinity tests that the pooler in between leaves one server process to this connection alone, until its end. It comes before
// any setting, LISTEN that is wanted, or lock, all of which would otherwise be left to the pooler's other clients. What it
// cannot find out is an error to try again after, never a pass.
func (s *pgSession) affinity(ctx context.Context, dial func(context.Context) (*pgSession, error)) error {
	if err := s.stays(ctx, 20); err != nil {
		return err
	}
	other, err := dial(ctx)
	if err != nil {
		return fmt.Errorf("a second connection, to test the pooler with: %w", err)
	}
	defer other.close() //nolint:contextcheck // also after ctx has ended
	if err := s.apart(ctx, other); err != nil {
		return err
	}
	if err := s.together(ctx, other); err != nil {
		return err
	}
	return s.attached(ctx, other)
}

// affinityError is for a pooler that was caught.
func affinityError(caught string, args ...any) error {
	return fmt.Errorf("%w: there is a pooler in between that is not in session mode (%s): use a pool in session mode, or connect to the server itself",
		ErrUnsupported, fmt.Sprintf(caught, args...))
}

// stays reads the server's process n times, which must not change.
func (s *pgSession) stays(ctx context.Context, n int) error {
	for range n {
		pid, err := s.backend(ctx)
		if err != nil {
			return err
		}
		if pid != s.info.pid {
			return affinityError("server process %d answered, and then %d", s.info.pid, pid)
		}
	}
	return nil
}

// backend asks which process of the server answers.
func (s *pgSession) backend(ctx context.Context) (pid uint32, err error) {
	err = s.conn.QueryRow(ctx, `SELECT pg_catalog.pg_backend_pid()`).Scan(&pid)
	return pid, err
}

// apart tests that a transaction of another client runs elsewhere, and drives this one nowhere.
func (s *pgSession) apart(ctx context.Context, other *pgSession) error {
	slot, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	if _, err := other.backend(slot); err != nil {
		return fmt.Errorf("the pooler gave no server connection to a second client within %v (its pool must have room for one more than there are processes): %w", slotTimeout, err)
	}
	if _, err := other.conn.Exec(ctx, "BEGIN READ ONLY"); err != nil {
		// The driver tells of the end of the connection that follows.
		// Its code, 08P01, is also that of a server connection that crashed: only the text tells.
		if said := other.spoken; said != nil && strings.Contains(said.Message, "statement pooling") {
			return affinityError("it takes no transactions: %s", said.Message)
		}
		return err
	}
	pid, err := other.backend(ctx)
	switch {
	case err != nil:
	case pid == s.info.pid:
		err = affinityError("server process %d serves another client at the same time", pid)
	default:
		err = s.stays(ctx, 5)
	}
	if _, rollbackErr := other.conn.Exec(ctx, "ROLLBACK"); err == nil {
		err = rollbackErr
	}
	return err
}

// together tests that the other connection leads to the same server. There may be several hosts, a balancer, or a failover.
func (s *pgSession) together(ctx context.Context, other *pgSession) error {
	const sql = `SELECT pg_catalog.pg_postmaster_start_time()::pg_catalog.text`
	var ours, theirs string
	if err := s.conn.QueryRow(ctx, sql).Scan(&ours); err != nil {
		return err
	}
	if err := other.conn.QueryRow(ctx, sql).Scan(&theirs); err != nil {
		return err
	}
	if ours != theirs {
		return errors.New("a second connection, to test the pooler with, led to another server, or to one that has been restarted")
	}
	return nil
}

// attached tests that what the server says between two statements arrives here. Where a client has no server process at that
// time, nothing can.
func (s *pgSession) attached(ctx context.Context, other *pgSession) error {
	channel := fmt.Sprintf("leader_test_%016x", rand.Uint64())
	pid, err := s.alone(ctx, "LISTEN "+channel)
	if err != nil {
		return err
	}
	heard := false
	if pid == s.info.pid {
		heard, err = s.hears(ctx, other, channel)
	}
	switch {
	case err != nil:
	case pid != s.info.pid:
		err = affinityError("server process %d answered, and then %d", s.info.pid, pid)
	case !heard:
		err = affinityError("notifications do not arrive")
	}
	if unlistenErr := s.unlisten(ctx, channel, pid); err == nil {
		err = unlistenErr
	}
	return err
}

// hears has other notify channel until it is heard here.
func (s *pgSession) hears(ctx context.Context, other *pgSession, channel string) (bool, error) {
	for range notifyTries {
		// As one statement, so of one server process. Its commit must wait for no standby.
		if _, err := other.alone(ctx, "SET LOCAL synchronous_commit TO off; NOTIFY "+channel); err != nil {
			return false, err
		}
		if heard, err := s.hear(ctx, channel, notifyTimeout); heard || err != nil {
			return heard, err
		}
	}
	// Silence may also be that of the network: only an answer shows that it was not.
	if err := s.stays(ctx, 1); err != nil {
		return false, err
	}
	if late, _ := s.hear(ctx, channel, 0); late {
		return false, fmt.Errorf("a notification took more than %v to come through the pooler", notifyTimeout)
	}
	return false, nil
}

// hear waits for a notification.
func (s *pgSession) hear(ctx context.Context, channel string, d time.Duration) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		n, err := s.conn.WaitForNotification(waiting)
		switch {
		case n != nil && n.Channel == channel:
			return true, nil
		case n != nil:
		case s.conn.IsClosed() || ctx.Err() != nil:
			return false, err
		case waiting.Err() != nil:
			return false, nil
		}
	}
}

// unlisten ends a LISTEN on the server process that has it. If that is not ours it has to be met again.
func (s *pgSession) unlisten(ctx context.Context, channel string, pid uint32) error {
	for end := time.Now().Add(unlistenTimeout); ; {
		met, err := s.alone(ctx, "UNLISTEN "+channel)
		if err != nil || met == pid || time.Now().After(end) {
			return err
		}
	}
}

// alone runs sql as one message and so on one server process, whatever the pooler's mode, and returns which.
func (s *pgSession) alone(ctx context.Context, sql string) (pid uint32, err error) {
	results, err := s.conn.PgConn().Exec(ctx, sql+"; SELECT pg_catalog.pg_backend_pid()").ReadAll()
	if err != nil {
		return 0, err
	}
	if last := results[len(results)-1].Rows; len(last) == 1 && len(last[0]) == 1 {
		n, err := strconv.ParseUint(string(last[0][0]), 10, 32)
		return uint32(n), err
	}
	return 0, errors.New("the server did not tell its process")
}
