// SPDX-License-Identifier: MIT

//go:build unix

package leader

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sqliteCommand adds a command that not every system has, and returns its name.
func sqliteCommand(name string, run func(h *sqliteHelper, args []string, keys []int64) string) string {
	sqliteHelperCommands[name] = run
	return name
}

var sqliteChild = sqliteCommand("child", func(h *sqliteHelper, _ []string, _ []int64) string {
	cmd := exec.Command("sleep", "600")
	require.NoError(h.t, cmd.Start())
	return strconv.Itoa(cmd.Process.Pid)
})

var sqliteUmask = sqliteCommand("umask", func(_ *sqliteHelper, args []string, _ []int64) string {
	mask, err := strconv.ParseUint(args[0], 8, 32)
	return fmt.Sprint(syscall.Umask(int(mask)), err)
})

// sqliteAs has a helper process run as a user. Only root can.
func sqliteAs(user uint32, groups ...uint32) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		if _, err := os.Stat("/proc/self/exe"); err == nil {
			cmd.Path = "/proc/self/exe" // the test binary may be in a directory that is root's alone
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user, Groups: groups}}
		cmd.Dir = "/"
	}
}

func sqliteLockFile(path string, key int64) string {
	return filepath.Join(path+".leader", fmt.Sprintf("%016x.lock", uint64(key)))
}

func TestSQLitePathsOfOneFileAreOnePlace(t *testing.T) {
	path, db := sqliteNewFile(t)
	a := sqliteOpen(t, db, "a")
	require.Equal(t, []int64{1}, sqliteTake(t, a, 1))
	elsewhere := t.TempDir()
	require.NoError(t, os.Symlink(path, filepath.Join(elsewhere, "link.db")))
	require.NoError(t, os.Symlink(filepath.Dir(path), filepath.Join(elsewhere, "folder")))
	t.Chdir(filepath.Dir(path))
	for _, name := range []string{"app.db", "./app.db", "file:app.db?mode=rw", elsewhere + "/link.db", elsewhere + "/folder/app.db"} {
		b := sqliteOpen(t, sqliteDB(t, name), "b")
		assert.Equal(t, a.about().place, b.about().place, name)
		assert.Empty(t, sqliteTake(t, b, 1), name)
	}
	t.Chdir(elsewhere)
	assert.Equal(t, []int64{2}, sqliteTake(t, a, 2), "the path is absolute")
}

func TestSQLiteProveSeesLockFilesGo(t *testing.T) {
	for name, remove := range map[string]func(path string, key int64) error{
		"deleted": func(path string, key int64) error { return os.Remove(sqliteLockFile(path, key)) },
		"replaced": func(path string, key int64) error {
			text, err := os.ReadFile(sqliteLockFile(path, key))
			if err == nil {
				err = os.WriteFile(path+".new", text, 0o600)
			}
			if err == nil {
				err = os.Rename(path+".new", sqliteLockFile(path, key))
			}
			return err
		},
		"linked": func(path string, key int64) error {
			if err := os.Rename(sqliteLockFile(path, key), path+".aside"); err != nil {
				return err
			}
			return os.Symlink(path+".aside", sqliteLockFile(path, key))
		},
	} {
		path, db := sqliteNewFile(t)
		a, b := sqliteOpen(t, db, "a"), sqliteOpen(t, db, "b")
		require.Len(t, sqliteTake(t, a, 1, 2, 3), 3)
		require.NoError(t, remove(path, 2), name)
		if name != "linked" {
			require.Equal(t, []int64{2}, sqliteTake(t, b, 2), name)
		}
		lost, err := a.prove()
		require.NoError(t, err)
		assert.Equal(t, []int64{2}, lost, name)
		lost, err = a.prove()
		require.NoError(t, err)
		assert.Empty(t, lost, name)
		missing, err := a.unlock([]int64{1, 2, 3})
		require.NoError(t, err)
		assert.Equal(t, []int64{2}, missing, name)
		if name != "linked" {
			assert.Equal(t, "b", sqliteHolder(t, a, 2).Node, "the record of the new holder stays: "+name)
		}
	}
}

