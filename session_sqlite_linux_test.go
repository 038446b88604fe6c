// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var sqliteMaxFiles = sqliteCommand("files", func(_ *sqliteHelper, _ []string, keys []int64) string {
	limit := syscall.Rlimit{Cur: uint64(keys[0]), Max: uint64(keys[0])}
	return fmt.Sprint(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
})

var sqliteFill = sqliteCommand("fill", func(h *sqliteHelper, _ []string, keys []int64) string {
	before := sqliteFDs(h.t)
	held, err := h.s.try(sqliteRange(int(keys[0])))
	missing, unlockErr := h.s.unlock(held)
	return fmt.Sprint(len(held), errors.Is(err, syscall.EMFILE), len(missing), unlockErr, sqliteFDs(h.t)-before)
})

// sqliteFDs counts the open files of this process under a temporary directory: those of others come and go.
func sqliteFDs(t *testing.T) int {
	t.Helper()
	n := 0
	for fd := range 8192 {
		if name, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd)); err == nil && strings.Contains(name, ".leader") {
			n++
		}
	}
	return n
}

func TestSQLiteKnowsFileSystems(t *testing.T) {
	for _, row := range []struct {
		magic uint32
		want  string
	}{
		{0x6969, "NFS"},
		{0x517B, "SMB"},
		{0xFF534D42, "CIFS"},
		{0xFE534D42, "SMB2"},
		{0x65735546, "FUSE"},
		{0x01021997, "9P"},
		{0x00C36400, "Ceph"},
		{0x0BD00BD0, "Lustre"},
		{0x5346414F, "AFS"},
		{0x6B414653, "AFS"},
		{0x73757245, "Coda"},
		{0x564C, "NCP"},
		{0x19830326, "BeeGFS"},
		{0x47504653, "GPFS"},
		{0xAAD7AAEA, "PanFS"},
		{0x01161970, "GFS2"},
		{0x7461636F, "OCFS2"},
		{0x61636673, "ACFS"},
		{0x786F4256, "a VirtualBox shared folder"},
		{0xBACBACBC, "a VMware shared folder"},
		{0x7C7C6673, "a Parallels shared folder"},
		{0xEF53, ""},     // ext4
		{0x58465342, ""}, // xfs
		{0x9123683E, ""}, // btrfs
		{0x01021994, ""}, // tmpfs
		{0x794C7630, ""}, // overlay
		{0x2FC12FC1, ""}, // zfs
		{0xF2F52010, ""}, // f2fs
	} {
		assert.Equal(t, row.want, sqliteMagic(row.magic), "%#x", row.magic)
	}
	_, err := sqliteRemote("/nowhere/at/all")
	require.ErrorIs(t, err, os.ErrNotExist)
	kind, err := sqliteRemote("/proc")
	require.NoError(t, err)
	assert.Empty(t, kind)
}

func TestSQLiteMountPoints(t *testing.T) {
	for line, want := range map[string]string{
		`36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`: "/mnt2",
		`36 35 98:0 /a /data/app\040one\134.db rw - ext4 /dev/root rw`:   `/data/app one\.db`,
		`garbage`: "",
		``:        "",
	} {
		assert.Equal(t, want, sqliteMountPoint(line))
	}
	assert.True(t, sqliteMounted("/proc"))
	assert.False(t, sqliteMounted("/proc/self/stat"))
}

// TestSQLiteRefusesAMountedFile: the lock files beside it would not be those that others see beside the file itself.
func TestSQLiteRefusesAMountedFile(t *testing.T) {
	path, _ := sqliteNewFile(t)
	other := filepath.Join(t.TempDir(), "app.db")
	require.NoError(t, os.WriteFile(other, nil, 0o600))
	if err := syscall.Mount(path, other, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("mount: %v", err)
	}
	defer syscall.Unmount(other, syscall.MNT_DETACH)
	db, err := sql.Open("sqlite", other) // which needs no -wal file
	require.NoError(t, err)
	defer db.Close()
	_, err = sqliteTryOpen(t.Context(), SQLite(db), "a")
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "mounted by itself")
}

