// SPDX-License-Identifier: MIT

//go:build unix && !race

package fleet

const raceEnabled = false
