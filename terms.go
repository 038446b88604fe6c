// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"encoding/binary"
	"time"

	"lukechampine.com/blake3"
)

// TermsSQL makes the table that [Options].Terms needs on PostgreSQL, for migration tools and for roles that may not create
// tables. It does so in the current schema: set the search_path to the one of Options.Schema before. It is the table that
// a Leader makes where there is none. Its layout is API: old and new
// versions run side by side. Whoever leads needs SELECT, INSERT and UPDATE on it; see docs/fencing.md.
const TermsSQL = `CREATE TABLE IF NOT EXISTS leader_terms (
	key bigint PRIMARY KEY,
	namespace text NOT NULL,
	name text NOT NULL,
	term bigint NOT NULL,
	node text NOT NULL,
	addr text NOT NULL,
	pid bigint NOT NULL,
	taken_at timestamptz NOT NULL,
	released_at timestamptz,
	ended text
)`

// TermsSQLite is [TermsSQL] for SQLite, in the main database. Its times are milliseconds since 1970.
const TermsSQLite = `CREATE TABLE IF NOT EXISTS main.leader_terms (
	key INTEGER NOT NULL PRIMARY KEY,
	namespace TEXT NOT NULL,
	name TEXT NOT NULL,
	term INTEGER NOT NULL,
	node TEXT NOT NULL,
	addr TEXT NOT NULL,
	pid INTEGER NOT NULL,
	taken_at INTEGER NOT NULL,
	released_at INTEGER,
	ended TEXT
)`

// EndReason says how a term has ended.
type EndReason string

const (
	// EndReturned means that the task returned nil.
	EndReturned EndReason = "returned"
	// EndError means that the task returned an error, panicked or called runtime.Goexit.
	EndError EndReason = "error"
	// EndResigned means that the task was told to stop: by Resign, because the context of Run ended, or by [ErrHandOver].
	EndResigned EndReason = "resigned"
	// EndLost means that the lock was lost, and that the task has returned since.
	EndLost EndReason = "lost"
	// EndDied means that the last holder did not say that its term had ended: it died, or the next one came before it
	// could say so. Its task may still run.
	EndDied EndReason = "died"
	// EndUnused means that the term was begun and no task ran in it.
	EndUnused EndReason = "unused"
)

// termSite is where the terms of a session are kept, and who begins them.
type termSite struct {
	schema    string // PostgreSQL: of the table
	server    string // PostgreSQL: the instance on which the locks are, as another one has other terms
	namespace string
	node      string
	addr      string
	pid       uint32 // of the session, as Holder shows it
}

// termRow is the row of one name.
type termRow struct {
	name       string
	term       Term
	node, addr string
	pid        uint32
	taken      time.Time
	released   time.Time // zero: its end was not marked
	ended      EndReason // of this term if it was marked, of the one before otherwise
}

// unread says that the last term is for the store to read.
const unread Term = -1

// termWant is a term to begin.
type termWant struct {
	key   int64
	name  string
	last  Term // as read under the lock; 0: there was no row
	floor Term // what the new term must reach
}

// termBegun is the answer to a termWant.
type termBegun struct {
	term  Term // 0: the row is not any more what was read
	last  Term
	clean bool // the last term was marked as ended, or there was none
}

// termEnd marks the end of a term.
type termEnd struct {
	key    int64
	name   string
	term   Term
	reason EndReason
	by     time.Time // until when to try, while somebody has the row locked
}

// termStore keeps the terms of one Leader: the table leader_terms. Its methods block, at most as long as their context allows,
// and none needs the lock session. All but wait are called one at a time.
//
// Every change is a compare-and-set on the term: what comes too late, because another process leads by now, changes
// nothing. A term is durable before it is returned.
type termStore interface {
	// begin begins all terms of wants that are free, without waiting for one. Those that it leaves out are stuck behind
	// a transaction of somebody else, for the reason stuck, if that is known.
	begin(ctx context.Context, site termSite, wants []termWant) (begun map[int64]termBegun, stuck, err error)
	// wait begins one term, in the queue behind who has its row, for some seconds; nil, nil if it is stuck still. It tells
	// the server's process by which it waits.
	wait(ctx context.Context, site termSite, want termWant, waiting func(pid uint32)) (*termBegun, error)
	// queues tells whether there is a queue to wait in. If not, begin waits for some seconds itself.
	queues() bool
	// end marks terms as ended, and returns those that somebody else has locked.
	end(ctx context.Context, site termSite, ends []termEnd) (locked []termEnd, err error)
	// read reads rows; used where sessions cannot.
	read(ctx context.Context, site termSite, keys []int64) (map[int64]termRow, error)
	// blockers tells what the waiting processes of the server wait for.
	blockers(ctx context.Context, site termSite, pids []uint32) (map[uint32]Blocker, error)
	// close drops what is kept open between calls.
	close()
}

// deriveKey returns a lock that belongs to text, apart from those of names.
func deriveKey(domain, text string) int64 {
	sum := blake3.Sum256([]byte(domain + "\x00" + text))
	return int64(binary.LittleEndian.Uint64(sum[:8]))
}

// fenceKey is the lock that FenceShared shares, and that the beginning of a term excludes.
func fenceKey(key int64) int64 {
	var raw [8]byte
	binary.LittleEndian.PutUint64(raw[:], uint64(key))
	return deriveKey("leader v1 fence", string(raw[:]))
}