func TestSQLiteUnlockSeesLockFilesGo(t *testing.T) {
	path, db := sqliteNewFile(t)
	a := sqliteOpen(t, db, "a")
	require.Len(t, sqliteTake(t, a, 1, 2), 2)
	require.NoError(t, os.Remove(sqliteLockFile(path, 2)))
	missing, err := a.unlock([]int64{1, 2})
	require.NoError(t, err)
	assert.Equal(t, []int64{2}, missing)
}

func TestSQLiteSurvivesTheEndOfItsDirectory(t *testing.T) {
	path, db := sqliteNewFile(t)
	a, b := sqliteOpen(t, db, "a"), sqliteOpen(t, db, "b")
	require.Equal(t, []int64{1}, sqliteTake(t, a, 1))
	require.NoError(t, os.RemoveAll(path+".leader"))
	require.Equal(t, []int64{2}, sqliteTake(t, a, 2))
	lost, err := a.prove()
	require.NoError(t, err)
	assert.Equal(t, []int64{1}, lost)
	require.Equal(t, []int64{1}, sqliteTake(t, a, 1), "a new file")
	require.Empty(t, sqliteTake(t, b, 1))
	assert.Equal(t, "a", sqliteHolder(t, b, 1).Node, "and the record of the session")
}

func TestSQLiteProveSeesTheDatabaseGo(t *testing.T) {
	for name, remove := range map[string]func(path string) error{
		"deleted":   os.Remove,
		"moved":     func(path string) error { return os.Rename(path, path+".old") },
		"directory": func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+".old") },
		"replaced": func(path string) error {
			text, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path+".new", text, 0o600)
			}
			if err == nil {
				err = os.Rename(path+".new", path)
			}
			return err
		},
	} {
		path, db := sqliteNewFile(t)
		backend := SQLite(db)
		a, err := sqliteTryOpen(t.Context(), backend, "a")
		require.NoError(t, err)
		require.Equal(t, []int64{1}, sqliteTake(t, a, 1))
		require.NoError(t, remove(path), name)
		_, err = a.prove()
		var over *sessionError
		require.ErrorAs(t, err, &over, name)
		assert.False(t, over.ended, "its locks are held until tasks have returned")
		require.ErrorIs(t, err, errSQLiteGone)

		b, err := sqliteTryOpen(t.Context(), backend, "b")
		if name == "replaced" {
			require.NoError(t, err)
			assert.Empty(t, sqliteTake(t, b, 1), "still held")
			sqliteEnded(t, a) // which gives the lock back
			assert.Equal(t, []int64{1}, sqliteTake(t, b, 1))
			a.kill()
			b.kill()
			continue
		}
		require.ErrorIs(t, err, fs.ErrNotExist, name)
		require.NotErrorIs(t, err, ErrUnsupported, name)
		a.kill()
	}
}

// TestSQLiteCopyOverItselfIsTheSameFile: cp writes into the file, so it is the same place.
func TestSQLiteCopyOverItselfIsTheSameFile(t *testing.T) {
	path, db := sqliteNewFile(t)
	a := sqliteOpen(t, db, "a")
	require.Equal(t, []int64{1}, sqliteTake(t, a, 1))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	lost, err := a.prove()
	require.NoError(t, err)
	assert.Empty(t, lost)
}

func TestSQLiteKilledProcessFreesItsLocksThoughItsChildLives(t *testing.T) {
	path, db := sqliteNewFile(t)
	s := sqliteOpen(t, db, "a")
	other := sqliteStart(t, path)
	other.do(t, "open b")
	require.Equal(t, "[1] <nil>", other.do(t, "try 1"))
	child, err := strconv.Atoi(other.do(t, sqliteChild))
	require.NoError(t, err)
	defer syscall.Kill(child, syscall.SIGKILL)
	require.Empty(t, sqliteTake(t, s, 1))
	other.kill()
	start := time.Now()
	require.Equal(t, []int64{1}, sqliteTake(t, s, 1))
	t.Logf("free %v after the process was reaped", time.Since(start))
	require.NoError(t, syscall.Kill(child, 0), "the child lives")
}

