// SPDX-License-Identifier: MIT

// Package interop has no Go but a test: leader.py and once.sh take turns with a Leader, by docs/protocol.md.
package interop
