// SPDX-License-Identifier: MIT

//go:build unix && !linux

package fleet

import "errors"

func mountSmall(string) error { return errors.ErrUnsupported }
func unmount(string)          {}
