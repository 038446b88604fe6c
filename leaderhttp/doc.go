// SPDX-License-Identifier: MIT

// Package leaderhttp shows a [leader.Leader] to HTTP: a gate for what only the leader may serve, answers for health
// checks, and a page for people. It needs nothing but net/http.
//
// # The gate
//
// [Gate] stands before a handler whose work belongs to the leader of a name. Where this process leads, a request passes, and
// its context belongs to the leadership: leader.TermOf, leader.Confirm and the Fence functions take it, and it ends when
// that leadership ends. Elsewhere, requests that only read are served all the same, and all others are refused with the
// address of the leader, redirected, or forwarded, as [GateOptions].Mode says.
//
// # What a client gets to see
//
//   - 503 with the code NOT_LEADER: nothing was done. Try again, at the address in the header Leader-Addr if there is one, or
//     after Retry-After. Nobody is named who is not known to lead now, and never the process that answers.
//   - 307: the same, with the address in Location.
//   - 502 with the code LEADER_UNREACHABLE: the request was forwarded, and nobody knows whether the leader has done it.
//   - A stream or a connection that breaks off: its leadership is over. Begin a new one, which finds the next leader.
//
// The body of the first and of the third is JSON:
//
//	{"error":{"code":"NOT_LEADER","message":"this process does not lead \"orders\"","leader_node":"b","leader_addr":"10.0.0.2:8080","term":1764701000123,"age_ms":80}}
//
// The fields about the leader are empty if nobody is known to lead. age_ms is how old that knowledge is, and null then.
//
// # What is guaranteed
//
// No request passes while this process does not lead, in the sense of [leader.Leader.IsLeading]. A request that has passed is
// told of the end of its leadership by its context, whose cause then wraps leader.ErrLost, also if this process leads
// again by then. What does not heed its context is cut off a second later (GateOptions.Grace): see [Gate].
//
// # What is not guaranteed
//
// A handler that was let in may still run when another process leads, as may any task: nothing can stop it. Writes that must
// not happen then need fencing, with the context of the request (docs/fencing.md).
//
// # Concurrency
//
// All handlers may be used concurrently, and take no lock that requests share, except where a request is refused, redirected
// or forwarded. None of them waits for the database.
package leaderhttp
