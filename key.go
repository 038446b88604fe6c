// SPDX-License-Identifier: MIT

package leader

import (
	"encoding/binary"

	"lukechampine.com/blake3"
)

// Key returns the lock that name means within namespace: the first 8 bytes, little endian, of
// BLAKE3("leader v1" 0x00 namespace 0x00 name), as a signed number. It is what is passed to pg_try_advisory_lock, and in
// hexadecimal the name of a SQLite lock file. It never changes between versions, so that old and new ones, and other
// languages, exclude each other. It accepts every string; [Leader.Run] says which names are valid.
func Key(namespace, name string) int64 {
	const domain = "leader v1"
	text := make([]byte, 0, 128)
	text = append(text, domain...)
	text = append(text, 0)
	text = append(text, namespace...)
	text = append(text, 0)
	text = append(text, name...)
	sum := blake3.Sum256(text)
	return int64(binary.LittleEndian.Uint64(sum[:8]))
}