func TestSQLiteLeaksNoFiles(t *testing.T) {
	path, db := sqliteNewFile(t)
	before := sqliteFDs(t)
	keys := sqliteRange(50)
	for range 20 {
		a, b := sqliteOpen(t, db, "a"), sqliteOpen(t, sqliteDB(t, path), "b")
		sqliteTake(t, a, keys...)
		require.Equal(t, before+len(keys)+2, sqliteFDs(t), "one a lock, one a session")
		sqliteTake(t, b, keys...)
		require.Equal(t, before+len(keys)+2, sqliteFDs(t), "none for a lock that is not held")
		for _, key := range keys[:10] {
			require.NoError(t, os.Remove(sqliteLockFile(path, key)))
		}
		lost, err := a.prove()
		require.NoError(t, err)
		require.Len(t, lost, 10)
		_, err = b.holders(keys)
		require.NoError(t, err)
		require.Equal(t, before+len(keys)-10+2, sqliteFDs(t))
		a.unlock(keys[:30])
		a.kill()
		b.close()
		require.Equal(t, before, sqliteFDs(t))
	}
}

func TestSQLiteRunsOutOfFiles(t *testing.T) {
	path, db := sqliteNewFile(t)
	other := sqliteStart(t, path)
	require.Equal(t, "<nil>", other.do(t, "open b"))
	require.Equal(t, "<nil>", other.do(t, sqliteMaxFiles+" 64"))
	first := other.do(t, sqliteFill+" 200")
	assert.Regexp(t, `^[1-5]\d true 0 <nil> 0$`, first, "held some, said why, gave them back, leaked none")
	assert.Equal(t, first, other.do(t, sqliteFill+" 200"), "and again")
	assert.Equal(t, "[] <nil>", other.do(t, "prove"), "the session lives")
	assert.Len(t, sqliteTake(t, sqliteOpen(t, db, "a"), sqliteRange(200)...), 200)
}

// TestSQLiteUsers has several users share a database, which only root can try.
func TestSQLiteUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be several users")
	}
	path, db := sqliteNewFile(t)
	dir := filepath.Dir(path)
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	for _, file := range []string{dir, path, path + "-wal", path + "-shm"} {
		require.NoError(t, os.Chown(file, 4001, 4100))
		require.NoError(t, os.Chmod(file, 0o660))
	}
	require.NoError(t, os.Chmod(dir, 0o770))

	root := sqliteOpen(t, db, "root")
	require.Equal(t, []int64{1}, sqliteTake(t, root, 1))
	owner, friend, stranger := sqliteStart(t, path, sqliteAs(4001, 4100)), sqliteStart(t, path, sqliteAs(4002, 4100)), sqliteStart(t, path, sqliteAs(4003))
	require.Equal(t, "<nil>", owner.do(t, "open owner"), "what root made is the owner's")
	require.Equal(t, "<nil>", friend.do(t, "open friend"))
	assert.Contains(t, stranger.do(t, "open stranger"), "unable to open database file")
	require.Equal(t, "[2] <nil>", owner.do(t, "try 1 2"))
	require.Equal(t, "[3] <nil>", friend.do(t, "try 1 2 3"))
	require.Equal(t, "[4] <nil>", owner.do(t, "try 3 4"))
	sqliteGive(t, root, 1)
	require.Equal(t, "[1] <nil>", friend.do(t, "try 1"))
	assert.Equal(t, "friend true", owner.do(t, "holder 1"))
	assert.Equal(t, "owner true", friend.do(t, "holder 2"))
}

// TestSQLiteLocksWhatIsAtThePath: open, then a rename over the path, then the lock, of a file that nobody else will lock.
func TestSQLiteLocksWhatIsAtThePath(t *testing.T) {
	path, db := sqliteNewFile(t)
	s := sqliteOpen(t, db, "a")
	before := sqliteFDs(t)
	ctx, cancel := context.WithCancel(t.Context())
	var replacing sync.WaitGroup
	replacing.Go(func() {
		for ctx.Err() == nil {
			assert.NoError(t, os.WriteFile(path+".new", nil, 0o600))
			assert.NoError(t, os.Rename(path+".new", sqliteLockFile(path, 1)))
		}
	})
	for range 2000 {
		held, err := s.try([]int64{1})
		if err != nil {
			require.ErrorIs(t, err, errSQLiteMoved)
		}
		_, err = s.unlock(held)
		require.NoError(t, err)
	}
	cancel()
	replacing.Wait()
	assert.Equal(t, before, sqliteFDs(t))
	assert.Equal(t, []int64{1}, sqliteTake(t, s, 1))
}
