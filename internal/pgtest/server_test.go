// SPDX-License-Identifier: MIT

//go:build unix

package pgtest_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/oxygenhub/leader/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func show(t *testing.T, url, sql string) string {
	t.Helper()
	var text string
	if err := pgtest.Connect(t, url).QueryRow(t.Context(), sql).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

func TestPostgresServerRunsAsAsked(t *testing.T) {
	server := pgtest.Start(t, "max_connections=17", "application_name=it's it")
	for _, url := range []string{server.URL(), server.SocketURL(), server.Database(t)} {
		if got := show(t, url, "SHOW max_connections"); got != "17" {
			t.Errorf("max_connections %q at %s", got, url)
		}
	}
	if got := show(t, server.URL(), "SHOW application_name"); got != "it's it" {
		t.Errorf("application_name %q", got)
	}
	version := show(t, server.URL(), "SHOW server_version_num")
	if num, err := strconv.Atoi(version); err != nil || num/10000 != server.Major() {
		t.Errorf("Major() %d, server %s", server.Major(), version)
	}
}

func TestPostgresServerKeepsDataOverRestarts(t *testing.T) {
	server := pgtest.Start(t)
	pgtest.Exec(t, server.URL(), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
	addr := server.Addr()
	for _, mode := range []string{"fast", "immediate", "smart"} {
		server.Restart(mode)
		pgtest.Exec(t, server.URL(), "UPDATE kept SET n = n + $1", 1)
	}
	if got := show(t, server.URL(), "SELECT n::text FROM kept"); got != "4" || server.Addr() != addr {
		t.Errorf("n = %s at %s, want 4 at %s", got, server.Addr(), addr)
	}
	server.Stop("fast")
	if conn, err := pgx.Connect(t.Context(), server.URL()); err == nil {
		conn.Close(context.Background())
		t.Error("a stopped server answers")
	}
	if !strings.Contains(server.Log(), "database system is shut down") {
		t.Errorf("log: %s", server.Log())
	}
}

func TestPostgresURLIsAFreshDatabase(t *testing.T) {
	one, two := pgtest.URL(t), pgtest.URL(t)
	pgtest.Exec(t, one, "CREATE TABLE mine ()")
	pgtest.Exec(t, two, "CREATE TABLE mine ()")
	var dropped string
	t.Run("dropped", func(t *testing.T) {
		dropped = pgtest.URL(t)
		pgtest.Connect(t, dropped)
	})
	if conn, err := pgx.Connect(t.Context(), dropped); err == nil {
		conn.Close(context.Background())
		t.Error("the database outlives its test")
	}
}

func TestPostgresProxyCountsStatements(t *testing.T) {
	url := pgtest.URL(t)
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := pgtest.NewProxy(t, config.Host+":"+strconv.Itoa(int(config.Port)))
	conn := pgtest.Connect(t, proxy.URL(url))
	for range 5 {
		if _, err := conn.Exec(t.Context(), "SELECT $1::int", pgx.QueryExecModeExec, 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := proxy.Count('E'); n != 5 {
		t.Errorf("%d executes, want 5", n)
	}
	conn.Close(t.Context())
	eventually(t, "terminate", func() bool { return proxy.Count('X') == 1 && proxy.Conns() == 0 })
}

// TestPostgresServerDiesWithTheTest kills a second copy of this binary, which cannot clean up.
func TestPostgresServerDiesWithTheTest(t *testing.T) {
	const env = "PGTEST_CHILD"
	if os.Getenv(env) != "" {
		server := pgtest.Start(t)
		os.Stdout.WriteString("server " + server.URL() + "\n")
		select {}
	}
	pgtest.URL(t) // skips without a server, in which case the child would too
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), env+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var url string
	for lines := bufio.NewScanner(out); url == "" && lines.Scan(); {
		url, _ = strings.CutPrefix(lines.Text(), "server ")
	}
	pgtest.Exec(t, url, "SELECT 1")
	child.Process.Kill()
	child.Wait()
	eventually(t, "the orphan ends", func() bool {
		conn, err := pgx.Connect(t.Context(), url)
		if err == nil {
			conn.Close(t.Context())
		}
		return err != nil
	})
}
