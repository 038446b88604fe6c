// SPDX-License-Identifier: MIT

package fleet

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/soak/faults"
)

// remote has each place in a network namespace of its own, behind a router, which is one too.
type remote struct {
	postgres

	hosts []*pgtest.Remote
}

func newRemote() (base, error) { return &remote{}, nil }

func (b *remote) prepare(ctx context.Context, f *Fleet) error {
	b.fleet = f
	for id := range f.Places {
		host := pgtest.NewRemote(f.stage)
		b.hosts = append(b.hosts, host)
		f.places = append(f.places, &place{fleet: f, id: id + 1, prefix: host.Prefix()})
	}
	if err := b.serve(ctx, "listen_addresses=*"); err != nil {
		return err
	}
	for _, host := range b.hosts {
		b.server.Admit(host)
	}
	return nil
}

func (b *remote) urls(p *place) (lock, app string) {
	_, port, _ := net.SplitHostPort(b.server.Addr()) // it has one
	there := strings.Replace(b.url, b.server.Addr(), net.JoinHostPort(b.hosts[p.id-1].Here(), port), 1)
	return there, there
}

func (b *remote) cut(place int, how string) error {
	fault, ok := map[string]pgtest.Fault{
		faults.LinkDown: pgtest.LinkDown, faults.Silence: pgtest.Silence, faults.NoRoute: pgtest.Unreachable,
	}[how]
	if !ok {
		return fmt.Errorf("nobody knows how to cut a host off by %q", how)
	}
	b.hosts[place-1].Cut(fault)
	return nil
}

func (b *remote) mend(place int) error {
	b.hosts[place-1].Mend()
	return nil
}
