// SPDX-License-Identifier: MIT

package report

// story is what a reader has to know of a work, and which of its measures are drawn.
type story struct {
	title string
	text  string
	plots []string // measures
	base  base     // of the ratios
}

// stories are those of the works, by name. A work without one gets its tables only.
func stories() map[string]story {
	return map[string]story{
		"handover": {"Clean handover", `One process leads and one stands by. The holder is told to stop; the takeover is the time from the end of its work until the work
of the other one begins. Both processes live on and change places, so no start of a process is in the number. It does not say
how long the work itself needs to stop.`, []string{"takeover"}, base{}},
		"kill": {"A process that dies", `The process that leads gets a SIGKILL, at a random moment of its period. The takeover is the time from the signal until the work of
the other one begins. The machine lives on and closes the connections of the dead process. A host that vanishes is another case:
see the black hole.`, []string{"takeover"}, base{}},
		"session": {"A session that the server ends", `The server's process for the session that leads gets the signal that pg_terminate_backend sends. Told is the time until the work
hears of it, takeover the time until some process leads again, which may be the same one. Peers that do not lead by a session
of PostgreSQL have no number here. It does not say what happens if the news cannot reach the process.`, []string{"told", "takeover"}, base{}},
		"hole": {"A black hole", `From one moment on no byte passes between the holder and its store, in either direction, and no connection is closed. Told is the
time until the work is told to stop, takeover the time until the other process leads. Overlap is how long both have worked:
zero is the goal. The work here stops at once when it is told; work that needs time to stop adds that time.`, []string{"told", "takeover"}, base{}},
		"throughput": {"Acquire and release", `One process takes one free name and gives it back, over and over. A cycle is both. It says what short jobs cost, and nothing
about several processes that want the same name.`, nil, base{peer: "raw", setting: "PostgreSQL"}},
		"names": {"Cost, as names grow", `One process leads all names and one stands by for all of them. Statements, bytes and server CPU are per second, of one connection.
Beside them two loops without a library do as many tries and as many SELECT 1: *raw* has each statement parsed and planned anew, as
behind any pooler, *raw prepared* has it prepared, as the driver does by itself and this library from its first proof on. A standby
of this library also proves its session every two seconds, which is a fixed price for all names. Memory per name is that of our own
process, with the callers of Run. The figures are those of an idle fleet: nothing changes hands.`, []string{"standby statements", "standby bytes", "standby cpu"}, base{}},
		"processes": {"Cost, as processes grow", `One process leads and the others stand by, each with ten names. Statements, bytes, CPU and memory are per standby; what the whole
server needs is a measure of its own, in which the one that leads is counted. What few standbys cost is less than what a server does
by itself: see the work before. With Disconnect a standby has no connection between two tries: that is for fleets whose connections
are dearer than their CPU, and it is only cheap with a long Retry. The processes of the fleet live in one process of the benchmark, with a connection each,
which is the same for the server.`, []string{"statements", "cpu", "server cpu"}, base{}},
		"connect": {"A connect", `A try for a lock that somebody else has: on an open connection, over and over, and with a connect and an end each time, as a standby with
Disconnect needs them. That of this library has its self-test in it. The server's CPU is that of all its processes.`, []string{"try", "server cpu of a try"}, base{peer: "raw", setting: "on an open connection"}},
		"herd": {"A herd of standbys", `A hundred standbys wait for one name, which its holder gives up. The takeover is the time until one of them leads. The tries are the
statements for the lock that the release has caused, per standby. All live in one process of the benchmark, so they share its
CPU with each other and with the server.`, []string{"takeover"}, base{}},
		"fence": {"Fence", `A transaction that begins, fences and commits, against one that begins, selects nothing and commits, by turns on the same pool. The
difference is what the fence adds to a write. It does not say what a transaction waits for when others write too.`, nil, base{peer: "SELECT 1", sameSetting: true}},
		"hot": {"Hot paths", `Calls that a service makes for each request, on one goroutine. None of them asks the database. The time of a call is that of many
calls in a loop, whose data stays in the cache of the processor.`, nil, base{peer: "time.Now"}},
		"start": {"Start", `The time from New until the first task runs, when nobody holds the name. The database is on the same machine: a distant one adds its
round trips.`, nil, base{peer: "raw", setting: "PostgreSQL"}},
		"size": {"Size of a program", `The bytes of a small service that uses a pool of pgx, without and with this library. What counts is the difference.`, nil, base{peer: "pgx", sameSetting: true}},
	}
}
