// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/oxygenhub/leader"
)

// worker is the program's view of a worker process.
type worker struct {
	name    string
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	proxy   *proxy      // between its locks and PostgreSQL
	term    leader.Term // its last one
	holding bool        // it is in the middle of a write
	outcome string      // what became of a write: wrote, refused or stops
	killed  bool
}

// fleet is the workers. All of it belongs to one goroutine, but for messages.
type fleet struct {
	table    *table
	unfenced bool
	started  time.Time
	alive    map[*worker]struct{}
	leader   *worker // the last one that said so
	messages chan message
	trouble  string // the last one that a worker told of
	err      error  // a worker failed
	stopping bool
}

func newFleet(t *table, unfenced bool) *fleet {
	return &fleet{table: t, unfenced: unfenced, started: time.Now(), alive: map[*worker]struct{}{}, messages: make(chan message)}
}

func (f *fleet) how() string {
	if f.unfenced {
		return ", without Fence"
	}
	return ", each row through Fence"
}

func (f *fleet) chapter(format string, args ...any) { fmt.Printf("\n"+format+"\n", args...) }

func (f *fleet) say(format string, args ...any) {
	fmt.Printf("%6.2f s  %s\n", time.Since(f.started).Seconds(), fmt.Sprintf(format, args...))
}

// start starts a worker: this very program.
func (f *fleet) start(name string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	w := &worker{name: name}
	if w.proxy, err = newProxy(f.table.dial); err != nil {
		return err
	}
	w.cmd = exec.CommandContext(context.Background(), self, workerArg, name, f.table.name, w.proxy.addr(), strconv.FormatBool(f.unfenced))
	w.cmd.Stderr = os.Stderr
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := w.cmd.Start(); err != nil {
		return err
	}
	f.alive[w] = struct{}{}
	go f.listen(w, stdout) // ends with the process; stop waits for it
	return nil
}

// listen hands the lines of a worker on, and then its end.
func (f *fleet) listen(w *worker, stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		m := message{worker: w}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			m.Kind, m.Text = trouble, lines.Text()
		}
		f.messages <- m
	}
	_ = w.cmd.Wait() // ProcessState says it as well
	f.messages <- message{Kind: exits, worker: w}
}

// until handles what the workers say until done says so.
func (f *fleet) until(ctx context.Context, what string, done func() bool) error {
	late := time.NewTimer(10 * time.Second)
	defer late.Stop()
	for !done() {
		if err := f.err; err != nil && !f.stopping {
			f.err = nil // stop tells what comes later
			return err
		}
		select {
		case m := <-f.messages:
			f.handle(m)
		case <-late.C:
			return fmt.Errorf("waited too long until %s; last trouble: %s", what, f.trouble)
		case <-ctx.Done():
			return errors.New("interrupted")
		}
	}
	return nil
}

// look leaves half a second to see it.
func (f *fleet) look(ctx context.Context) {
	end := time.Now().Add(500 * time.Millisecond)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	_ = f.until(ctx, "", func() bool { return false }) // the next one tells of an interrupt or a failure
}
