// SPDX-License-Identifier: MIT

package leader

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// sqliteNamespace is the default namespace: what SQLite calls the schema of the database file. It is not the path, as one
// file may have several (mounts), and the locks lie beside it anyway.
const sqliteNamespace = "main"

var (
	errSQLiteClosed = errors.New("the session was closed")
	errSQLiteMemory = errors.New("the database is in memory, so its locks exclude only who has the same *sql.DB")
)

// SQLite returns a Backend for the processes of one machine that share the database file of db, of any SQLite driver. Its
// locks are file locks in the directory <file>.leader: the kernel frees them when a process dies, however it dies, and
// they cost the database nothing, but for Options.Terms, which borrows a connection of db for moments. They do not expire, so Options.Lease and Options.SessionTimeout mean nothing here. db
// is asked for the path of its file once, and is neither kept busy nor closed. The locks of an in-memory database
// exclude only the callers that share db. A file on a network file system or with a second hard link, or that is mounted
// by itself, is refused with [ErrUnsupported]. See docs/sqlite.md. It may be shared by several Leaders.
func SQLite(db *sql.DB) Backend { return &sqliteBackend{db: db} }

type sqliteBackend struct {
	db *sql.DB

	mu    sync.Mutex
	file  string // the path of the database, "" in memory
	known bool   // file has been asked for
}

func (b *sqliteBackend) check(opts Options) error {
	if b.db == nil {
		return errors.New("SQLite: the *sql.DB is nil")
	}
	if opts.Schema != "" {
		return errors.New("Options.Schema: SQLite has no schemas: leader_terms is in the main database")
	}
	return nil
}

func (b *sqliteBackend) expires() bool              { return false }
func (b *sqliteBackend) retry() time.Duration       { return 200 * time.Millisecond }
func (b *sqliteBackend) dialTimeout() time.Duration { return 5 * time.Second }

func (b *sqliteBackend) open(ctx context.Context, opts Options, clock *clock) (session, error) {
	file, err := b.path(ctx)
	if err != nil {
		return nil, err
	}
	s := &sqliteSession{
		clock: clock,
		info:  sessionInfo{namespace: sqliteNamespace, place: file, proved: clock.read()},
		self:  Holder{Held: true, Node: opts.Node, PID: uint32(os.Getpid())},
		done:  make(chan struct{}),
		held:  make(map[int64]sqliteHeld),
	}
	if opts.Terms {
		if err := (sqliteTerms{b.db}).ready(ctx); err != nil {
			return nil, err
		}
	}
	if file == "" {
		s.info.place = "in-memory database of this process"
		s.info.warning = errSQLiteMemory
		s.place = sqliteMemory{b.db}
		return s, nil
	}
	files, err := openSQLiteFiles(file)
	if err != nil {
		b.forget() // it may have moved
		return nil, err
	}
	s.place = files
	s.info.place = files.file
	if err := ctx.Err(); err != nil {
		s.kill()
		return nil, err
	}
	return s, nil
}

// path returns the path of the database file, or "" in memory. It is remembered: the pool of the application may be busy
// when the next session is opened.
func (b *sqliteBackend) path(ctx context.Context) (string, error) {
	b.mu.Lock()
	file, known := b.file, b.known
	b.mu.Unlock()
	if known {
		return file, nil
	}
	file, err := sqlitePath(ctx, b.db)
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.file, b.known = file, true
	return file, nil
}

func (b *sqliteBackend) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known = false
}

// sqlitePlace is where the locks are: in files, or in this process.
type sqlitePlace interface {
	// take locks key for self, or returns nil, nil if it is not free.
	take(key int64, self Holder) (sqliteLock, error)
	// holder tells who has key, which the caller's session has not.
	holder(key int64) (Holder, bool, error)
	// prove tells whether the database is still the same. An error that is a *sessionError says that it is not.
	prove() error
	// leave is called once, when all locks have been given back, from any goroutine.
	leave()
}

// sqliteLock is a lock that is held. The session calls release once.
type sqliteLock interface {
	lost() (bool, error)
	// release gives the lock back. The record of its holder is cleared unless the session ends, which voids all its
	// records.
	release(clear bool) error
}

type sqliteHeld struct {
	lock sqliteLock
	self Holder
}

// sqliteSession is the locks of one Leader on one place.
type sqliteSession struct {
	clock *clock
	info  sessionInfo
	self  Holder
	place sqlitePlace
	done  chan struct{} // closed when over is set

	mu    sync.Mutex // never held over I/O: kill waits for it
	held  map[int64]sqliteHeld
	over  *sessionError
	freed bool // kill has been called
}

func (s *sqliteSession) about() sessionInfo                       { return s.info }
func (s *sqliteSession) tell([]int64) error                       { return s.err() }
func (s *sqliteSession) terms([]int64) (map[int64]termRow, error) { return nil, errors.ErrUnsupported } // the pool may be busy
func (s *sqliteSession) sent() reading                            { return s.clock.read() }             // locks that do not expire count no silence

