// SPDX-License-Identifier: MIT

package cost

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// namespace is of all locks on PostgreSQL. It is the schema of the tables of Terms, too.
const namespace = "public"

// lab is a PostgreSQL server to measure.
type lab struct {
	stage  *pgtest.Stage
	server *pgtest.Server
	conn   *pgx.Conn // of the observer
}

// openLab starts a server. Without one the error is pgtest.ErrSkipped.
func openLab(ctx context.Context, c Config, settings ...string) (*lab, error) {
	b := &lab{stage: pgtest.NewStage(ctx, "cost", c.Dir, c.Log)}
	err := b.stage.Try(func() {
		b.server = pgtest.Start(b.stage, settings...)
		b.conn = pgtest.Connect(b.stage, b.server.URL())
	})
	if err != nil {
		return nil, errors.Join(err, b.stage.End())
	}
	return b, nil
}

// withLab runs f on a server.
func withLab(ctx context.Context, c Config, f func(*lab) error, settings ...string) error {
	b, err := openLab(ctx, c, settings...)
	if err != nil {
		return err
	}
	return errors.Join(f(b), b.stage.End())
}

// pid is the process of the server that serves the connection of an application_name.
func (b *lab) pid(ctx context.Context, application string) (pid int, err error) {
	err = b.conn.QueryRow(ctx, "SELECT pid FROM pg_stat_activity WHERE application_name = $1", application).Scan(&pid)
	if err != nil {
		return 0, fmt.Errorf("pid of %s: %w", application, err)
	}
	return pid, nil
}

// postmaster is the process whose children serve the connections.
func (b *lab) postmaster() (int, error) { return parentOf(int(b.conn.PgConn().PID())) }

// connect opens a connection of a contender that is no library.
func (b *lab) connect(ctx context.Context, mode pgx.QueryExecMode) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(b.server.URL())
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	b.stage.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) }) // or its server is gone
	return conn, nil
}

// member is a process of a fleet, as far as the library is concerned: a Leader. All members live in this process.
type member struct {
	*leader.Leader
	meter *meter
	leave func() // ends its calls of Run
}

// join has a new member contend for names.
func (b *lab) join(ctx context.Context, m *meter, node string, names []string, change func(*leader.Options)) (*member, error) {
	backend, err := m.backend(b.server.URL())
	if err != nil {
		return nil, err
	}
	opts := leader.Options{Node: node, Namespace: namespace}
	if change != nil {
		change(&opts)
	}
	l, err := leader.New(backend, opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	for _, name := range names {
		calls.Go(func() { // until leave
			_ = l.Run(ctx, name, obey) // the only error is that of ctx, or the member would lead or stand by
		})
	}
	leave := sync.OnceFunc(func() {
		cancel()
		calls.Wait()
		_ = l.Resign(context.WithoutCancel(ctx)) // nothing runs any more
	})
	b.stage.Cleanup(leave)
	return &member{Leader: l, meter: m, leave: leave}, nil
}

// obey is a task that only waits for its end.
func obey(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// numbered are n names.
func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("invoices-%d", i)
	}
	return names
}

// keysOf are the keys of the locks of names.
func keysOf(names []string) []int64 {
	keys := make([]int64, len(names))
	for i, name := range names {
		keys[i] = leader.Key(namespace, name)
	}
	return keys
}
