// SPDX-License-Identifier: MIT

package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// template is a server that keeps a copy of its data as they were before it ran: to copy that takes half the time of initdb.
var template struct { //nolint:gochecknoglobals // one for all tests of the binary
	mu    sync.Mutex
	owner *Server // in whose folder it is, and with which it goes; nil without one
}

func (s *Server) template() string { return filepath.Join(s.dir, "template") }

// fill makes the data of s.
func (s *Server) fill(ctx context.Context) error {
	template.mu.Lock()
	defer template.mu.Unlock()
	if owner := template.owner; owner != nil && owner.in.bin == s.in.bin {
		return copyData(ctx, owner.template(), s.data())
	}
	if err := s.initdb(ctx); err != nil {
		return err
	}
	if err := copyData(ctx, s.data(), s.template()); err != nil {
		return err
	}
	template.owner = s
	return nil
}

// remove removes all that s wrote.
func (s *Server) remove() error {
	template.mu.Lock()
	defer template.mu.Unlock()
	if template.owner == s {
		template.owner = nil
	}
	return os.RemoveAll(s.dir)
}

// copyData copies a folder with its owners and modes, of which the server is particular.
func copyData(ctx context.Context, from, to string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-Rp", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the data: %w: %s", err, out)
	}
	return nil
}
