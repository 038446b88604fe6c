// SPDX-License-Identifier: MIT

package leader

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The driver says goodbye by itself after an answer that it does not understand: it sets a deadline ahead, sends Terminate and
// closes. Each of these would free locks whose tasks still run.
func TestWireKeepsTheDriverFromSayingGoodbye(t *testing.T) {
	client, server := net.Pipe()
	defer func() { _ = server.Close() }()
	w := &wire{Conn: client, clock: &clock{epoch: time.Now()}}
	w.adopted.Store(true)

	require.NoError(t, w.SetDeadline(time.Now()), "an interrupt")
	_, err := w.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, w.SetDeadline(time.Time{}))
	go func() { _, _ = server.Read(make([]byte, 8)) }()
	_, err = w.Write([]byte("Q"))
	require.NoError(t, err, "an interrupt must not cost the connection")

	require.NoError(t, w.SetDeadline(time.Now().Add(15*time.Second)))
	_, err = w.Write([]byte("X\x00\x00\x00\x04"))
	require.ErrorIs(t, err, errGoodbye)
	require.NoError(t, w.Close())
	require.NoError(t, client.SetDeadline(time.Time{}), "still open")
	<-w.end()
	require.Error(t, client.SetDeadline(time.Time{}), "closed")
}
