// SPDX-License-Identifier: MIT

//go:build unix

package fleet

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

const workerPackage = "github.com/oxygenhub/leader/soak/worker"

// Worker is the program of the fleet, built with one version of the library.
type Worker struct {
	Bin     string
	Version string
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
