// SPDX-License-Identifier: MIT

package leaderotel_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/leaderotel"
)

func TestPostgresMetricsOfAKilledSession(t *testing.T) {
	url := pgtest.URL(t)
	opts := quick()
	opts.Namespace, opts.Schema = "billing", "public"
	r := instrument(t, leader.Postgres(url), opts, leaderotel.Options{Names: []string{name}})
	start(t, r.Leader, obey)
	r.has(t, points{
		"leader.leading{name=invoices,namespace=billing}":             1,
		"leader.session.connects{namespace=billing}":                  1,
		"leader.session.losses{namespace=billing}":                    0,
		"leader.wait.duration.count{name=invoices,namespace=billing}": 1,
	})
	pgtest.Exec(t, url, "SELECT pg_terminate_backend($1)", r.Status().SessionPID)
	r.has(t, points{
		"leader.transitions{event=lost,name=invoices,namespace=billing,reason=connection}":   1,
		"leader.session.transitions{event=disconnected,namespace=billing,reason=connection}": 1,
		"leader.session.losses{namespace=billing}":                                           1,
		"leader.session.connects{namespace=billing}":                                         2,
		"leader.leading{name=invoices,namespace=billing}":                                    1,
		"leader.transitions{event=gained,name=invoices,namespace=billing}":                   2,
		"leader.leadership.duration.count{event=lost,name=invoices,namespace=billing}":       1,
	})
}

// TestPostgresMetricsOfAHandOver asks for it as `leader resign` does: docs/protocol.md.
func TestPostgresMetricsOfAHandOver(t *testing.T) {
	url := pgtest.URL(t)
	opts := quick()
	opts.Namespace, opts.Schema = "billing", "public"
	r := instrument(t, leader.Postgres(url), opts, leaderotel.Options{})
	start(t, r.Leader, obey)
	leads(t, r.Leader)
	pgtest.Exec(t, url, "SELECT pg_notify($1, $2)", fmt.Sprintf("leader_%016x", uint64(leader.Key("billing", ""))),
		fmt.Sprintf("resign:%016x", uint64(leader.Key("billing", name))))
	r.has(t, points{
		"leader.transitions{event=stopping,name=invoices,namespace=billing,reason=handover}": 1,
		"leader.transitions{event=released,name=invoices,namespace=billing,reason=handover}": 1,
	})
	require.Zero(t, r.Status().Losses)
}