// err returns why the session is over.
func (s *sqliteSession) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return s.over
	}
	return nil
}

func (s *sqliteSession) endLocked(why *sessionError) {
	if s.over == nil {
		s.over = why
		close(s.done)
	}
}

// try goes on after an error: the trouble of one name touches no other.
func (s *sqliteSession) try(keys []int64) (held []int64, err error) {
	var failed keysError
	for _, key := range keys {
		if over := s.err(); over != nil {
			return nil, over
		}
		ok, keyErr := s.tryOne(key)
		if ok {
			held = append(held, key)
		}
		if keyErr != nil {
			failed.keys = append(failed.keys, key)
			failed.err = cmp.Or(failed.err, keyErr)
		}
	}
	if over := s.err(); over != nil {
		return nil, over
	}
	if failed.err != nil {
		return held, &failed
	}
	return held, nil
}

func (s *sqliteSession) tryOne(key int64) (bool, error) {
	s.mu.Lock()
	_, twice := s.held[key]
	s.mu.Unlock()
	if twice {
		return false, nil
	}
	self := s.self
	self.Since = time.Now()
	lock, err := s.place.take(key, self)
	if err != nil || lock == nil {
		return false, err
	}
	s.mu.Lock()
	freed := s.freed
	if !freed {
		s.held[key] = sqliteHeld{lock, self}
	}
	s.mu.Unlock()
	if freed { // kill came in between and has not seen it
		return false, lock.release(false)
	}
	return true, nil
}

func (s *sqliteSession) unlock(keys []int64) (missing []int64, err error) {
	for _, key := range keys {
		h, held, over := s.drop(key)
		if over != nil {
			return nil, over
		}
		if !held {
			missing = append(missing, key)
			continue
		}
		gone, _ := h.lock.lost() // in doubt it is held: it has to be given back all the same
		if gone {
			missing = append(missing, key)
		}
		if relErr := h.lock.release(!gone); relErr != nil {
			s.keep(key, h)
			err = errors.Join(err, relErr)
		}
	}
	if over := s.err(); over != nil {
		return missing, over
	}
	return missing, err
}

// drop takes key out of what is held.
func (s *sqliteSession) drop(key int64) (h sqliteHeld, held bool, over error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed {
		return h, false, s.over
	}
	h, held = s.held[key] // also when the session is over: a task of it that returns lets its lock go alone
	delete(s.held, key)
	return h, held, nil
}

// keep puts back what could not be given back: the end of the session tries again.
func (s *sqliteSession) keep(key int64, h sqliteHeld) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.freed {
		s.held[key] = h
	}
}

func (s *sqliteSession) prove() (lost []int64, err error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	if err := s.place.prove(); err != nil {
		if over, ok := errors.AsType[*sessionError](err); ok {
			s.mu.Lock()
			s.endLocked(over) // what is held stays so until tasks have returned and kill is called
			s.mu.Unlock()
		}
		return nil, err
	}
	s.mu.Lock()
	held := maps.Clone(s.held)
	s.mu.Unlock()
	for key, h := range held {
		gone, keyErr := h.lock.lost()
		switch {
		case keyErr != nil:
			err = keyErr // proves nothing: ask again at the next check
		case gone:
			if h, held, _ := s.drop(key); held {
				_ = h.lock.release(false) // of a file that nobody will lock again
				lost = append(lost, key)
			}
		}
	}
	if over := s.err(); over != nil {
		return nil, over
	}
	return lost, err
}

func (s *sqliteSession) holders(keys []int64) (map[int64]Holder, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	holders := make(map[int64]Holder, len(keys))
	for _, key := range keys {
		s.mu.Lock()
		own, held := s.held[key]
		s.mu.Unlock()
		if held {
			holders[key] = own.self
			continue
		}
		holder, held, err := s.place.holder(key)
		if err != nil {
			return nil, err
		}
		if held {
			holders[key] = holder
		}
	}
	return holders, s.err()
}

// wait hears nothing: files tell no one.
func (s *sqliteSession) wait(ctx context.Context) ([]int64, error) {
	select {
	case <-s.done:
		return nil, s.err()
	case <-ctx.Done():
		return nil, nil
	}
}

func (s *sqliteSession) close() { s.kill() }

func (s *sqliteSession) kill() {
	s.mu.Lock()
	if s.freed {
		s.mu.Unlock()
		return
	}
	s.freed = true
	held := slices.Collect(maps.Values(s.held))
	clear(s.held)
	s.endLocked(&sessionError{err: errSQLiteClosed, ended: true}) // all locks are free
	s.mu.Unlock()
	for _, h := range held {
		_ = h.lock.release(false)
	}
	s.place.leave()
}
