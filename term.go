// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// Term numbers the leaderships of one name: each is higher than all before it, over releases, crashes, a deleted row and a
// dropped table (docs/guarantees.md, G5). It is what a store, or any other system, can compare to refuse a process that led
// once. It is no count: it also follows the server's clock, in milliseconds.
type Term int64

// ErrFenced is what [Fence] and its kin return, in a [FencedError], when a later term may have begun: roll back.
var ErrFenced = errors.New("leader: fenced")

var (
	errNoTerms   = errors.New("the Leader keeps no terms: set Options.Terms")
	errIsolation = errors.New("FenceShared needs READ COMMITTED, as it must see what was committed before it got its lock: use Fence")
)

// FencedError is an [ErrFenced] with both terms.
type FencedError struct {
	Name    string
	Term    Term  // of the caller
	Current Term  // what the table has; 0 if that is not known, or if there is no row
	Err     error // what told, if not the table: why the lock was lost, or the server's serialization failure
}

func (e *FencedError) Error() string {
	text := fmt.Sprintf("%v: %q is not led under term %d any more", ErrFenced, e.Name, e.Term)
	if e.Current != 0 {
		text += fmt.Sprintf(", but under %d", e.Current)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns ErrFenced and Err.
func (e *FencedError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrFenced}
	}
	return []error{ErrFenced, e.Err}
}

// TermOf returns the term under which the task that ctx was given to was started. It is false without Options.Terms and for a
// context that is not a task's. It never blocks, and says nothing of whether the task leads still: see [Confirm] and [Fence].
func TermOf(ctx context.Context) (Term, bool) {
	g := grantOf(ctx)
	if g == nil || g.term == 0 {
		return 0, false
	}
	return g.term, true
}

// Fence makes tx a transaction of the task that ctx was given to: once it has returned nil, no later term of that name
// begins before tx has ended, and it does not return nil in a later one. So no write of tx commits after a
// successor has begun, even if this process is frozen in between. Otherwise tx must be rolled back: it returns
// [ErrFenced], which wraps [ErrLost] if this process knew already; the error of the database; or one that says that ctx is
// not a task's, that Options.Terms is off, or that the level of isolation will not do. After ErrFenced the task should
// wait for the end of its context, which has come or comes with the next Check, and return: Run contends again then.
//
// Call it first in each transaction that writes, in any isolation level; not in a savepoint that may be rolled back, which would
// undo it. It locks the row of the name in leader_terms, so the fenced transactions of one name run one after another:
// for parallel writers there is [FenceShared]. It blocks like any statement of tx, until ctx ends. A takeover waits
// for tx: keep it short. The role needs SELECT on leader_terms, and UPDATE on one of its columns. See docs/fencing.md.
func Fence(ctx context.Context, tx pgx.Tx) error {
	g, err := fenced(ctx)
	if err != nil {
		return err
	}
	return g.fence(ctx, pgxTx{tx})
}

// FenceSQL is [Fence] for database/sql: the drivers of PostgreSQL, and those of SQLite, where it takes the write lock of the
// database, as BEGIN IMMEDIATE does.
func FenceSQL(ctx context.Context, tx *sql.Tx) error {
	g, err := fenced(ctx)
	if err != nil {
		return err
	}
	if g.leader.backend.sqlite() {
		return g.fenceSQLite(ctx, tx)
	}
	return g.fence(ctx, sqlTx{tx})
}

// FenceShared is [Fence] for tasks with parallel writers: its transactions exclude those of other terms, not each other. It
// takes two statements, needs the isolation level READ COMMITTED and refuses the others. The role needs SELECT on
// leader_terms.
func FenceShared(ctx context.Context, tx pgx.Tx) error {
	g, err := fenced(ctx)
	if err != nil {
		return err
	}
	return g.fenceShared(ctx, pgxTx{tx})
}

// FenceSharedSQL is [FenceShared] for database/sql. On SQLite, which has one writer at a time, it is [FenceSQL].
func FenceSharedSQL(ctx context.Context, tx *sql.Tx) error {
	g, err := fenced(ctx)
	if err != nil {
		return err
	}
	if g.leader.backend.sqlite() {
		return g.fenceSQLite(ctx, tx)
	}
	return g.fenceShared(ctx, sqlTx{tx})
}

// fenced returns the grant to fence for. A process that knows of its loss must not queue up before the takeover.
func fenced(ctx context.Context) (*grant, error) {
	g := grantOf(ctx)
	switch {
	case g == nil:
		return nil, errOutside
	case ofDriver(g.leader.backend):
		return nil, fmt.Errorf("leader: fence %q: %w", g.name, errDriverFence)
	case g.term == 0:
		return nil, fmt.Errorf("leader: fence %q: %w", g.name, errNoTerms)
	}
	if reason := g.err(); reason != nil {
		return nil, &FencedError{Name: g.name, Term: g.term, Err: lost(reason)}
	}
	return g, nil
}

