// SPDX-License-Identifier: MIT

package report

// reading says how to read the tables.
const reading = `A *ratio* is the number of its row over that of this library at its defaults, or over that of the row that the head of its column
names: 2 is twice as long, or twice as much. Where contenders were measured in turn it is the median of the ratios of all rounds,
else the ratio of the medians. Of fewer than 100 samples the 99th percentile would be the largest, and is not printed (–). A drawing has a dot for each sample and a bar for the median, or a line through the medians, and a
logarithmic scale, which has no place for zero. CPU is time of one processor: 1 ms/s is a thousandth of it. All numbers are in
[benchmarks.json](benchmarks.json).

*leader* is this library, *raw* a loop on the driver without a library, *blocked* a standby that blocks in pg_advisory_lock.
*gocron* is not a lock of its own: it is a job of gocron with the Elector of [leadergocron](gocron.md), so it is this library and the wait
for the job's next run.
`

// fairness says what the comparison rests on.
const fairness = `- *defaults* is what you get if you set nothing. client-go's election has no defaults: its row has the times of Kubernetes' own
  components, and ReleaseOnCancel, which is off unless you set it. Without it a clean handover takes as long as a crash. With it
  client-go does worse in the black hole, as told there.
- Peers that lead by a lease have long ones on purpose: who leads stays the same while the store is away for less than that. A row
  with a short lease shows what they can do. This library notices a process that dies by its connection, which the kernel
  closes, and needs no lease for that; where no word comes, as in the black hole, it waits for a time as they do.
- Everything is on one machine, over loopback and without TLS. PostgreSQL runs without fsync, and so does etcd, but with it in the
  works where commits count: acquire and release, fence, start. In a network each step costs its round trips.
- etcd has one node, in the process of the benchmark. In place of a Kubernetes API server there is a small one for leases, which are
  in memory: the fake clientset of client-go is for one process, and lets two updates of the same version pass, so two processes
  could both lead. A real cluster of either is slower: what is here favours them.
- Contenders with milliseconds to compare have their turns on a machine that is quiet otherwise. Pairs that do little but wait for
  seconds wait side by side, some dozens at a time: client-go and gocron in the clean handover, all peers when a process
  dies, and everybody in the black hole. That costs them milliseconds.
- Costs are compared with raw loops only: a lease is written to another store, or to a table, and what that costs there was not
  measured.
`

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
the other one begins. The machine lives on and closes the connections of the dead process, for which this library waits and a lease does not. A host
that vanishes is another case: see the black hole.`, []string{"takeover"}, base{}},
		"session": {"A session that the server ends", `The server's process for the session that leads gets the signal that pg_terminate_backend sends. Told is the time until the work
hears of it, takeover the time until some process leads again, which may be the same one. Peers that do not lead by a session
of PostgreSQL have no number here. It does not say what happens if the news cannot reach the process.`, []string{"told", "takeover"}, base{}},
		"hole": {"A black hole", `From one moment on no byte passes between the holder and its store, in either direction, and no connection is closed. Told is the
time until the work is told to stop, takeover the time until the other process leads. Overlap is how long both have worked:
zero is the goal. The work here stops at once when it is told; work that needs time to stop adds that time. client-go with
ReleaseOnCancel first tries to release its lease, for half of RenewDeadline and at least a second, and only then ends the context
of its work: without ReleaseOnCancel it would tell that much earlier, at the defaults before another leads.`, []string{"told", "takeover"}, base{}},
		"throughput": {"Acquire and release", `One process takes one free name and gives it back, over and over. A cycle is both, and more of them are better. It says what short jobs cost, and nothing
about several processes that want the same name.`, nil, base{peer: "raw", setting: "PostgreSQL"}},
		"names": {"Cost, as names grow", `One process leads all names and one stands by for all of them. Statements, bytes and server CPU are per second, of one connection.
Beside them two loops without a library do as many tries and as many SELECT 1: *raw* has each statement parsed and planned anew, as
behind any pooler, *raw prepared* has it prepared, as the driver does by itself and this library from its first proof on. A standby
of this library also proves its session every two seconds, which is a fixed price for all names. Memory per name is that of our own
process, with the callers of Run. The figures are those of an idle fleet: nothing changes hands.`, []string{"standby statements", "standby bytes", "standby cpu"}, base{}},
		"processes": {"Cost, as processes grow", `One process leads ten names, and as many as the column *processes* says stand by for them. Statements, bytes, CPU and memory are per
standby, over what the server needs with the leader alone; *server cpu* is that of the whole server, leader included, and
*server processes* those that the standbys add. What a single standby costs is less than what a server does by itself: it is in the
section before. A memory around or below zero means that there is nothing to see. With Disconnect a standby has no connection between two tries: that is for fleets whose connections
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
