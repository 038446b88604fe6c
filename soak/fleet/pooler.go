// SPDX-License-Identifier: MIT

//go:build unix

package fleet

import (
	"context"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// pooler has a PgBouncer in front of the server, in the mode that locks need. The tasks write without it.
type pooler struct {
	postgres

	bouncer *pgtest.Bouncer
}

// poolerSettings leave room for all processes, and for those of a crowd. A pooler that has found its server down refuses everybody
// for as long as server_login_retry says, 15 s if it says nothing: for all of the calm nobody would lead.
func poolerSettings() []string {
	return []string{"pool_mode=session", "default_pool_size=80", "server_login_retry=1"}
}

func (b *pooler) prepare(ctx context.Context, f *Fleet) error {
	b.fleet = f
	if err := b.serve(ctx); err != nil {
		return err
	}
	b.bouncer = b.server.Bounce(f.stage, poolerSettings()...)
	b.proxies(b.bouncer.Addr())
	return nil
}

func (b *pooler) bounce(on bool) error {
	if on {
		b.bouncer.Start(poolerSettings()...)
	} else {
		b.bouncer.Stop()
	}
	return nil
}

// rest stops the pooler, which keeps connections that nobody uses, under the name of who did.
func (b *pooler) rest() { b.bouncer.Stop() }
