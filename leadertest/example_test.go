// SPDX-License-Identifier: MIT

package leadertest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leadertest"
)

// mailer is a service to test: it delivers mail while it leads, and brings its work into a safe state when it does not any
// more.
type mailer struct {
	lead      *leader.Leader
	delivered atomic.Int32
	safe      atomic.Bool // its work is, since the last task has stopped
}

func (m *mailer) run(ctx context.Context) error {
	return m.lead.Run(ctx, "outbox", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				m.safe.Store(true)
				return nil
			case <-time.After(time.Second):
				m.delivered.Add(1)
			}
		}
	})
}

// TestExampleMailer is the body of Example, as it looks in a test of a service: a partition, of which the service has to see
// that it leads no more before the store gives its lock to another.
func TestExampleMailer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leadertest.NewStore()
		lead, err := leader.New(store.Backend(), leader.Options{Node: "web-1"})
		require.NoError(t, err)
		m := &mailer{lead: lead}
		ended := make(chan error, 1)
		go func() { ended <- m.run(context.Background()) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.GreaterOrEqual(t, m.delivered.Load(), int32(59))

		session := store.Session("web-1")
		session.Cut()
		time.Sleep(7 * time.Second) // Options.Lease, and some
		synctest.Wait()
		assert.True(t, m.safe.Load(), "it has stopped")
		assert.True(t, session.Alive(), "before the store has given its lock away")

		require.NoError(t, lead.Resign(context.Background()))
		require.ErrorIs(t, <-ended, leader.ErrResigned)
	})
}

// The session of a task in a partition, in a test of a program: ten seconds of Options.SessionTimeout, seen from both sides. In a
// bubble of testing/synctest, as in TestExampleMailer, they take no time. Here they are shorter.
func Example() {
	store := leadertest.NewStore()
	lead, err := leader.New(store.Backend(), leader.Options{
		Node: "web-1", Check: 20 * time.Millisecond, Lease: 60 * time.Millisecond, SessionTimeout: time.Second,
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	_, err = lead.Try(ctx, "outbox", func(ctx context.Context) error {
		session := store.Session("web-1")
		session.Cut()
		<-ctx.Done()
		fmt.Println("told:", errors.Is(context.Cause(ctx), leader.ErrLost))
		fmt.Println("the store holds the lock still:", store.Holder(leader.Key(leadertest.Namespace, "outbox")) == session)
		return nil
	})
	fmt.Println("Try:", errors.Is(err, leader.ErrLost))
	_ = lead.Resign(ctx)
	// Output:
	// told: true
	// the store holds the lock still: true
	// Try: true
}

// A test with the database of production: any backend will do.
func ExampleKill() {
	t := &testing.T{} // of the test
	dir, err := os.MkdirTemp("", "leadertest-example-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db"))
	if err != nil {
		panic(err)
	}
	defer func() { _ = db.Close() }()
	lead, err := leader.New(leader.SQLite(db), leader.Options{})
	if err != nil {
		panic(err)
	}
	times := 0
	err = lead.Run(context.Background(), "outbox", func(ctx context.Context) error {
		if times++; times == 2 {
			fmt.Println("leads again")
			return nil
		}
		leadertest.Kill(t, lead)
		fmt.Println("told:", errors.Is(context.Cause(ctx), leader.ErrLost))
		return nil
	})
	fmt.Println("Run:", err)
	_ = lead.Resign(context.Background())
	// Output:
	// told: true
	// leads again
	// Run: <nil>
}
