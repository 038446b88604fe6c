// SPDX-License-Identifier: MIT

package leader

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// inSchema returns dsn with a search_path.
func inSchema(t *testing.T, dsn, schema string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	query := u.Query()
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	return u.String()
}

// testScopes has a pair in either of two scopes, which must exclude each other within and not across.
func testScopes(t *testing.T, scopes map[string]func(node string) *Leader) (leaders map[string]*Leader) {
	t.Helper()
	r := &recorder{}
	leaders = make(map[string]*Leader)
	for scope, open := range scopes {
		l := open(scope)
		leaders[scope] = l
		goRun(t.Context(), l, "x", r.task(scope, "x", nil))
		r.await(t, "x", scope)
		standby := open(scope + " standby")
		goRun(t.Context(), standby, "x", r.task(scope+" standby", "x", nil))
		poll(t, soon, "it contends", contends(standby, "x"))
		h, err := standby.Holder(t.Context(), "x")
		require.NoError(t, err)
		assert.Equal(t, scope, h.Node)
	}
	holdsFor(t, 3*faultRetry, "one leads in each scope", func() bool {
		for _, l := range leaders {
			if !l.IsLeading("x") {
				return false
			}
		}
		return len(r.get(nil)) == len(scopes)
	})
	return leaders
}

// TestPostgresScopes is C38: one name in two namespaces, two schemas or two databases.
func TestPostgresScopes(t *testing.T) {
	t.Run("Namespaces", func(t *testing.T) {
		dsn := pgtest.URL(t)
		open := func(namespace string) func(string) *Leader {
			return func(node string) *Leader {
				opts := faultOptions(t, node)
				opts.Namespace = namespace
				return newLeader(t, Postgres(dsn), opts)
			}
		}
		leaders := testScopes(t, map[string]func(string) *Leader{"one": open("one"), "two": open("two")})
		assert.Equal(t, "one", leaders["one"].Status().Namespace)
		assert.Equal(t, leaders["one"].Status().Place, leaders["two"].Status().Place)
		assert.Equal(t, 2, locks(t, dsn))
	})
	t.Run("Schemas", func(t *testing.T) {
		dsn := pgtest.URL(t)
		pgtest.Exec(t, dsn, "CREATE SCHEMA one; CREATE SCHEMA two")
		open := func(schema string) func(string) *Leader {
			return func(node string) *Leader {
				opts := faultOptions(t, node)
				opts.Namespace = ""
				return newLeader(t, Postgres(inSchema(t, dsn, schema)), opts)
			}
		}
		leaders := testScopes(t, map[string]func(string) *Leader{"one": open("one"), "two": open("two, one")})
		assert.Equal(t, "one", leaders["one"].Status().Namespace)
		assert.Equal(t, "two", leaders["two"].Status().Namespace)
		assert.Equal(t, 2, locks(t, dsn))
	})
	t.Run("Databases", func(t *testing.T) { // no exclusion here, as documented: Status tells the databases apart
		dsns := map[string]string{"one": pgtest.URL(t), "two": pgtest.URL(t)}
		open := func(scope string) func(string) *Leader {
			return func(node string) *Leader { return newLeader(t, Postgres(dsns[scope]), faultOptions(t, node)) }
		}
		leaders := testScopes(t, map[string]func(string) *Leader{"one": open("one"), "two": open("two")})
		assert.Equal(t, leaders["one"].Status().Namespace, leaders["two"].Status().Namespace)
		for scope, l := range leaders {
			u, err := url.Parse(dsns[scope])
			require.NoError(t, err)
			assert.Equal(t, u.Path+"@"+u.Host, "/"+l.Status().Place)
		}
	})
}

// TestPostgresScopeOfNotifications is C38 (d): a lock that is given back in one namespace wakes those who wait in it, and nobody
// else, though the names are the same.
func TestPostgresScopeOfNotifications(t *testing.T) {
	dsn := pgtest.URL(t)
	flat(t, dsn)
	proxy := pgtest.NewProxy(t, hostOf(t, dsn))
	open := func(dsn, namespace, node string) *Leader {
		opts := faultOptions(t, node)
		opts.Namespace = namespace
		opts.Retry, opts.Check, opts.Lease, opts.SessionTimeout = time.Minute, time.Minute, 2*time.Minute, 3*time.Minute // but for a notification all is silent
		return newLeader(t, Postgres(dsn), opts)
	}
	r := &recorder{}
	leads := func(l *Leader, node string) {
		goRun(t.Context(), l, "x", r.task(node, "x", nil))
		r.await(t, "x", node)
	}
	one, two := open(dsn, "one", "one"), open(dsn, "two", "two")
	leads(one, "one")
	leads(two, "two")
	waitsOne, waitsTwo := open(dsn, "one", "waits one"), open(proxy.URL(dsn), "two", "waits two")
	for node, l := range map[string]*Leader{"waits one": waitsOne, "waits two": waitsTwo} {
		goRun(t.Context(), l, "x", r.task(node, "x", nil))
		poll(t, soon, "it has asked in vain", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.current != nil && !l.current.busy && len(l.contenders) == 1 && len(l.fresh) == 0 && l.tries > 0
		})
	}
	up, down := proxy.LastUp(), proxy.LastDown()
	require.NoError(t, one.Resign(t.Context()))
	r.await(t, "x", "waits one")
	holdsFor(t, 10*herdGap, "the other namespace hears nothing, and asks nothing", func() bool {
		return proxy.LastUp().Equal(up) && proxy.LastDown().Equal(down)
	})
	require.NoError(t, two.Resign(t.Context()))
	r.await(t, "x", "waits two")
	assert.True(t, proxy.LastDown().After(down), "of its own it does")
}
