// SPDX-License-Identifier: MIT

package leader

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

var (
	errSQLiteMoved = errors.New("the lock file is replaced again and again")
	errSQLiteGone  = errors.New("the database file was deleted, moved or replaced")
)

// sqliteFiles is the directory beside a database file in which the locks lie:
//
//	<key>.lock        locked by the holder of the key; never deleted, or two could lock two files of one name
//	<key>.lock        on Unix holds the record of the holder, too
//	<key>.holder      holds it on Windows, where nobody may read a locked file
//	sessions/<id>     locked by a session while it lives: a record is true if its session lives
//	probe.lock        shows that locks work here
//
// The database file itself is never opened: closing it would drop the locks that SQLite has on it.
type sqliteFiles struct {
	file string
	dir  string
	info fs.FileInfo // of file, when the session was opened

	mu   sync.Mutex  // never held over I/O
	mark *sqliteFile // in sessions/; nil if it could not be made, and then there are no records
	left bool
}

// sqliteRecord is who holds a lock, for other processes. They never try a lock to find out: that could make it look taken
// to a third.
type sqliteRecord struct {
	Node    string    `json:"node"`
	PID     uint32    `json:"pid"`
	Since   time.Time `json:"since"`
	Session string    `json:"session"`
}

func openSQLiteFiles(path string) (*sqliteFiles, error) {
	file, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("database file: %w", err)
	}
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return nil, fmt.Errorf("database file: %w", err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("database file: %w", err)
	}
	os.SameFile(info, info) // Windows looks at the file only when first asked
	if err := unsupportedSQLite(file, info); err != nil {
		return nil, err
	}
	f := &sqliteFiles{file: file, dir: file + ".leader", info: info}
	if err := f.makeDir(f.dir); err != nil {
		return nil, err
	}
	if err := unsupportedSQLitePlace("lock directory", f.dir); err != nil {
		return nil, err
	}
	if err := f.probe(); err != nil {
		return nil, err
	}
	f.enroll()
	return f, nil
}

// modes returns the modes of lock files and directories: whoever may write to the database may lock, and nobody else,
// who could keep everyone from leading.
func (f *sqliteFiles) modes() (file, dir fs.FileMode) {
	file, dir = 0o600, 0o700
	if f.info.Mode().Perm()&0o020 != 0 {
		file, dir = file|0o060, dir|0o070
	}
	if f.info.Mode().Perm()&0o002 != 0 {
		file, dir = file|0o006, dir|0o007
	}
	return file, dir
}

// share gives path the mode and, like SQLite does for its own files, the owner that the database file calls for. The
// umask keeps creation from doing so. It is best effort: others get an error that says what they may not do.
func (f *sqliteFiles) share(path string, info fs.FileInfo, mode fs.FileMode) {
	sqliteOwn(path, info, f.info) // first: it can take bits of the mode away
	if perm := info.Mode().Perm(); perm&mode != mode {
		_ = os.Chmod(path, perm|mode)
	}
}

func (f *sqliteFiles) makeDir(dir string) error {
	_, mode := f.modes()
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("lock directory: %s must be writable: %w", filepath.Dir(dir), err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("lock directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("lock directory %s: %w", dir, syscall.ENOTDIR)
	}
	f.share(dir, info, mode)
	return nil
}

// probe shows that a second lock of a file is refused here. If the first one is refused already, that is shown, too.
func (f *sqliteFiles) probe() error {
	path := filepath.Join(f.dir, "probe.lock")
	first, err := f.lock(path, os.O_CREATE)
	if err != nil || first == nil {
		return sqliteLockError(err)
	}
	defer func() { _ = first.flock.Unlock() }()
	second, err := f.lock(path, os.O_CREATE)
	if err != nil {
		return sqliteLockError(err)
	}
	if second != nil {
		_ = second.flock.Unlock()
		return fmt.Errorf("%w: two locks of %s were granted at once: keep the database on a file system that locks", ErrUnsupported, path)
	}
	return nil
}

func sqliteLockError(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("%w: %w: keep the database on a file system that locks", ErrUnsupported, err)
	}
	return err
}

// sqliteFile is a locked file.
type sqliteFile struct {
	path   string
	flock  *flock.Flock
	info   fs.FileInfo // of the file that is locked, whatever is at path now
	record string      // path of the record, "" if there is none
}

