// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"lukechampine.com/blake3"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// foreignHash is the hash of docs/protocol.md, made without the library's own code.
func foreignHash(text string) int64 {
	sum := blake3.Sum256([]byte(text))
	return int64(binary.LittleEndian.Uint64(sum[:8]))
}

func foreignFence(key int64) int64 {
	return foreignHash("leader v1 fence\x00" + string(binary.LittleEndian.AppendUint64(nil, uint64(key))))
}

func TestDocsFenceVectors(t *testing.T) {
	page := docFiles(t)["docs/protocol.md"]
	rows := regexp.MustCompile(`(?m)^\| (-?\d+) \| (-?\d+) \|$`).FindAllStringSubmatch(page, -1)
	require.Len(t, rows, 3)
	for _, row := range rows {
		key, err := strconv.ParseInt(row[1], 10, 64)
		require.NoError(t, err)
		assert.Equal(t, row[2], strconv.FormatInt(foreignFence(key), 10), row[0])
	}
	assert.Contains(t, page, fmt.Sprint(foreignHash("leader v1 table\x00public")))
	assert.Contains(t, page, fmt.Sprintf("leader_%016x", uint64(foreignHash("leader v1\x00public\x00"))))
	assert.Contains(t, page, fmt.Sprint(leader.Key("tenant_7", "e\u0301")))
}

// foreign takes part with the statements of docs/protocol.md and nothing else.
type foreign struct {
	t     *testing.T
	key   int64
	locks *pgx.Conn // the session of the lock
	table *pgx.Conn // that of the terms, and of what is written

	settings, try, prove, unlock, notify, last, fenceLock, bump, insert, fence, mark string
}

func newForeign(t *testing.T, url string) *foreign {
	t.Helper()
	blocks := sqlBlock.FindAllStringSubmatch(docFiles(t)["docs/protocol.md"], -1)
	require.Len(t, blocks, 11)
	f := &foreign{t: t, key: foreignHash("leader v1\x00public\x00mail"), locks: pgtest.Connect(t, url), table: pgtest.Connect(t, url)}
	for i, sql := range []*string{&f.settings, &f.try, &f.prove, &f.unlock, &f.notify, &f.last, &f.fenceLock, &f.bump, &f.insert, &f.fence, &f.mark} {
		*sql = blocks[i][1]
	}
	_, err := f.locks.Exec(t.Context(), f.settings, "10000")
	require.NoError(t, err)
	return f
}

// get tries for the lock, and proves it.
func (f *foreign) get() (got bool) {
	f.t.Helper()
	require.NoError(f.t, f.locks.QueryRow(f.t.Context(), f.try, f.key).Scan(&got))
	var pid uint32
	var recovery, held bool
	var readOnly string
	require.NoError(f.t, f.locks.QueryRow(f.t.Context(), f.prove, f.key).Scan(&pid, &recovery, &readOnly, &held))
	assert.Equal(f.t, f.locks.PgConn().PID(), pid)
	assert.False(f.t, recovery)
	assert.Equal(f.t, "off", readOnly)
	assert.Equal(f.t, got, held)
	return got
}

// give gives the lock back, and tells of it.
func (f *foreign) give() {
	f.t.Helper()
	var given bool
	require.NoError(f.t, f.locks.QueryRow(f.t.Context(), f.unlock, f.key).Scan(&given))
	require.True(f.t, given)
	channel := fmt.Sprintf("leader_%016x", uint64(foreignHash("leader v1\x00public\x00")))
	_, err := f.locks.Exec(f.t.Context(), f.notify, channel, fmt.Sprintf("%016x", uint64(f.key)))
	require.NoError(f.t, err)
}

// read reads the last term; 0 if there is none.
func (f *foreign) read() (last int64) {
	f.t.Helper()
	err := f.locks.QueryRow(f.t.Context(), f.last, f.key).Scan(&last)
	if !errors.Is(err, pgx.ErrNoRows) {
		require.NoError(f.t, err)
	}
	return last
}

