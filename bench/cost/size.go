// SPDX-License-Identifier: MIT

package cost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oxygenhub/leader/bench/result"
)

const module = "github.com/oxygenhub/leader"

// hello is a service that answers with what its database says. What a build adds to it replaces the lines of comment.
const hello = `package main

import (
	"context"
	"log"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	// imports
)

func main() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var text string
		if err := pool.QueryRow(r.Context(), "SELECT 'hello'").Scan(&text); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(text))
	})
	// use
	log.Fatal(http.ListenAndServe(":8080", handler))
}
`

const (
	importLeader = `"github.com/oxygenhub/leader"
`
	importGate = importLeader + `"github.com/oxygenhub/leader/leaderhttp"
`
	useLeader = `lead, err := leader.New(leader.PostgresPool(pool), leader.Options{Terms: true})
	if err != nil {
		log.Fatal(err)
	}
	go lead.Run(context.Background(), "hello", func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
`
	useGate = useLeader + `handler = leaderhttp.Gate(lead, "hello", handler, leaderhttp.GateOptions{})
`
)

// service is a program to build.
type service struct{ name, imports, use string }

// flags are those of a build.
type flags []string

// Size is how large a service that uses pgx already is without the library, with it, and with leaderhttp as well.
func Size(ctx context.Context, c Config) (rows []result.Row, err error) {
	dir, err := os.MkdirTemp(c.Dir, "size")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := moduleIn(ctx, dir); err != nil {
		return nil, err
	}
	services := []service{
		{"pgx", "", ""},
		{"leader", importLeader, useLeader},
		{"leader and leaderhttp", importGate, useGate},
	}
	const stripped = "-ldflags=-s -w"
	settings := []flags{{"-trimpath"}, {"-trimpath", stripped}}
	if c.Quick { // without the paths of -trimpath, most has been compiled for this program already
		settings, services = []flags{{stripped}}, services[:2]
	}
	t := newTable("size")
	for _, setting := range settings {
		for _, s := range services {
			size, err := s.build(ctx, dir, setting)
			if err != nil {
				return nil, fmt.Errorf("size of %s: %w", s.name, err)
			}
			t.add(column{peer: s.name, setting: strings.Join(setting, " "), measure: "binary", unit: "B"}, float64(size))
		}
	}
	t.note("binary", "A service that answers over HTTP from a pool of pgx.")
	return t.rows, nil
}

// moduleIn makes a module that needs what the library does. It asks no network: all of it has been built here before.
func moduleIn(ctx context.Context, dir string) error {
	root, err := command(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	_, err = command(ctx, dir, "go", "mod", "edit", "-module=hello", "-require="+module+"@v0.0.0", "-replace="+module+"="+root)
	return err
}

// build returns the size of the service.
func (s service) build(ctx context.Context, dir string, with flags) (int64, error) {
	text := strings.NewReplacer("// imports", s.imports, "// use", s.use).Replace(hello)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o600); err != nil {
		return 0, err
	}
	args := slices.Concat([]string{"go", "build", "-o", "hello.exe"}, with, []string{"."})
	if _, err := command(ctx, dir, args...); err != nil {
		return 0, err
	}
	info, err := os.Stat(filepath.Join(dir, "hello.exe"))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// command runs a program offline, and returns what it says.
func command(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	if dir != "" { // in a module of its own
		cmd.Env = append(cmd.Env, "GOWORK=off", "GOPROXY=off", "GOFLAGS=-mod=mod -buildvcs=false")
	}
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
