// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

const (
	markStart = "start"
	markTick  = "tick"
	markEnd   = "end"

	tickEvery   = 5 * time.Millisecond
	recordsGlob = "*.jsonl"
)

// mark is a line of a worker's record. The times of all processes are those of one machine's wall clock.
type mark struct {
	Worker string    `json:"worker"`
	Task   string    `json:"task"`
	Run    int64     `json:"run"` // counts the runs of the worker
	Kind   string    `json:"kind"`
	At     time.Time `json:"at"`
}

// recorder writes down what the tasks of one worker do. It knows nothing of locks: each worker has a file of its own,
// written without a buffer, so that a kill loses nothing.
type recorder struct {
	worker string
	file   *os.File
	runs   atomic.Int64
}

func newRecorder(dir, worker string) (*recorder, error) {
	file, err := os.OpenFile(filepath.Join(dir, worker+".jsonl"), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &recorder{worker: worker, file: file}, nil
}

func (r *recorder) close() error { return r.file.Close() }

// run is the task itself: it works until it is told to stop, and leaves its marks.
func (r *recorder) run(ctx context.Context, task string) error {
	m := mark{Worker: r.worker, Task: task, Run: r.runs.Add(1)}
	if err := r.write(&m, markStart); err != nil {
		return err
	}
	report(message{Kind: runs, Task: task, At: m.At})
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := r.write(&m, markTick); err != nil {
				return err
			}
		case <-ctx.Done():
			report(message{Kind: stops, Task: task})
			return r.write(&m, markEnd)
		}
	}
}

func (r *recorder) write(m *mark, kind string) error {
	m.Kind, m.At = kind, time.Now()
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = r.file.Write(append(line, '\n')) // one write: lines of several tasks do not mix
	return err
}

// span is one run of one task: what is known of it from its marks.
type span struct {
	task, worker string
	start, end   time.Time
	ended        bool // end is that of the mark, not of the last tick
}

func (s span) String() string {
	const clock = "15:04:05.000000"
	return fmt.Sprintf("%s from %s to %s", s.worker, s.start.Format(clock), s.end.Format(clock))
}

// departure is a worker's end, as the parent brought it about.
type departure struct {
	worker, how string
	at          time.Time
}

// readRuns returns the runs that the records in dir tell of, in order of task and start.
func readRuns(dir string) ([]span, error) {
	files, err := filepath.Glob(filepath.Join(dir, recordsGlob))
	if err != nil {
		return nil, err
	}
	var spans []span
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		// A kill may cut the last line off: only whole ones count.
		of, err := parseRuns(text[:bytes.LastIndexByte(text, '\n')+1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		spans = append(spans, of...)
	}
	slices.SortStableFunc(spans, func(a, b span) int {
		return cmp.Or(strings.Compare(a.task, b.task), a.start.Compare(b.start))
	})
	return spans, nil
}

// parseRuns reads the record of one worker.
func parseRuns(text []byte) ([]span, error) {
	var spans []span
	index := make(map[int64]int)
	lines := json.NewDecoder(bytes.NewReader(text))
	for {
		var m mark
		if err := lines.Decode(&m); err == io.EOF {
			return spans, nil
		} else if err != nil {
			return nil, err
		}
		i, known := index[m.Run]
		if known == (m.Kind == markStart) {
			return nil, fmt.Errorf("run %d of %s: unexpected %s", m.Run, m.Task, m.Kind)
		}
		if !known {
			i = len(spans)
			index[m.Run] = i
			spans = append(spans, span{task: m.Task, worker: m.Worker, start: m.At})
		}
		spans[i].end, spans[i].ended = m.At, m.Kind == markEnd
	}
}

// closeRuns ends the runs of killed workers: at the kill, or at the last tick if that is later. It returns the runs that
// have no end though nobody killed their worker.
func closeRuns(spans []span, departures []departure) (faults []error) {
	for i := range spans {
		s := &spans[i]
		if s.ended {
			continue
		}
		d := slices.IndexFunc(departures, func(d departure) bool { return d.worker == s.worker && d.how == killed })
		if d < 0 {
			faults = append(faults, fmt.Errorf("no end: %s: %v", s.task, *s))
			continue
		}
		if departures[d].at.After(s.end) {
			s.end = departures[d].at
		}
	}
	return faults
}

// overlaps returns the pairs of runs of one task that were going on at the same time.
func overlaps(spans []span) (faults []error) {
	for i, a := range spans {
		for _, b := range spans[i+1:] {
			if a.task == b.task && a.start.Before(b.end) && b.start.Before(a.end) {
				faults = append(faults, fmt.Errorf("overlap: %s: %v, and %v", a.task, a, b))
			}
		}
	}
	return faults
}

// takeover is the way of one task from a worker that left to another one.
type takeover struct {
	task, from, to, how string
	after               time.Duration // from the kill, or the order to resign, to the start in the other worker
}

// takeovers returns what became of the tasks that ran in a worker when it left, and which ones nobody took over.
func takeovers(spans []span, departures []departure) (moves []takeover, faults []error) {
	for _, d := range departures {
		for i, s := range spans {
			if s.worker != d.worker || s.end.Before(d.at) {
				continue
			}
			if i+1 == len(spans) || spans[i+1].task != s.task {
				faults = append(faults, fmt.Errorf("%s: nobody took over from %s", s.task, s.worker))
				continue
			}
			next := spans[i+1]
			moves = append(moves, takeover{s.task, s.worker, next.worker, d.how, next.start.Sub(d.at)})
		}
	}
	return moves, faults
}

func printMoves(out io.Writer, moves []takeover) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w, "task\tfrom\tto\thow\tms")
	for _, m := range moves {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.1f\n", m.task, m.from, m.to, m.how, m.after.Seconds()*1000)
	}
	_ = w.Flush()
}
