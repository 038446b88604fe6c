// SPDX-License-Identifier: MIT

//go:build unix

package fleet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	soakModule    = "github.com/oxygenhub/leader/soak"
	workerPackage = soakModule + "/worker"
)

// Worker is the program of the fleet, built with one version of the library.
type Worker struct {
	Bin     string
	Version string
}

// BuildOld compiles the worker of here with the library as it was at a revision of the repository. What the worker says of
// itself stays the same, but the wall clock of an old version cannot be moved.
func BuildOld(ctx context.Context, dir, rev string) (Worker, error) {
	w := Worker{Bin: filepath.Join(dir, "worker-old"), Version: rev}
	old := filepath.Join(dir, "old")
	mod := filepath.Join(dir, "old.mod")
	here, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", soakModule)
	if err != nil {
		return w, err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(here, name))
		if err == nil {
			err = os.WriteFile(strings.TrimSuffix(mod, ".mod")+filepath.Ext(name), text, 0o600)
		}
		if err != nil {
			return w, err
		}
	}
	if err := os.Mkdir(old, 0o755); err != nil {
		return w, err
	}
	for _, step := range [][]string{
		{"git", "archive", "-o", old + ".tar", rev},
		{"tar", "-xf", old + ".tar", "-C", old},
		{"go", "mod", "edit", "-replace=github.com/oxygenhub/leader=" + old, mod},
		{"go", "build", "-mod=mod", "-modfile=" + mod, "-tags=noseam", "-buildvcs=false", "-o", w.Bin, "./worker"},
	} {
		where := here
		if step[0] == "git" { // of a folder it would archive the folder
			where = filepath.Dir(here)
		}
		if _, err := output(ctx, where, step...); err != nil {
			return w, fmt.Errorf("build the worker with %s: %w", rev, err)
		}
	}
	return w, nil
}

// output runs a command with the modules as they are, not as the work space has them.
func output(ctx context.Context, dir string, command ...string) (string, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	if dir != "" {
		cmd.Env = append(os.Environ(), "GOWORK=off")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// Build compiles the worker with the library as it is here.
func Build(ctx context.Context, dir, version string) (Worker, error) {
	w := Worker{Bin: filepath.Join(dir, "worker"), Version: version}
	args := []string{"build", "-buildvcs=false", "-o", w.Bin}
	if raceEnabled {
		args = append(args, "-race")
	}
	if out, err := exec.CommandContext(ctx, "go", append(args, workerPackage)...).CombinedOutput(); err != nil {
		return w, fmt.Errorf("build the worker: %w\n%s", err, out)
	}
	return w, nil
}
