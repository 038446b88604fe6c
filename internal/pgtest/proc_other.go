// SPDX-License-Identifier: MIT

//go:build !unix

package pgtest

import (
	"context"
	"errors"
	"os/exec"
)

// process is what runs on Unix. Elsewhere a server is reached by LEADER_TEST_POSTGRES_URL only.
type process struct {
	exited chan struct{}
	err    error
}

func launch(context.Context, *exec.Cmd, string) (*process, error) {
	return nil, errors.ErrUnsupported
}

func (*process) stop(string) error { return errors.ErrUnsupported }
func (*process) reload() error     { return errors.ErrUnsupported }
func unprivileged(*exec.Cmd) error { return errors.ErrUnsupported }
func give(string) error            { return nil }
