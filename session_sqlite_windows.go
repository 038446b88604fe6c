// SPDX-License-Identifier: MIT

package leader

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"
)

const (
	// sqliteRecordExt is where the record of a holder is: nobody can read a locked file.
	sqliteRecordExt = ".holder"
	sqliteNoFollow  = 0
)

// sqliteLinked tells whether the file at path has several hard links.
func sqliteLinked(path string, _ fs.FileInfo) (bool, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: path, Err: err}
	}
	const share = syscall.FILE_SHARE_READ | syscall.FILE_SHARE_WRITE | 4 // and FILE_SHARE_DELETE
	handle, err := syscall.CreateFile(name, 0, share, nil, syscall.OPEN_EXISTING, 0, 0)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = syscall.CloseHandle(handle) }()
	var info syscall.ByHandleFileInformation
	if err := syscall.GetFileInformationByHandle(handle, &info); err != nil {
		return false, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return info.NumberOfLinks > 1, nil
}

// sqliteOwn does nothing: files inherit who may use them from the directory.
func sqliteOwn(string, fs.FileInfo, fs.FileInfo) {}

func sqliteMounted(string) bool { return false }

// sqliteRemote names the file system at path if it is one whose locks may exclude nobody, and is "" otherwise.
func sqliteRemote(path string) (string, error) {
	volume := filepath.VolumeName(path)
	root, err := syscall.UTF16PtrFromString(volume + `\`)
	if err != nil {
		return "", &os.PathError{Op: "volume", Path: path, Err: err}
	}
	kind, _, _ := syscall.NewLazyDLL("kernel32.dll").NewProc("GetDriveTypeW").Call(uintptr(unsafe.Pointer(root)))
	return sqliteVolume(volume, kind), nil
}

// sqliteVolume names a volume that is on another machine, by its name or what GetDriveTypeW says.
func sqliteVolume(volume string, kind uintptr) string {
	const remote = 4 // DRIVE_REMOTE
	name := strings.ToUpper(filepath.ToSlash(volume))
	switch {
	case kind == remote:
		return "a network drive"
	case strings.HasPrefix(name, "//?/UNC"), strings.HasPrefix(name, "//./UNC"):
		return "a network share"
	case strings.HasPrefix(name, "//?/"), strings.HasPrefix(name, "//./"):
		return ""
	case strings.HasPrefix(name, "//"):
		return "a network share"
	}
	return ""
}
