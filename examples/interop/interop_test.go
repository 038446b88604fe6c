// SPDX-License-Identifier: MIT

package interop

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

const (
	namespace = "interop"
	name      = "Rechnungen für 'x'"
	// patience is for what takes as long as it takes: the start of a process, mostly.
	patience = 20 * time.Second
	// promptly is far less than a Retry of half a minute: who leads within it has heard of the release.
	promptly = 5 * time.Second
	never    = 30 * time.Second
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// candidate is a Leader that contends for name.
type candidate struct {
	t       *testing.T
	lead    *leader.Leader
	started chan time.Time
	ended   chan time.Time
	result  chan error
}

func contend(t *testing.T, url string, retry time.Duration) *candidate {
	t.Helper()
	lead, err := leader.New(leader.Postgres(url), leader.Options{Namespace: namespace, Node: "go", Retry: retry})
	require.NoError(t, err)
	c := &candidate{t: t, lead: lead, started: make(chan time.Time, 1), ended: make(chan time.Time, 1), result: make(chan error, 1)}
	go func() { // until resign
		c.result <- lead.Run(context.Background(), name, func(ctx context.Context) error {
			c.started <- time.Now()
			<-ctx.Done()
			c.ended <- time.Now()
			return nil
		})
	}()
	t.Cleanup(func() { assert.NoError(t, lead.Resign(context.Background())) })
	return c
}

// leads waits until the task runs.
func (c *candidate) leads(within time.Duration) time.Time {
	c.t.Helper()
	select {
	case at := <-c.started:
		return at
	case err := <-c.result:
		require.NoError(c.t, err)
	case <-time.After(within):
		require.Fail(c.t, "Go does not lead", "%+v", c.lead.Status())
	}
	return time.Time{}
}

// waits waits until the Leader has been refused the lock, and so listens.
func (c *candidate) waits(url string) {
	c.t.Helper()
	eventually(c.t, patience, "Go waits", func() bool { return c.lead.Status().Connected })
	awaitTry(c.t, url, "leader/go")
}

func (c *candidate) resign() time.Time {
	c.t.Helper()
	require.NoError(c.t, c.lead.Resign(c.t.Context()))
	return <-c.ended
}

// awaitTry waits until the last statement of a session was a try that has been answered.
func awaitTry(t *testing.T, url, application string) {
	t.Helper()
	conn := pgtest.Connect(t, url)
	eventually(t, patience, application+" waits", func() (waits bool) {
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = $1
			AND state = 'idle' AND query LIKE '%pg_try_advisory_lock%' AND datname = current_database())`, application).Scan(&waits))
		return waits
	})
}

func eventually(t *testing.T, within time.Duration, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !f(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "not within %v: %s", within, what)
	}
}

// TestPostgresInteropPythonKeys compares the keys of leader.py with ours.
func TestPostgresInteropPythonKeys(t *testing.T) {
	python := findPython(t)
	const script = "import sys, leader; print(leader.key(*sys.argv[1:]))"
	for _, row := range [][2]string{{"public", "invoices.nightly"}, {"", ""}, {"tenant_7", "é"}, {namespace, name}, {"public", strings.Repeat("n", 1024)}} {
		out, err := exec.CommandContext(t.Context(), python, "-B", "-c", script, row[0], row[1]).CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Equal(t, strconv.FormatInt(leader.Key(row[0], row[1]), 10), strings.TrimSpace(string(out)), "%.20q", row)
	}
}

// TestPostgresInteropPythonTakesTurns: each side leads after the other, at once, though both would ask again in half a minute only.
func TestPostgresInteropPythonTakesTurns(t *testing.T) {
	url := pgtest.URL(t)
	python := findPython(t)
	first := startPython(t, python, "30", url, namespace, name)
	begin := time.Now()
	eventually(t, patience, "Python leads", func() bool { return first.workedAfter(begin) })
	ours := contend(t, url, never)
	ours.waits(url)
	holder, err := ours.lead.Holder(t.Context(), name)
	require.NoError(t, err)
	assert.True(t, holder.Held)
	assert.Equal(t, "py", holder.Node)

	first.stop()
	started := ours.leads(promptly)

	second := startPython(t, python, "30", url, namespace, name)
	awaitTry(t, url, "leader/py")
	ended := ours.resign()
	eventually(t, promptly, "Python leads again", func() bool { return second.workedAfter(ended) })
	second.stop()
	for _, step := range append(first.worked(), second.worked()...) {
		assert.False(t, step.After(started) && step.Before(ended), "Python has worked while Go led")
	}
}

// TestPostgresInteropPythonLosesItsSession: nobody tells that the lock is free. Python stops, Go takes over, and Python leads after it.
func TestPostgresInteropPythonLosesItsSession(t *testing.T) {
	url := pgtest.URL(t)
	theirs := startPython(t, findPython(t), "0.2", url, namespace, name)
	begin := time.Now()
	eventually(t, patience, "Python leads", func() bool { return theirs.workedAfter(begin) })
	ours := contend(t, url, 100*time.Millisecond)
	ours.waits(url)
	var started time.Time
	eventually(t, patience, "Go leads", func() bool { // or Python's next session was first again
		pgtest.Exec(t, url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leader/py' AND datname = current_database()")
		select {
		case started = <-ours.started:
			return true
		case <-time.After(time.Second):
			return false
		}
	})
	awaitTry(t, url, "leader/py") // on its next session
	assert.False(t, theirs.workedAfter(started.Add(time.Second)), "Python has worked long after its session has ended")
	ended := ours.resign()
	eventually(t, promptly, "Python leads again", func() bool { return theirs.workedAfter(ended) })
}

// TestPostgresInteropPythonIsCutOff: Python stops by itself, and then the server ends its session, which has been silent.
func TestPostgresInteropPythonIsCutOff(t *testing.T) {
	url := pgtest.URL(t)
	var version int
	require.NoError(t, pgtest.Connect(t, url).QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int4").Scan(&version))
	if version < 140000 {
		t.Skip("before 14 nothing ends a session that is silent behind a proxy")
	}
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	proxy := pgtest.NewProxy(t, net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))))
	theirs := startPython(t, findPython(t), "0.2", proxy.URL(url), namespace, name)
	begin := time.Now()
	eventually(t, patience, "Python leads", func() bool { return theirs.workedAfter(begin) })
	ours := contend(t, url, 100*time.Millisecond)
	ours.waits(url)
	proxy.Swallow(true, true)
	cut := time.Now()
	started := ours.leads(patience)
	assert.Less(t, started.Sub(cut), 12*time.Second, "the session was to end after 10 s")
	assert.False(t, theirs.workedAfter(started), "Python works while Go leads")
	proxy.Heal()
	proxy.Reset()
	awaitTry(t, url, "leader/py") // on its next session
	ended := ours.resign()
	eventually(t, promptly, "Python leads again", func() bool { return theirs.workedAfter(ended) })
	for _, step := range theirs.worked() {
		assert.False(t, step.After(started) && step.Before(ended), "Python has worked while Go led")
	}
}

// TestPostgresInteropPsql: once.sh runs its command only when nobody leads, keeps Go out, and tells it of the release.
func TestPostgresInteropPsql(t *testing.T) {
	url := pgtest.URL(t)
	findPsql(t)
	runs, done := filepath.Join(t.TempDir(), "runs"), filepath.Join(t.TempDir(), "done")
	once := func(command string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "./once.sh", url, namespace, name, command)
	}
	first := contend(t, url, never)
	first.leads(patience)
	out, err := once("echo it runs").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "somebody else leads\n", string(out))
	first.resign()

	job := once("echo it runs; touch '" + runs + "'; until [ -e '" + done + "' ]; do sleep 0.05; done")
	var said strings.Builder
	job.Stdout, job.Stderr = &said, &said
	require.NoError(t, job.Start())
	eventually(t, patience, "psql leads", func() bool {
		_, err := os.Stat(runs)
		return err == nil
	})
	second := contend(t, url, never)
	second.waits(url)
	assert.Zero(t, len(second.started))
	require.NoError(t, os.WriteFile(done, nil, 0o600))
	second.leads(promptly)
	require.NoError(t, job.Wait())
	assert.Equal(t, "it runs\n", said.String())
	second.resign()
}