// lock locks the file at path, or returns nil, nil if it is locked. Others may replace the file at any time, so what
// counts is that the locked one is at path afterwards.
func (f *sqliteFiles) lock(path string, create int) (*sqliteFile, error) {
	mode, _ := f.modes()
	for range 5 {
		lock := flock.New(path, flock.SetFlag(os.O_RDWR|sqliteNoFollow|create), flock.SetPermissions(mode))
		ok, err := lock.TryLock()
		if err != nil || !ok {
			return nil, err
		}
		locked := &sqliteFile{path: path, flock: lock}
		if locked.info, err = lock.Stat(); err != nil {
			return nil, errors.Join(err, lock.Unlock())
		}
		switch gone, err := locked.lost(); {
		case err != nil:
			return nil, errors.Join(err, lock.Unlock())
		case !gone:
			f.share(path, locked.info, mode)
			return locked, nil
		}
		if err := lock.Unlock(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("lock %s: %w", path, errSQLiteMoved)
}

func (f *sqliteFiles) take(key int64, self Holder) (sqliteLock, error) {
	path := f.path(key, ".lock")
	locked, err := f.lock(path, os.O_CREATE)
	if errors.Is(err, fs.ErrNotExist) { // the directory was deleted
		if err = f.makeDir(f.dir); err == nil {
			locked, err = f.lock(path, os.O_CREATE)
		}
	}
	if err != nil || locked == nil {
		return nil, err
	}
	f.mu.Lock()
	mark := f.mark
	f.mu.Unlock()
	if mark != nil {
		record := f.path(key, sqliteRecordExt)
		mode, _ := f.modes()
		if writeSQLiteRecord(record, mode, sqliteRecord{self.Node, self.PID, self.Since, filepath.Base(mark.path)}) == nil {
			locked.record = record
		}
	}
	return locked, nil
}

func (f *sqliteFiles) path(key int64, ext string) string {
	return filepath.Join(f.dir, fmt.Sprintf("%016x%s", uint64(key), ext))
}

// writeSQLiteRecord overwrites before it cuts: a reader stops at the end of the first value.
func writeSQLiteRecord(path string, mode fs.FileMode, record sqliteRecord) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|sqliteNoFollow, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	return errors.Join(err, file.Truncate(int64(len(text)+1)), file.Close())
}

func (l *sqliteFile) lost() (bool, error) {
	now, err := os.Lstat(l.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return true, nil
	case err != nil:
		return false, err
	}
	return !os.SameFile(l.info, now), nil
}

// release unlocks before it closes: a child that was just forked has the file open, too.
func (l *sqliteFile) release(clear bool) error {
	if clear && l.record != "" {
		_ = os.Truncate(l.record, 0)
	}
	return l.flock.Unlock()
}

func (f *sqliteFiles) holder(key int64) (Holder, bool, error) {
	file, err := os.Open(f.path(key, sqliteRecordExt))
	if errors.Is(err, fs.ErrNotExist) {
		return Holder{}, false, nil
	}
	if err != nil {
		return Holder{}, false, err
	}
	defer func() { _ = file.Close() }()
	var r sqliteRecord
	text := json.NewDecoder(io.LimitReader(file, 1<<14))
	if text.Decode(&r) != nil || !f.alive(r.Session) { // cleared or being written; or left behind by a process that died
		return Holder{}, false, nil
	}
	return Holder{Held: true, Node: r.Node, PID: r.PID, Since: r.Since}, true, nil
}

// alive tells whether the session that wrote a record lives. It asks the lock of the session, not the one in question. Unlike
// the process id it is right across containers, and when ids are used again.
func (f *sqliteFiles) alive(session string) bool {
	f.mu.Lock()
	own := f.mark != nil && filepath.Base(f.mark.path) == session
	f.mu.Unlock()
	if own || session == "" || filepath.Base(session) != session {
		return false // what this session holds it knows, and this is not among it
	}
	mark := flock.New(filepath.Join(f.dir, "sessions", session), flock.SetFlag(os.O_RDONLY))
	free, err := mark.TryRLock()
	if free {
		_ = mark.Unlock()
	}
	return !free && err == nil
}

// enroll makes and locks the file of this session. Without it, locks work and have no records.
func (f *sqliteFiles) enroll() {
	dir := filepath.Join(f.dir, "sessions")
	if f.makeDir(f.dir) != nil || f.makeDir(dir) != nil { // both, as somebody may have deleted them
		return
	}
	f.sweep(dir)
	var mark *sqliteFile
	for range 5 {
		var id [8]byte
		_, _ = rand.Read(id[:]) // never fails
		// It is nil if a sweep comes between creation and lock.
		if mark, _ = f.lock(filepath.Join(dir, hex.EncodeToString(id[:])), os.O_CREATE|os.O_EXCL); mark != nil {
			break
		}
	}
	f.mu.Lock()
	old := f.mark
	if f.left {
		old = mark
	} else {
		f.mark = mark
	}
	f.mu.Unlock()
	old.remove()
}

// sweep deletes the files of sessions whose processes died. Their names are random and never used again, so that no one
// locks them later.
func (f *sqliteFiles) sweep(dir string) {
	marks, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range marks {
		if mark, _ := f.lock(filepath.Join(dir, entry.Name()), 0); mark != nil {
			mark.remove()
		}
	}
}

// remove deletes a session's file. Windows can do so only once it is closed, and then cannot if another has it open.
func (l *sqliteFile) remove() {
	if l == nil {
		return
	}
	err := os.Remove(l.path)
	_ = l.flock.Unlock()
	if err != nil {
		_ = os.Remove(l.path)
	}
}

func (f *sqliteFiles) prove() error {
	now, err := os.Stat(f.file)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &sessionError{err: fmt.Errorf("%s: %w", f.file, errSQLiteGone)}
	case err != nil:
		return fmt.Errorf("database file: %w", err)
	case !os.SameFile(f.info, now):
		return &sessionError{err: fmt.Errorf("%s: %w", f.file, errSQLiteGone)}
	}
	f.mu.Lock()
	mark := f.mark
	f.mu.Unlock()
	if mark == nil {
		return nil
	}
	if gone, err := mark.lost(); gone && err == nil {
		f.enroll()
	}
	return nil
}

func (f *sqliteFiles) leave() {
	f.mu.Lock()
	f.left = true
	mark := f.mark
	f.mark = nil
	f.mu.Unlock()
	mark.remove()
}
