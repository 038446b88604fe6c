// SPDX-License-Identifier: MIT

// Package leader runs named tasks in exactly one process of many, on the database that they already share.
//
// # Overview
//
// Every copy of a service makes a [Leader] and calls [Leader.Run] with the same names. For each name one copy holds a
// lock and runs the task; the others stand by and take over when the lock is free. The lock is a session-level advisory
// lock on PostgreSQL and a kernel file lock beside the database file on SQLite. There is no server to add, no table unless
// Options.Terms asks for it, and one connection per process, whatever the number of names.
//
// # Usage
//
// Make one Leader per process, and call Run in a goroutine for each task:
//
//	opts := leader.Options{Namespace: "billing", Logger: slog.Default()}
//	lead, err := leader.New(leader.Postgres(os.Getenv("DATABASE_URL")), opts)
//	if err != nil {
//		return err
//	}
//	err = lead.Run(ctx, "invoices", func(ctx context.Context) error {
//		for { // for as long as this process leads
//			if err := sendDueInvoices(ctx); err != nil {
//				log.Print(err) // and try again in a minute: a task that returns is over for this process
//			}
//			select {
//			case <-ctx.Done(): // told to stop, or the lock was lost
//				return context.Cause(ctx)
//			case <-time.After(time.Minute):
//			}
//		}
//	})
//
// Run is what most callers want. [Leader.Try] is for jobs that some process should run now, if none does so already.
// [Leader.Resign] ends all of it before a process exits. [Leader.IsLeading] and [Confirm] answer without asking anybody.
// [Leader.Join] and [Leader.Known] are for gates, as leaderhttp has them. A task that cannot work here returns [StepDown].
// [Leader.Status], [Leader.Watch] and [Leader.Holder] are for people and monitoring.
//
// # States
//
// A call of Run goes through these states, which [TaskStatus] shows:
//
//	+------------+   session opened   +------------+
//	| connecting | -----------------> | contending | <---------+
//	|            | <----------------- |            |           |
//	+------------+    session over    +------------+           |
//	                                        | lock granted     |
//	                                        v                  |
//	                                  +------------+           |
//	                                  |  takeover  |           |  only with Options.Terms: until
//	                                  +------------+           |  the term has begun
//	                                        |                  |
//	                                        v                  |
//	                                  +------------+           |
//	                                  |  leading   |           |
//	                                  +------------+           |
//	the lock was lost, ctx ended, Resign,   |                  |
//	or the task returned                    v                  |
//	+------------+    StopTimeout     +------------+           |
//	|  overrun   | <----------------- |  stopping  |           |
//	+------------+                    +------------+           |
//	      |                                 |                  |
//	      +------ the task returned --------+                  |
//	                                        |                  |
//	                                        +-- after a loss, -+
//	                                        |   or a StepDown: cooling first
//	                                        |
//	                                        | otherwise
//	                                        v
//	                       released: the lock is free, Run returns
//
// A loss is the end of the session (by the server, by the network, by the lease) or of one lock in it. The task's context
// ends with a cause that wraps [ErrLost]. A task that does not return is never given up for another run of it: this
// process starts no second one beside it.
//
// # Guarantees
//
//   - A clean handover never overlaps: the lock is given back only after the task has returned.
//   - With a silent server or network, a task is told to stop when the last good proof is Options.Lease old. On
//     PostgreSQL that is at least Options.SessionTimeout - Options.Lease before the server frees its lock.
//   - When the server ends the session, tasks are told as soon as the connection says so.
//   - When a process dies, its locks are free at once, and a standby leads at its next Options.Retry.
//   - Waiting blocks nothing else in the database: no open transaction, no blocked lock waiter.
//   - The end of a session voids all its locks together. The trouble of one name touches no other name.
//   - With Options.Terms, no write that was fenced with a term commits after a later term has begun, and terms of a name
//     strictly increase. docs/fencing.md has more.
//   - Nothing waits on the code of the user: hooks, log handlers, readers of events and stuck tasks delay no proof.
//
// docs/guarantees.md gives the bounds, the reasons and the tests.
//
// # What is not guaranteed
//
// A process that was frozen after it looked may still write when it wakes, after another has taken over; no lock service
// can prevent that. [Confirm] right before a write makes the gap small and does not close it. [Fence] does, in the
// database that has the locks; for other systems there is the [Term].
//
// When the server ends a session, another process may start at once, while the old task is still stopping. If the end of
// the session does not reach the process, as when the primary's host dies and a replica is promoted, that overlap is up
// to Options.Lease plus the time that the task takes to stop. Locks of different databases do not exclude each other, and
// neither do those of an old primary that lives on and of a promoted replica.
//
// Poolers in transaction or statement mode break session locks, and so do servers that only look like PostgreSQL. They are
// tested for at each connect and refused with [ErrUnsupported]; that finds all that are known, and can prove no more.
// Connect to the server itself, or through a pooler in session mode. docs/postgres.md has the details.
//
// # Concurrency
//
// All methods and functions may be called concurrently. A task runs in the goroutine of its call of Run. Beside that a
// Leader has one goroutine that owns its state and one that owns its session, and for a while one that dials or one that
// writes the log: the same few for one name or for ten thousand. They start with the first call that needs them and end
// a few seconds after the last one has returned, or with Resign.
package leader
