// SPDX-License-Identifier: MIT

package leader

import (
	"time"

	"github.com/oxygenhub/leader/internal/seam"
)

//nolint:gochecknoinits // what only tests may do is kept out of the API so
func init() {
	seam.Kill = func(l any) bool { return l.(*Leader).kill() }
	seam.Skew = func(l any, d time.Duration) { l.(*Leader).clock.skew.Add(int64(d)) }
}

// kill cuts the connection of the current session behind the back of its worker.
func (l *Leader) kill() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		return false
	}
	l.current.session.kill()
	return true
}
