// SPDX-License-Identifier: MIT

// Package leadergrpc keeps gRPC calls to the process that leads a name.
package leadergrpc
