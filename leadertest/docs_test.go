// SPDX-License-Identifier: MIT

package leadertest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/driver"
	"github.com/oxygenhub/leader/leadertest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The code of docs/drivers.md, which TestDocsSnippetsAreCode of the root package looks for.

// mydrivers stands for a package.
type mydrivers struct {
	New func(client any) driver.Driver
}

func _(client any, mydriver mydrivers) (*leader.Leader, error) {
	lead, err := leader.New(leader.Driver(mydriver.New(client)), leader.Options{})
	return lead, err
}

func _(t *testing.T, mydriver mydrivers, freshPlace func(*testing.T) any, end, cut func(testing.TB, driver.Session), another func(testing.TB, driver.Driver) driver.Driver) {
	leadertest.TestDriver(t, func(t *testing.T) driver.Driver {
		return mydriver.New(freshPlace(t))
	}, leadertest.Controls{End: end, Cut: cut, Another: another})
}

// TestOutboxStopsInAPartition is what the page shows, and runs.
func TestOutboxStopsInAPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leadertest.NewStore()
		lead, err := leader.New(store.Backend(), leader.Options{Node: "web-1"})
		require.NoError(t, err)
		ctx, ended := t.Context(), make(chan error, 1)
		var outbox outboxService
		go func() { ended <- outbox.Run(ctx, lead) }()
		time.Sleep(time.Minute) // it leads, and works

		store.Session("web-1").Cut()
		time.Sleep(7 * time.Second) // Options.Lease, and a second to stop
		synctest.Wait()
		assert.False(t, outbox.works.Load(), "it has stopped, though its session still has the lock")

		require.NoError(t, lead.Resign(ctx))
	})
}

type outboxService struct{ works atomic.Bool }

func (o *outboxService) Run(ctx context.Context, lead *leader.Leader) error {
	return lead.Run(ctx, "outbox", func(ctx context.Context) error {
		o.works.Store(true)
		defer o.works.Store(false)
		<-ctx.Done()
		return nil
	})
}

func _(t *testing.T, lead *leader.Leader, task context.Context) {
	leadertest.Kill(t, lead)
	require.ErrorIs(t, context.Cause(task), leader.ErrLost)
}
