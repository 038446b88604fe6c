// SPDX-License-Identifier: MIT

//go:build unix

package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// pids returns the server's processes that answer on two connections which take turns.
func pids(t *testing.T, url string) [2]string {
	t.Helper()
	return [2]string{show(t, url, "SELECT pg_backend_pid()::text"), show(t, url, "SELECT pg_backend_pid()::text")}
}

func TestPostgresBouncerTakesSettings(t *testing.T) {
	server := pgtest.Start(t)
	bouncer := server.Bounce(t, "pool_mode=transaction", "default_pool_size=1")
	if bouncer.Version() < 100 {
		t.Errorf("version %d", bouncer.Version())
	}
	url := bouncer.URL(server.Database(t)) + "&default_query_exec_mode=exec"
	if got := pids(t, url); got[0] != got[1] {
		t.Errorf("transaction mode, one server connection: processes %v", got)
	}
	bouncer.Reload("pool_mode=session", "default_pool_size=2")
	if got := pids(t, url); got[0] == got[1] {
		t.Errorf("session mode: one process %v for two clients", got)
	}
	bouncer.Stop()
	if conn, err := pgx.Connect(t.Context(), url); err == nil {
		conn.Close(t.Context())
		t.Error("it answers after Stop")
	}
	bouncer.Start("pool_mode=statement")
	if _, err := pgtest.Connect(t, url).Exec(t.Context(), "BEGIN"); err == nil {
		t.Error("a transaction in statement mode")
	}
}
