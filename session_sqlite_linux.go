// SPDX-License-Identifier: MIT

package leader

import (
	"bufio"
	"errors"
	"os"
	"strings"
	"syscall"
)

// sqliteRemote names the file system at path if it is one whose locks may exclude nobody, and is "" otherwise.
func sqliteRemote(path string) (string, error) {
	for {
		var stat syscall.Statfs_t
		err := syscall.Statfs(path, &stat)
		if err == nil {
			return sqliteMagic(uint32(stat.Type)), nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return "", &os.PathError{Op: "statfs", Path: path, Err: err}
		}
	}
}

// sqliteMagic names the file system of a magic number if another machine, or the host of this virtual one, may have it
// mounted. FUSE is among them: what is behind it cannot be known, and may be sshfs or a shared folder of a container.
func sqliteMagic(magic uint32) string {
	return map[uint32]string{
		0x6969:     "NFS",
		0x517B:     "SMB",
		0xFF534D42: "CIFS",
		0xFE534D42: "SMB2",
		0x564C:     "NCP",
		0x65735546: "FUSE",
		0x01021997: "9P",
		0x00C36400: "Ceph",
		0x0BD00BD0: "Lustre",
		0x5346414F: "AFS",
		0x6B414653: "AFS",
		0x73757245: "Coda",
		0x19830326: "BeeGFS",
		0x47504653: "GPFS",
		0xAAD7AAEA: "PanFS",
		0x01161970: "GFS2",
		0x7461636F: "OCFS2",
		0x61636673: "ACFS",
		0x786F4256: "a VirtualBox shared folder",
		0xBACBACBC: "a VMware shared folder",
		0x7C7C6673: "a Parallels shared folder",
	}[magic]
}

// sqliteMounted tells whether the file at path is a mount of its own.
func sqliteMounted(path string) bool {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if sqliteMountPoint(lines.Text()) == path {
			return true
		}
	}
	return false
}

// sqliteMountPoint returns where a line of mountinfo says that something is mounted.
func sqliteMountPoint(line string) string {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return ""
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4])
}
