// SPDX-License-Identifier: MIT

//go:build unix

package peer

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// JobEnv is the variable that holds the Job of a process, in JSON. The program that finds it set calls Work, and nothing else.
const JobEnv = "LEADER_BENCH_JOB"

// Job is what a process does.
type Job struct {
	Peer    string // with Setting, one of All
	Setting string
	Node    string
	Addr    string // of the store: a postgres:// URL, or host:port
	Name    string // what is contended for
}

// Orders that a process takes from its standard input, a line each. The end of the input ends the process.
const (
	Go   = "go"   // contend
	Stop = "stop" // stop the work, if there is any, give the leadership up, and contend no more until Go
)

// The kinds of events that a process says on its standard output, a line of JSON each.
const (
	Ready   = "ready"   // it takes orders
	Waiting = "waiting" // it has asked, and another one leads; from now on it stands by
	Leading = "leading" // it leads: the work begins
	Told    = "told"    // the work has been told that it leads no more, though nobody gave an order; it ends
	Stopped = "stopped" // the work has ended, because of Stop; the leadership is given up from here on
	Resting = "resting" // it has given up whatever it had, after Stop
)

// Event is what a process says. All processes of a machine share the clock.
type Event struct {
	Node string
	Kind string
	At   time.Duration // Now, when it happened
}

// Now is the time of the machine's monotonic clock. Go's own reading of it cannot be compared between processes.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("no monotonic clock: %v", err)) // POSIX has it
	}
	return time.Duration(ts.Nano())
}

// tape is where a process says what happens to it. Its methods may be called concurrently.
type tape struct {
	node string

	mu  sync.Mutex
	out io.Writer
	err error
}

// say takes the time first, so that writing is no part of what is measured.
func (t *tape) say(kind string) {
	e := Event{Node: t.node, Kind: kind, At: Now()}
	line, err := json.Marshal(e)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		_, err = t.out.Write(append(line, '\n'))
	}
	if t.err == nil {
		t.err = err
	}
}

func (t *tape) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
