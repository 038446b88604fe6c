// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

const (
	taskWidth   = 19
	workerWidth = 14

	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
)

// screen shows lines of text and, below them on a terminal, a table that is redrawn in place.
type screen struct {
	out     io.Writer
	live    bool // out is a terminal that understands escape sequences
	colour  bool
	started time.Time
	height  int      // of the table that is on the terminal
	table   []string // what it says
}

func newScreen(out *os.File) *screen {
	s := &screen{out: out, started: time.Now()}
	// A console of Windows wants to be asked for escape sequences first: it gets the plain lines.
	if info, err := out.Stat(); err == nil && runtime.GOOS != "windows" && os.Getenv("TERM") != "dumb" {
		s.live = info.Mode()&os.ModeCharDevice != 0
	}
	s.colour = s.live && os.Getenv("NO_COLOR") == ""
	return s
}

// chapter says what happens next.
func (s *screen) chapter(format string, args ...any) {
	s.lines("", s.paint(bold, fmt.Sprintf(format, args...)))
}

// say writes a line that stays, with the time since the start.
func (s *screen) say(format string, args ...any) {
	s.lines(fmt.Sprintf("%6.2f s  %s", time.Since(s.started).Seconds(), fmt.Sprintf(format, args...)))
}

// lines writes lines above the table.
func (s *screen) lines(lines ...string) {
	table := s.table
	s.erase()
	for _, line := range lines {
		_, _ = fmt.Fprintln(s.out, line)
	}
	s.print(table)
}

// draw brings the table up to date.
func (s *screen) draw(workers []*worker) {
	if !s.live {
		return
	}
	row := func(head string, cell func(*worker) string) string {
		cells := make([]string, len(workers))
		for i, w := range workers {
			cells[i] = cell(w)
		}
		return s.cell("", taskWidth, head) + strings.Join(cells, "")
	}
	table := []string{
		"",
		row("", func(w *worker) string { return s.cell(bold, workerWidth, w.name) }),
		row("", s.workerCell),
	}
	for _, task := range tasks {
		table = append(table, row(task, func(w *worker) string { return s.taskCell(w, task) }))
	}
	s.erase()
	s.print(table)
}

// workerCell shows what is the matter with a worker.
func (s *screen) workerCell(w *worker) string {
	switch {
	case w.how == killed:
		return s.cell(red, workerWidth, w.how)
	case w.how != "":
		return s.cell(dim, workerWidth, w.how)
	}
	return s.cell(dim, workerWidth, fmt.Sprint("pid ", w.cmd.Process.Pid))
}

// taskCell shows what one task is to one worker.
func (s *screen) taskCell(w *worker, task string) string {
	since, running := w.runs[task]
	switch {
	case running:
		return s.cell(green, workerWidth, fmt.Sprintf("runs %.1f s", time.Since(since).Seconds()))
	case w.asked[task] && w.how == "" && !w.over:
		return s.cell(dim, workerWidth, "stands by")
	}
	return s.cell(dim, workerWidth, "-")
}

// cell pads before it paints: escape sequences have no width.
func (s *screen) cell(colour string, width int, text string) string {
	return s.paint(colour, fmt.Sprintf("%-*s", width, text))
}

func (s *screen) paint(colour, text string) string {
	if !s.colour || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// print puts the table below everything else.
func (s *screen) print(table []string) {
	s.table, s.height = table, len(table)
	for _, line := range table {
		_, _ = fmt.Fprintln(s.out, line)
	}
}

// erase takes the table off the terminal.
func (s *screen) erase() {
	if s.height > 0 {
		_, _ = fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.height)
	}
	s.table, s.height = nil, 0
}

// finish takes the table away for good: what the recorder says takes its place.
func (s *screen) finish() {
	s.erase()
	s.live = false
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
