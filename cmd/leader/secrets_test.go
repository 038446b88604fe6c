// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

func TestWithoutPassword(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"postgres://me@h/db":                                 "",
		"postgres:///db?host=/run&user=me":                   "",
		"postgres://me:geheim@h/db":                          "postgres://me:xxxxx@h/db",
		"postgres://me:geheim@h:1,g:2/db":                    "",
		"postgres://:geheim@h/db":                            "postgres://:xxxxx@h/db",
		"postgres://me:ge#heim@h/db":                         "xxxxx",
		"postgres://me:ge%zzheim@h/db":                       "xxxxx",
		"postgres://h/db?user=me&password=geheim&port=1":     "postgres://h/db?user=me&password=xxxxx&port=1",
		"postgres://h/db?password=ge%zzheim;sslmode=disable": "postgres://h/db?password=xxxxx&sslmode=disable",
		"postgres://h/db?sslpassword=geheim":                 "postgres://h/db?sslpassword=xxxxx",
		"host=h user=me dbname=db":                           "",
		"host=h passfile=/file":                              "",
		"host=h password=geheim dbname=db":                   "host=h password=xxxxx dbname=db",
		"password = 'ge \\' heim' dbname=db":                 "password = xxxxx dbname=db",
		"password=ge&heim dbname=db":                         "password=xxxxx dbname=db",
		`password=ge\ heim dbname=db`:                        "password=xxxxx dbname=db",
		`password=ge\'heim`:                                  "password=xxxxx",
		"password='geheim dbname=db":                         "password=xxxxx",
		"sslpassword=geheim dbname=db":                       "sslpassword=xxxxx dbname=db",
		"/var/lib/app.db":                                    "",
	} {
		clean, has := withoutPassword(value)
		if strings.Contains(value, "heim") {
			assert.True(t, has, value)
			assert.NotContains(t, clean, "heim", value)
			assert.NotContains(t, clean, "ge", value)
			assert.Contains(t, clean, hidden, value)
		} else {
			assert.False(t, has, value)
			assert.Equal(t, value, clean)
		}
		if want != "" {
			assert.Equal(t, want, clean, value)
		}
	}
}

// TestRedactor: what everybody knows is not hidden, which would only tell that it is the password, too.
func TestRedactor(t *testing.T) {
	t.Parallel()
	r := &redactor{}
	r.add("geheim&s", "postgres")
	r.add("postgres", "postgres")
	r.add("leader")
	r.add("er")
	assert.Equal(t, `leader: postgres: "xxxxx" xxxxx`, r.clean(`leader: postgres: "geheim&s" geheim%26s`))
	assert.Equal(t, `err="dial postgres://me:xxxxx@h/db" password=xxxxx n=1`, r.clean(`err="dial postgres://me:an@other@h/db" password=one n=1`))
}

// TestDatabaseInTheWrongPlace: it is not shown.
func TestDatabaseInTheWrongPlace(t *testing.T) {
	t.Parallel()
	for _, db := range []string{"postgres://me:ge\"heim@h/db", "host=h password=geheim"} {
		for _, args := range [][]string{{db}, {"check", db}, {"status", db}, {"status", "x", db}, {"resign", "--name", "x", db}, {"terminate", "--name", "x", db}} {
			status, out, errs := call(t, at("app.db"), args...)
			assert.Equal(t, statusUsage, status, "%q", args)
			assert.Empty(t, out, "%q", args)
			assert.Contains(t, errs, "--db", "%q", args)
			assert.NotContains(t, errs, "heim", "%q", args)
		}
	}
}

// secretive is a server that asks the role app for a password, unless it comes over the socket.
func secretive(t *testing.T, password string) *pgtest.Server {
	t.Helper()
	server := pgtest.Start(t, "password_encryption=scram-sha-256") // not the default before 14
	conn := pgtest.Connect(t, server.SocketURL())
	var file string
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW hba_file").Scan(&file))
	require.NoError(t, os.WriteFile(file, []byte("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"), 0o600))
	pgtest.Exec(t, server.SocketURL(), "CREATE ROLE app LOGIN PASSWORD '"+password+"'")
	pgtest.Exec(t, server.SocketURL(), "SELECT pg_reload_conf()")
	within(t, "passwords are asked for", func() bool {
		c, err := pgx.Connect(t.Context(), server.URL())
		if err == nil {
			c.Close(t.Context())
		}
		return err != nil
	})
	return server
}

// TestPasswordsPostgres are taken from where psql takes them, and shown nowhere, right or wrong.
func TestPasswordsPostgres(t *testing.T) {
	t.Parallel()
	const right, wrong = "ge heim:1", "ver kehrt:1"
	server := secretive(t, right)
	u, err := url.Parse(server.URL())
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	keys := fmt.Sprintf("host=127.0.0.1 port=%s user=app dbname=postgres sslmode=disable", u.Port())
	ways := map[string]func(password string) []string{
		"url": func(password string) []string {
			u.User = url.UserPassword("app", password)
			return at(u.String())
		},
		"keys":       func(password string) []string { return at(keys + " password='" + password + "'") },
		"PGPASSWORD": func(password string) []string { return append(at(keys), "PGPASSWORD="+password) },
		"PGPASSFILE": func(password string) []string {
			file := write("pass", "127.0.0.1:"+u.Port()+":postgres:app:"+strings.ReplaceAll(password, ":", `\:`)+"\n")
			return append(at(keys), "PGPASSFILE="+file)
		},
		"service": func(password string) []string {
			file := write("services", "[jobs]\n"+strings.ReplaceAll(keys, " ", "\n")+"\npassword="+password+"\n")
			return []string{"PGSERVICE=jobs", "PGSERVICEFILE=" + file}
		},
	}
	calls := [][]string{
		{"check"},
		{"status"},
		{"resign", "--name", "x"},
		{"terminate", "--name", "x", "--yes"},
		{"run", "--verbose", "--wait", "1s", "--name", "x", "--", "true"},
	}
	for way, env := range ways {
		status, out, errs := call(t, env(right), "run", "--verbose", "--name", "x", "--", "sh", "-c", "env >&2; echo $LEADER_HANDED_ON ran")
		assert.Zero(t, status, "%s: %s", way, errs)
		assert.Equal(t, "ran\n", out, way)
		for _, args := range calls {
			status, out, errs := call(t, env(wrong), args...)
			assert.NotZero(t, status, "%s: %q", way, args)
			assert.NotContains(t, out+errs, "kehrt", "%s: %q", way, args)
			assert.Contains(t, out+errs, "password authentication failed", "%s: %q", way, args)
		}
	}
	_, r := checked(t, keys)
	assert.Equal(t, levelFail, r.of(t, "connect").Level)
	assert.Contains(t, r.of(t, "connect").Do, "password", "there is none: %+v", r.findings)
}
