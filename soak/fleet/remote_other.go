// SPDX-License-Identifier: MIT

//go:build unix && !linux

package fleet

import "fmt"

func newRemote() (base, error) {
	return nil, fmt.Errorf("%w: hosts are network namespaces, which Linux has", ErrSkipped)
}
