// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/oxygenhub/leader/bench/result"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// machine says what this one is, without its name.
func machine() string {
	text := fmt.Sprintf("%d processors, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return text // it is not Linux
	}
	if model := regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`).FindSubmatch(info); model != nil {
		text += ", " + strings.TrimSpace(string(model[1]))
	}
	return text
}

// versions are those of what takes part, as far as they are known.
func versions(ctx context.Context) []result.Version {
	all := []result.Version{{Name: "Go", Version: strings.TrimPrefix(runtime.Version(), "go")}}
	if server, err := pgtest.Version(ctx); err == nil { // else no work has had one
		all = append(all, result.Version{Name: "PostgreSQL", Version: strings.TrimPrefix(server, "postgres (PostgreSQL) ")})
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return all
	}
	peers := []string{
		"github.com/jackc/pgx/v5", "k8s.io/client-go", "go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/server/v3",
		"github.com/riverqueue/river", "github.com/go-co-op/gocron/v2",
	}
	for _, m := range info.Deps {
		if slices.Contains(peers, m.Path) {
			all = append(all, result.Version{Name: m.Path, Version: m.Version})
		}
	}
	return all
}
