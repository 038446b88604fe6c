// SPDX-License-Identifier: MIT

// Package leadergocron has the jobs of github.com/go-co-op/gocron/v2 run in one process of a fleet. An [Elector] keeps all jobs of
// a scheduler to the process that leads a name:
//
//	elector, err := leadergocron.NewElector(l, "scheduler")
//	...
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//	...
//	_, err = scheduler.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(elector.Task(sendInvoices)))
//	...
//	scheduler.Start()
//	err = elector.Run(ctx) // contends until ctx ends
//	...
//	err = scheduler.Shutdown()
//
// A [Locker] has a lock for each job instead, which it takes at each tick, so that the jobs spread over the fleet.
//
// # Which of them
//
// Take the Elector. The clocks of two nodes are never the same. A Locker that is asked a second late, for a job that has run
// elsewhere in less than that, finds the lock free, and the job runs twice for one tick. [LockerOptions.MinHold] makes that
// less likely, and no more: it covers clocks that differ by less, and only while the process and its session live. An Elector
// decides once for all ticks. There a tick can be run twice only if a takeover comes between, at a process whose clock is
// behind. Processes also count the intervals of a gocron.DurationJob from times of their own, so that under a Locker each runs a
// short one. A Locker also connects to the database for a tick if the last was more than some seconds ago; an Elector stays
// connected.
//
// gocron takes no locks if a scheduler has an Elector, so the two do not add up.
//
// # Jobs that hear of a loss
//
// gocron asks before a run and never again. It gives a function whose first parameter is a context that of the job, which is the
// same for all of its runs and ends when the job is removed or the scheduler stops, but not when a lock is lost. [Elector.Task]
// and [Locker.Task] wrap a function: its context is also that of the leadership. It ends with a cause that wraps
// [leader.ErrLost] when the lock is lost, and [leader.TermOf], [leader.Confirm], [leader.Deadline] and the Fence functions
// take it. A run that has lost its lock ends with an error, for gocron.AfterJobRunsWithError.
//
// # The end
//
// Nothing is given back under a job that runs, as far as it can be known. When the context of Run ends, wrapped jobs are told,
// and Run returns when they have returned and the locks are given back. A Locker knows of all jobs, as gocron unlocks after
// each. An Elector knows only of those that are wrapped: if there are others, call Shutdown of the scheduler first, and end the
// context of Run when it has returned nil. Shutdown gives up on jobs after gocron.WithStopTimeout; Run never does.
//
// # Not guaranteed
//
// That each tick is run: one that comes while nobody leads yet, or while the database does not answer, is skipped, and gocron
// does not make up for it. Nor that none is run twice: where that matters, note in the database what has been done, as
// examples/cron does. Nor that a job that has lost its lock stops: nothing can make it, and an unwrapped one does not even
// hear of it. What must not be written by a process that has led once has to be fenced: [leader.Fence] takes the context of a
// wrapped task.
package leadergocron
