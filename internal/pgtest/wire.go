// SPDX-License-Identifier: MIT

package pgtest

import "encoding/binary"

// wire follows what a client sends, in pieces of any size, and finds the messages in it.
type wire struct {
	started bool // the start-up message is through: from here on messages have a type
	opaque  bool // nothing that can be read follows
	head    []byte
	skip    int // bytes of a message's body still to come
}

// The codes in place of a protocol version in messages without a type.
const (
	codeCancel = 80877102
	codeTLS    = 80877103
	codeGSS    = 80877104
)

// feed returns the types of the messages that begin in data.
func (w *wire) feed(data []byte) (types []byte) {
	for len(data) > 0 && !w.opaque {
		if w.skip > 0 {
			n := min(w.skip, len(data))
			w.skip -= n
			data = data[n:]
			continue
		}
		size := 5 // type, length
		if !w.started {
			size = 8 // length, code
		}
		n := min(size-len(w.head), len(data))
		w.head = append(w.head, data[:n]...)
		data = data[n:]
		if len(w.head) < size {
			break
		}
		if w.started {
			types = append(types, w.head[0])
			w.body(binary.BigEndian.Uint32(w.head[1:]), 4)
		} else {
			w.start()
		}
		w.head = w.head[:0]
	}
	return types
}

// start reads the head of a message without a type. A request for encryption is followed by another such message if
// the server declines, and else by a TLS record, whose first byte no length has.
func (w *wire) start() {
	switch code := binary.BigEndian.Uint32(w.head[4:]); {
	case w.head[0] != 0, code == codeCancel:
		w.opaque = true
	case code == codeTLS, code == codeGSS:
		w.body(binary.BigEndian.Uint32(w.head), 8)
	default:
		w.started = true
		w.body(binary.BigEndian.Uint32(w.head), 8)
	}
}

// body notes what is left of a message of the given length, of which done bytes have been read.
func (w *wire) body(length uint32, done int) {
	w.skip = int(length) - done
	w.opaque = w.skip < 0
}
