// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresObserve has a process that is no candidate see who leads, all names of the namespace and no others.
func TestPostgresObserve(t *testing.T) {
	url := pgtest.Start(t).URL()
	a := termLeader(t, url, termOptions("a"))
	x, stopX := termTask(t, a, "x")
	y, _ := termTask(t, a, "y")
	_, term := termNext(t, x)
	termNext(t, y)
	elsewhere := termOptions("elsewhere")
	elsewhere.Namespace, elsewhere.Schema = "elsewhere", "public"
	z, _ := termTask(t, termLeader(t, url, elsewhere), "z")
	termNext(t, z)

	watcher := termLeader(t, url, termOptions("w"))
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var view leader.View
	ended := make(chan error, 1)
	go func() {
		ended <- watcher.Observe(ctx, func(v leader.View) {
			mu.Lock()
			defer mu.Unlock()
			view = v
		})
	}()
	holder := func(i int) (h leader.Holder, n int) {
		mu.Lock()
		defer mu.Unlock()
		if i < len(view.Holders) {
			h = view.Holders[i]
		}
		return h, len(view.Holders)
	}
	dbWithin(t, dbPatience, "both are seen", func() bool { h, n := holder(0); return n == 2 && h.Current })
	h, _ := holder(0)
	assert.Equal(t, leader.Holder{
		Name: "x", Held: true, Node: "a", PID: a.Status().SessionPID, Since: h.Since, Current: true, Addr: "a:80", Term: term,
	}, h)
	assert.WithinDuration(t, time.Now(), h.Since, time.Minute)
	stopX()
	dbWithin(t, dbPatience, "the release is seen", func() bool { h, _ := holder(0); return !h.Held && h.Name == "x" })
	h, _ = holder(0)
	assert.Equal(t, leader.Holder{Name: "x", Ended: leader.End{Term: term, Reason: leader.EndResigned, At: h.Ended.At}}, h)
	h, _ = holder(1)
	assert.True(t, h.Current, "y goes on")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	holders, err := watcher.Holders(t.Context(), "y", "nobody", "x")
	require.NoError(t, err)
	require.Len(t, holders, 3)
	assert.Equal(t, []string{"y", "nobody", "x"}, []string{holders[0].Name, holders[1].Name, holders[2].Name})
	assert.Equal(t, leader.Holder{Name: "nobody"}, holders[1])
	assert.Zero(t, len(watcher.Tasks()), "it is no candidate")
}
