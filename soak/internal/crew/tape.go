// SPDX-License-Identifier: MIT

//go:build unix

package crew

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/oxygenhub/leader/soak/history"
)

// Now is the time of the machine's monotonic clock, which all processes share. Go's own reading of it cannot be compared
// between processes.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("no monotonic clock: %v", err)) // POSIX has it
	}
	return time.Duration(ts.Nano())
}

// Tape is a file of events that only grows. Its methods may be called concurrently.
type Tape struct {
	file  *os.File
	node  string
	place int
}

// Record opens the tape of a process, or that of the laboratory, whose node is "".
func Record(path, node string, place int) (*Tape, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &Tape{file: file, node: node, place: place}, nil
}

// Say appends a line, in one call of the kernel: whatever kills the process afterwards, it has been said. At is filled in
// if it is zero. A tape that cannot be written ends the process: it would be silent otherwise.
func (t *Tape) Say(e history.Event) {
	e.Node = t.node
	if t.node != "" {
		e.Place = t.place
	}
	if e.At == 0 {
		e.At = Now()
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = t.file.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "soak: tape %s: %v\n", t.file.Name(), err)
		os.Exit(3)
	}
}

// Close ends the tape.
func (t *Tape) Close() error { return t.file.Close() }

// Play returns what is on a tape. A line that was cut off is an error: no fault of the laboratory touches tapes.
func Play(path string) ([]history.Event, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	var events []history.Event
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e history.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("tape %s: line %d: %w", path, len(events)+1, err)
		}
		events = append(events, e)
	}
	return events, lines.Err()
}
