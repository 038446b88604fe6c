// SPDX-License-Identifier: MIT

package leader

import (
	"database/sql"
	"sync"
)

// sqliteMemory is the place of a private in-memory database. Only who has db can reach it, so db is its identity.
type sqliteMemory struct{ db *sql.DB }

type sqliteMemoryKey struct {
	db  *sql.DB
	key int64
}

// sqliteMemoryLocks has the locks that are held, and nothing else, so that it keeps no db.
//
//nolint:gochecknoglobals // Leaders with backends of their own share a db, and nothing else: like the kernel's table of locks
var sqliteMemoryLocks = struct {
	mu   sync.Mutex
	held map[sqliteMemoryKey]Holder
}{held: make(map[sqliteMemoryKey]Holder)}

func (m sqliteMemory) take(key int64, self Holder) (sqliteLock, error) {
	k := sqliteMemoryKey{m.db, key}
	sqliteMemoryLocks.mu.Lock()
	defer sqliteMemoryLocks.mu.Unlock()
	if _, held := sqliteMemoryLocks.held[k]; held {
		return nil, nil
	}
	sqliteMemoryLocks.held[k] = self
	return k, nil
}

func (m sqliteMemory) holder(key int64) (Holder, bool, error) {
	sqliteMemoryLocks.mu.Lock()
	defer sqliteMemoryLocks.mu.Unlock()
	holder, held := sqliteMemoryLocks.held[sqliteMemoryKey{m.db, key}]
	return holder, held, nil
}

func (sqliteMemory) prove() error { return nil }
func (sqliteMemory) leave()       {}

func (sqliteMemoryKey) lost() (bool, error) { return false, nil }

func (k sqliteMemoryKey) release(bool) error {
	sqliteMemoryLocks.mu.Lock()
	defer sqliteMemoryLocks.mu.Unlock()
	delete(sqliteMemoryLocks.held, k)
	return nil
}
