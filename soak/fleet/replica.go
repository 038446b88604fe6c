// SPDX-License-Identifier: MIT

//go:build unix

package fleet

import (
	"context"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/soak/history"
)

// replica is a primary and its replica, both of which all processes know. The slot of logical decoding does not outlive the
// primary, so the order of commits is that of a table, which a trigger appends to.
//
// Why that order is sound, for each name: a transaction of a task draws its number after its fence has returned, and one
// that begins a term after it has locked the row of the name. The two exclude each other until they have ended, so who was
// first has the lower number. The rows of one term that are shared have no order, and nothing is asked of it. What the
// replica had not got when the primary died is missing on both tables.
type replica struct {
	postgres

	standby *pgtest.Server
}

// orderSchema makes the table of the order.
const orderSchema = `
	CREATE TABLE committed (id bigserial PRIMARY KEY, name text, term bigint, node text, begun bool, shared bool);
	CREATE FUNCTION note_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO public.committed (name, term, node, begun, shared) VALUES (NEW.name, NEW.term, NEW.node, false, NEW.shared);
		RETURN NULL;
	END $$;
	CREATE FUNCTION note_term() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO public.committed (name, term, node, begun, shared) VALUES (NEW.name, NEW.term, NEW.node, true, false);
		RETURN NULL;
	END $$;
	CREATE TRIGGER note AFTER INSERT ON ledger FOR EACH ROW EXECUTE FUNCTION note_row();
	CREATE TRIGGER note AFTER INSERT OR UPDATE ON leader_terms FOR EACH ROW EXECUTE FUNCTION note_term();`

func (b *replica) prepare(ctx context.Context, f *Fleet) error {
	b.fleet = f
	if err := b.serve(ctx); err != nil {
		return err
	}
	pgtest.Exec(f.stage, b.url, orderSchema)
	if err := b.with(ctx, func(conn *pgx.Conn) error { // it would hold back the log, and is not used
		_, err := conn.Exec(ctx, "SELECT pg_drop_replication_slot($1)", b.slot.slot)
		return err
	}); err != nil {
		return err
	}
	b.standby = b.server.Replica(f.stage, settings()...)
	u, err := url.Parse(b.url)
	if err != nil {
		return err
	}
	u.Host = b.server.Addr() + "," + b.standby.Addr()
	b.url = u.String() + "&target_session_attrs=primary"
	for id := range f.Places {
		p := &place{fleet: f, id: id + 1}
		for _, s := range []*pgtest.Server{b.server, b.standby} {
			p.lock = append(p.lock, pgtest.NewProxy(f.stage, s.Addr()))
			p.app = append(p.app, pgtest.NewProxy(f.stage, s.Addr()))
		}
		f.places = append(f.places, p)
	}
	return nil
}

// urls: a Leader finds the host that takes writes by itself.
func (b *replica) urls(p *place) (lock, app string) {
	plain, _ := url.Parse(b.url) // as prepare made it
	query := plain.Query()
	query.Del("target_session_attrs")
	plain.RawQuery = query.Encode()
	return p.lock.url(plain.String()), p.app.url(b.url)
}

// promote has the primary die; nobody starts it again.
func (b *replica) promote(context.Context) error {
	b.server.Stop("immediate")
	b.standby.Promote()
	b.server = b.standby
	return nil
}

func (b *replica) commits(ctx context.Context) (commits []history.Commit, err error) {
	b.forget()
	err = b.with(ctx, func(conn *pgx.Conn) error {
		if err := b.quiet(ctx, conn); err != nil {
			return err
		}
		rows, err := conn.Query(ctx, "SELECT id, name, term, node, begun, shared FROM committed ORDER BY id")
		if err != nil {
			return err
		}
		var id uint64
		var c history.Commit
		_, err = pgx.ForEachRow(rows, []any{&id, &c.Name, &c.Term, &c.Node, &c.Begun, &c.Shared}, func() error {
			c.Wrote, c.Committed = 2*id, 2*id+1
			commits = append(commits, c)
			return nil
		})
		return err
	})
	return commits, err
}
