// SPDX-License-Identifier: MIT

package cost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/bench/result"
	"github.com/oxygenhub/leader/internal/pgtest"
)

func TestMain(m *testing.M) {
	was, err := Starter(context.Background())
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case !was:
		os.Exit(m.Run())
	}
}

// What must hold at any speed.
func TestWorksPostgres(t *testing.T) {
	holds := map[string]func(*testing.T, result.Row){
		"hot": func(t *testing.T, r result.Row) {
			t.Helper()
			if r.Measure == "allocations" && r.Peer != "handler" {
				assert.Equal(t, []float64{0}, r.Samples, r)
			}
		},
		"processes": func(t *testing.T, r result.Row) {
			t.Helper()
			if r.Measure == "server processes" && r.Setting == defaults {
				assert.Equal(t, []float64{r.X}, r.Samples, r)
			}
		},
	}
	fleets := []Setting{{Name: defaults}, {Name: "Disconnect", Change: func(o *leader.Options) { o.Disconnect = true }}}
	for _, work := range Works() {
		t.Run(work.Name, func(t *testing.T) {
			rows, err := work.Run(t.Context(), Config{Quick: true, Log: func(line string) { t.Log(line) }, Dir: t.TempDir(), Settings: fleets})
			if errors.Is(err, pgtest.ErrSkipped) && os.Getenv("CI") == "" {
				t.Skip(err)
			}
			require.NoError(t, err)
			require.NotEmpty(t, rows)
			for _, row := range rows {
				t.Logf("%s %q %s %g: %v %s", row.Peer, row.Setting, row.Measure, row.X, row.Samples, row.Unit)
				assert.Equal(t, work.Name, row.Work)
				assert.NotEmpty(t, row.Samples, row)
				if check := holds[work.Name]; check != nil {
					check(t, row)
				} else if row.Measure != "tries" { // a difference of two counts
					assert.Positive(t, slices.Min(row.Samples), row)
				}
			}
		})
	}
}

func TestMeterCountsWhatTheServerCountsPostgres(t *testing.T) {
	const library = "pg_stat_statements"
	var there bool
	conn := pgtest.Connect(t, pgtest.URL(t))
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = $1)", library).Scan(&there))
	if !there {
		t.Skip("the server has no " + library)
	}
	config := Config{Log: func(line string) { t.Log(line) }, Dir: t.TempDir()}
	err := withLab(t.Context(), config, func(b *lab) error {
		for _, sql := range []string{"CREATE EXTENSION " + library, "CREATE ROLE member LOGIN"} {
			_, err := b.conn.Exec(t.Context(), sql)
			require.NoError(t, err)
		}
		m := &meter{}
		config, err := m.config(b.server.URL())
		require.NoError(t, err)
		config.User = "member"
		l, err := leader.New(leader.PostgresConfig(config), leader.Options{Namespace: namespace, Retry: 20 * time.Millisecond, Check: 30 * time.Millisecond})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		keep, err := b.join(t.Context(), &meter{}, "holder", numbered(3), nil)
		require.NoError(t, err)
		require.NoError(t, until(t.Context(), "it leads", func() bool { return len(keep.Leading()) == 3 }))
		var calls sync.WaitGroup
		for _, name := range numbered(3) {
			calls.Go(func() { _ = l.Run(ctx, name, obey) })
		}
		require.NoError(t, until(ctx, "it has tried", func() bool { return m.tries.Load() > 20 }))
		stop()
		calls.Wait()
		require.NoError(t, l.Resign(t.Context()))
		var statements, tries int64
		require.NoError(t, b.conn.QueryRow(t.Context(), `SELECT sum(calls), sum(calls) FILTER (WHERE query LIKE '%pg_try_advisory_lock%')
			FROM pg_stat_statements WHERE userid = 'member'::regrole`).Scan(&statements, &tries))
		assert.Equal(t, statements, m.statements.Load())
		assert.Equal(t, tries, m.tries.Load())
		return nil
	}, "shared_preload_libraries="+library)
	require.NoError(t, err)
}

// Messages may be cut anywhere.
func TestParserCountsStatements(t *testing.T) {
	sent := []byte("\x00\x00\x00\x09start" + // has no type
		"P\x00\x00\x00\x08EQEQ" + "B\x00\x00\x00\x04" + "E\x00\x00\x00\x05x" + "S\x00\x00\x00\x04" +
		"Q\x00\x00\x00\x06ab" + "X\x00\x00\x00\x04")
	for size := 1; size <= len(sent); size++ {
		var p parser
		var n int64
		for part := range slices.Chunk(sent, size) {
			n += p.statements(part)
		}
		assert.EqualValues(t, 2, n, "%d bytes at a time", size)
	}
}

// The times and sizes are those of the process: both grow with what it does.
func TestUsageOfAProcess(t *testing.T) {
	if _, err := cpuTime(os.Getpid()); errors.Is(err, os.ErrNotExist) {
		t.Skip("there is no /proc")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // it was killed by the context
	parent, err := parentOf(cmd.Process.Pid)
	require.NoError(t, err)
	assert.Equal(t, os.Getpid(), parent)
	children, err := family(os.Getpid())
	require.NoError(t, err)
	assert.Contains(t, children, cmd.Process.Pid)
	require.NoError(t, until(t.Context(), "it has run", func() bool {
		used, err := cpuTime(cmd.Process.Pid)
		return err == nil && used > 200*time.Millisecond
	}))
	size, err := memory(cmd.Process.Pid)
	require.NoError(t, err)
	assert.Greater(t, size, int64(10<<10))
	before, err := usageOf(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	after, err := usageOf(os.Getpid())
	require.NoError(t, err)
	assert.Greater(t, after.cpu, before.cpu-10*tick, "the time of a child that has ended is kept, in ticks")
	assert.Equal(t, before.processes-1, after.processes)
}
