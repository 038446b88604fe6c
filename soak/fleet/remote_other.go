// SPDX-License-Identifier: MIT

//go:build unix && !linux

package fleet

import (
	"fmt"

	"github.com/oxygenhub/leader/internal/pgtest"
)

func newRemote() (base, error) {
	return nil, fmt.Errorf("%w: hosts are network namespaces, which Linux has", pgtest.ErrSkipped)
}