// queryer is what a transaction of either kind can do. Its statements have no parameters: every driver takes those.
type queryer interface {
	row(ctx context.Context, sql string, dest ...any) error // errNoRow without a row
}

var errNoRow = errors.New("no row")

type pgxTx struct{ tx pgx.Tx }

func (t pgxTx) row(ctx context.Context, query string, dest ...any) error {
	err := t.tx.QueryRow(ctx, query).Scan(dest...)
	if errors.Is(err, pgx.ErrNoRows) {
		return errNoRow
	}
	return err
}

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) row(ctx context.Context, query string, dest ...any) error {
	err := t.tx.QueryRowContext(ctx, query).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return errNoRow
	}
	return err
}

// number writes n so that its type is sure, whatever the search_path.
func number[N ~int64](n N) string {
	return "'" + strconv.FormatInt(int64(n), 10) + "'::pg_catalog.int8"
}

// table returns the qualified name of leader_terms.
func (s termSite) table() string { return pgx.Identifier{s.schema, "leader_terms"}.Sanitize() }

func (g *grant) sqlRow(columns string) string {
	return "SELECT " + columns + " FROM " + g.site.table() + " AS t WHERE t.key OPERATOR(pg_catalog.=) " + number(g.key)
}

// fence locks the row of the name, if it still has our term. Under READ COMMITTED it waits for a takeover and then finds
// another term; at the other levels the server refuses what the transaction's snapshot does not show.
func (g *grant) fence(ctx context.Context, tx queryer) error {
	var one int
	err := tx.row(ctx, g.sqlRow("1")+" AND t.term OPERATOR(pg_catalog.=) "+number(g.term)+" FOR NO KEY UPDATE", &one)
	if errors.Is(err, errNoRow) {
		return g.fencedBy(ctx, tx)
	}
	return g.fenceError(err)
}

// fencedBy is the refusal, with the term that the transaction sees, if it sees another one.
func (g *grant) fencedBy(ctx context.Context, tx queryer) error {
	refusal := &FencedError{Name: g.name, Term: g.term}
	var current Term
	if err := tx.row(ctx, g.sqlRow("t.term"), &current); err == nil && current != g.term {
		refusal.Current = current
	}
	return refusal
}

// fenceError is the error of a statement of a fence.
func (g *grant) fenceError(err error) error {
	const serializationFailure = "40001"
	var state interface{ SQLState() string } // of either driver
	switch {
	case err == nil:
		return nil
	case errors.As(err, &state) && state.SQLState() == serializationFailure:
		return &FencedError{Name: g.name, Term: g.term, Err: err}
	}
	return fmt.Errorf("leader: fence %q: %w", g.name, err)
}

// fenceShared takes two statements: the snapshot of one that waited for its lock is older than the lock.
func (g *grant) fenceShared(ctx context.Context, tx queryer) error {
	var level, locked string
	err := tx.row(ctx, "SELECT pg_catalog.current_setting('transaction_isolation'), pg_catalog.pg_advisory_xact_lock_shared("+
		number(fenceKey(g.key))+")::pg_catalog.text", &level, &locked)
	if err != nil {
		return g.fenceError(err)
	}
	if level != "read committed" {
		return fmt.Errorf("leader: fence %q: the transaction is %s: %w", g.name, level, errIsolation)
	}
	var current Term
	err = tx.row(ctx, g.sqlRow("t.term"), &current)
	switch {
	case errors.Is(err, errNoRow):
		return &FencedError{Name: g.name, Term: g.term}
	case err != nil:
		return g.fenceError(err)
	case current != g.term:
		return &FencedError{Name: g.name, Term: g.term, Current: current}
	}
	return nil
}

// fenceSQLite writes, and so takes the write lock: from then on nobody else can begin a term.
func (g *grant) fenceSQLite(ctx context.Context, tx *sql.Tx) error {
	where := fmt.Sprintf(" WHERE key = %d", g.key)
	done, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE main.leader_terms SET term = term%s AND term = %d", where, g.term))
	if err != nil {
		return g.fenceError(err)
	}
	switch n, err := done.RowsAffected(); {
	case err != nil:
		return g.fenceError(err)
	case n == 1:
		return nil
	}
	refusal := &FencedError{Name: g.name, Term: g.term}
	_ = tx.QueryRowContext(ctx, "SELECT term FROM main.leader_terms"+where).Scan(&refusal.Current)
	return refusal
}