func TestSQLiteStoppedProcessKeepsItsLocks(t *testing.T) {
	path, db := sqliteNewFile(t)
	s := sqliteOpen(t, db, "a")
	other := sqliteStart(t, path)
	other.do(t, "open b")
	require.Equal(t, "[1] <nil>", other.do(t, "try 1"))
	pid := other.cmd.Process.Pid
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped())
	for range 100 {
		require.Empty(t, sqliteTake(t, s, 1))
	}
	assert.Equal(t, "b", sqliteHolder(t, s, 1).Node)
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	assert.Equal(t, "[] <nil>", other.do(t, "prove"))
	require.Empty(t, sqliteTake(t, s, 1))
}

// TestSQLiteLockFilesFollowTheModeOfTheDatabase whatever the umask.
func TestSQLiteLockFilesFollowTheModeOfTheDatabase(t *testing.T) {
	for _, row := range []struct {
		umask               string
		database, dir, lock fs.FileMode
	}{
		{"22", 0o644, 0o700, 0o600},
		{"77", 0o660, 0o770, 0o660},
		{"77", 0o666, 0o777, 0o666},
		{"0", 0o600, 0o700, 0o600},
	} {
		path, db := sqliteNewFile(t)
		require.NoError(t, os.Chmod(path, row.database))
		other := sqliteStart(t, path)
		other.do(t, sqliteUmask+" "+row.umask)
		require.Equal(t, "<nil>", other.do(t, "open a"))
		require.Equal(t, "[1] <nil>", other.do(t, "try 1"))
		for file, want := range map[string]fs.FileMode{
			path + ".leader":            row.dir,
			path + ".leader/sessions":   row.dir,
			path + ".leader/probe.lock": row.lock,
			path + ".leader/" + filepath.Base(sqliteLockFile(path, 1)): row.lock,
		} {
			info, err := os.Stat(file)
			require.NoError(t, err)
			assert.Equal(t, want, info.Mode().Perm(), "%s for %v", file, row.database)
		}
		s := sqliteOpen(t, db, "b")
		require.Empty(t, sqliteTake(t, s, 1))
	}
}

func TestSQLiteNamesTheDirectoryThatIsReadOnly(t *testing.T) {
	path, _ := sqliteNewFile(t)
	dir := filepath.Dir(path)
	var change []func(*exec.Cmd)
	if os.Getuid() == 0 { // nothing is read-only to root
		change = append(change, sqliteAs(4003))
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	}
	for _, file := range []string{path, path + "-wal", path + "-shm"} {
		require.NoError(t, os.Chmod(file, 0o666))
	}
	require.NoError(t, os.Chmod(dir, 0o555))
	t.Cleanup(func() { os.Chmod(dir, 0o755) })
	answer := sqliteStart(t, path, change...).do(t, "open a")
	assert.Contains(t, answer, dir+" must be writable")
	assert.Contains(t, answer, "permission denied")
	assert.NotContains(t, answer, ErrUnsupported.Error())
}

func TestSQLiteGoesOnPastALockFileItMayNotUse(t *testing.T) {
	path, db := sqliteNewFile(t)
	s := sqliteOpen(t, db, "a")
	require.NoError(t, os.Mkdir(sqliteLockFile(path, 2), 0o700))
	require.NoError(t, os.Symlink(path, sqliteLockFile(path, 4)))
	held, err := s.try([]int64{1, 2, 3, 4})
	require.Error(t, err)
	assert.ErrorContains(t, err, "2 locks")
	assert.Equal(t, []int64{1, 3}, held)
	lost, err := s.prove()
	require.NoError(t, err)
	assert.Empty(t, lost)
}

func TestSQLiteOpenHeedsItsContext(t *testing.T) {
	path, db := sqliteNewFile(t)
	backend := SQLite(db)
	s, err := sqliteTryOpen(t.Context(), backend, "a")
	require.NoError(t, err)
	s.close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = sqliteTryOpen(ctx, backend, "a")
	require.ErrorIs(t, err, context.Canceled)
	marks, err := os.ReadDir(filepath.Join(path+".leader", "sessions"))
	require.NoError(t, err)
	assert.Empty(t, marks, "nothing is left behind")
}