// begin begins a term after last, and returns 0 if the row is not what was read any more.
func (f *foreign) begin(last int64) (term int64) {
	f.t.Helper()
	err := pgx.BeginFunc(f.t.Context(), f.table, func(tx pgx.Tx) error {
		if _, err := tx.Exec(f.t.Context(), f.fenceLock, foreignFence(f.key)); err != nil {
			return err
		}
		pid := int64(f.locks.PgConn().PID())
		if last == 0 {
			return tx.QueryRow(f.t.Context(), f.insert, f.key, "public", "mail", "py", "", pid).Scan(&term)
		}
		return tx.QueryRow(f.t.Context(), f.bump, f.key, last, "py", "", pid).Scan(&term)
	})
	if !errors.Is(err, pgx.ErrNoRows) {
		require.NoError(f.t, err)
	}
	return term
}

// TestPostgresProtocol has a Leader and a process of docs/protocol.md take turns, with terms and fences.
func TestPostgresProtocol(t *testing.T) {
	url := pgtest.URL(t)
	pgtest.Exec(t, url, leader.TermsSQL)
	f := newForeign(t, url)
	require.True(t, f.get())
	first := f.begin(f.read())
	require.NotZero(t, first)

	lead, err := leader.New(leader.Postgres(url), leader.Options{Namespace: "public", Terms: true, Retry: 30 * time.Second, TakeoverDelay: time.Minute, Node: "go"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, lead.Resign(context.Background())) })
	terms, fenced := make(chan leader.Term), make(chan error)
	go func() { // until Resign
		_ = lead.Run(context.Background(), "mail", func(ctx context.Context) error {
			term, _ := leader.TermOf(ctx)
			terms <- term
			tx, err := f.table.Begin(ctx)
			if err == nil {
				err = leader.FenceShared(ctx, tx)
			}
			fenced <- err
			<-ctx.Done()
			return nil
		})
	}()
	dbWithin(t, dbPatience, "the Leader contends", func() bool {
		tasks := lead.Status().Tasks
		return len(tasks) == 1 && tasks[0].State == leader.StateContending
	})
	holder, err := lead.Holder(t.Context(), "mail")
	require.NoError(t, err)
	assert.True(t, holder.Held)
	assert.True(t, holder.Current, "the row is of the session that has the lock")
	assert.EqualValues(t, first, holder.Term)

	// The fence of the last leader is in force when its lock is gone. An end that is marked lets Go begin at once.
	done, err := f.table.Exec(t.Context(), f.mark, f.key, first)
	require.NoError(t, err)
	assert.EqualValues(t, 1, done.RowsAffected())
	write, err := f.table.Begin(t.Context())
	require.NoError(t, err)
	var current int64
	require.NoError(t, write.QueryRow(t.Context(), f.fence, f.key).Scan(&current))
	assert.Equal(t, first, current)
	f.give()
	dbWithin(t, 5*time.Second, "the takeover waits for the fence of the other side", func() bool {
		tasks := lead.Status().Tasks
		return tasks[0].State == leader.StateTakeover && tasks[0].Blocker.PID == f.table.PgConn().PID()
	})
	require.NoError(t, write.Commit(t.Context()))
	var second leader.Term
	select {
	case second = <-terms:
	case <-time.After(dbPatience):
		require.Fail(t, "Go does not lead", "%+v", lead.Status())
	}
	assert.Greater(t, int64(second), first)
	require.NoError(t, <-fenced)
	require.NoError(t, f.table.QueryRow(t.Context(), f.fence, f.key).Scan(&current))
	assert.EqualValues(t, second, current, "a write of the first term is refused")
	free := func() (got bool) {
		require.NoError(t, f.locks.QueryRow(t.Context(), "SELECT pg_try_advisory_xact_lock($1)", foreignFence(f.key)).Scan(&got))
		return got
	}
	assert.False(t, free(), "Go's shared fence is the lock of the page")
	_, err = f.table.Exec(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	assert.True(t, free())

	assert.False(t, f.get(), "Go has the lock")
	assert.Zero(t, f.begin(first), "a late bump changes nothing")
	require.NoError(t, lead.Resign(t.Context()))
	require.True(t, f.get())
	third := f.begin(f.read())
	assert.Greater(t, third, int64(second))
	f.give()
}
