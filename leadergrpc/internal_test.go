// SPDX-License-Identifier: MIT

package leadergrpc

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestHostPortTakesNothingElse(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.7:8080": "dns:///10.0.0.7:8080", "db-1.internal:1": "dns:///db-1.internal:1", "[::1]:80": "dns:///[::1]:80",
		"unix:1": "dns:///unix:1", "my_host:80": "dns:///my_host:80",
		"": "", ":80": "", "host": "", "host:": "", "host:http": "", "host:123456": "", "http://host:80": "", "unix:///run/x": "", "unix:/x:1": "",
		"xds:///a:1": "", "a/b:1": "", "a@b:1": "", "a b:1": "", "a\n:1": "", "[fe80::1%eth0]:1": "", "a?x=y:1": "", "é:1": "",
	} {
		assert.Equal(t, want, hostPort(addr), "%q", addr)
	}
}

// Whoever can write into leader_terms chooses node and address.
func TestHostileHints(t *testing.T) {
	g := &gate{name: "a\nb\xff"}
	for _, evil := range []string{"a\r\nleader-term: 9", "é\xff\x00", " 100% ", strings.Repeat("\xff", 1024)} {
		h := hint{node: evil, addr: evil, term: 7}
		for key, values := range h.trailer() {
			for _, value := range values {
				assert.Regexp(t, `^[!-~]*$`, value, key)
			}
		}
		st := status.Convert(g.refusal(h, false))
		assert.Equal(t, codes.Unavailable, st.Code())
		assert.Len(t, st.Details(), 2, "%q", evil)
		if named(st.Err(), h.trailer()) != "" {
			assert.Equal(t, evil, named(st.Err(), h.trailer()))
		}
		assert.Empty(t, hostPort(evil))
	}
	assert.Equal(t, metadata.MD{"leader-addr": {"h%C3%A9:1"}, "leader-node": {"a%25b"}, "leader-term": {"7"}}, hint{node: "a%b", addr: "hé:1", term: 7}.trailer())
}

// None needs no look of its own: the end of the session has an event.
func TestHealthLooksSeldomWithoutGrace(t *testing.T) {
	for grace, want := range map[time.Duration]time.Duration{
		-1: time.Second, time.Microsecond: time.Millisecond, 300 * time.Millisecond: 300 * time.Millisecond, time.Hour: time.Second,
	} {
		assert.Equal(t, want, lookEvery(grace), grace)
	}
}

// The session was closed for want of work, long before something wanted one again.
func TestHealthyWhileASessionIsOpenedAgain(t *testing.T) {
	k := &keeper{grace: time.Minute}
	now := time.Now()
	s := leader.Status{Place: "x", Since: now.Add(-time.Hour), Tasks: []leader.TaskStatus{{Name: "a", Since: now}}}
	assert.True(t, k.healthy(s))
	s.Tasks[0].Since = now.Add(-2 * time.Minute)
	assert.False(t, k.healthy(s))
	s.Tasks = append(s.Tasks, leader.TaskStatus{Name: "b", Since: now})
	assert.False(t, k.healthy(s), "another one has waited for longer")
	s.Since = now
	assert.True(t, k.healthy(s), "it had one until now")
}

// What a handler says of another name's leadership is not the end of its own.
func TestCutShortIsOfTheOwnName(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "test.db"))
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.Close()) }()
	l, err := leader.New(leader.SQLite(db), leader.Options{})
	require.NoError(t, err)
	g := newGate(l, "a", Options{})
	ran, err := l.Try(t.Context(), "a", func(ctx context.Context) error {
		j, ok := l.Join(t.Context(), "a")
		require.True(t, ok)
		assert.False(t, g.cutShort(t.Context(), &j, leader.ErrLost))
		assert.False(t, g.cutShort(t.Context(), &j, &leader.FencedError{Name: "b"}))
		assert.False(t, g.cutShort(t.Context(), &j, context.Canceled))
		assert.False(t, g.cutShort(t.Context(), &j, &leader.FencedError{Name: "a", Term: 7}), "of a Leader elsewhere")
		assert.True(t, g.cutShort(t.Context(), &j, &leader.FencedError{Name: "a"}), "the database may know before we do")
		return nil
	})
	require.NoError(t, err)
	require.True(t, ran)
	require.NoError(t, l.Resign(t.Context()))
	for _, name := range []string{"", "\x00", "\xff", strings.Repeat("x", 1025)} {
		assert.Panics(t, func() { UnaryServerInterceptor(l, name, Options{}) }, "%.5q", name)
		assert.Panics(t, func() { StreamServerInterceptor(l, name, Options{}) }, "%.5q", name)
	}
	assert.Panics(t, func() { UnaryServerInterceptor(nil, "a", Options{}) })
}
