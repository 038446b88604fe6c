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
	"time"

	"github.com/oxygenhub/leader"
)

// node is the program's view of a process of the service.
type node struct {
	settings
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	addr   string
	killed bool
	over   bool
}

// fleet is the processes. All of it belongs to one goroutine, but for messages and book.
type fleet struct {
	db       *database
	book     *book
	started  time.Time
	nodes    map[string]*node // the last one of each name
	alive    map[*node]struct{}
	leader   *node                  // the last one that said so
	led      map[leader.Term]string // who said that it leads under a term
	messages chan message
	trouble  string // the last one that a process told of
	err      error  // a process failed
	stopping bool
	quiet    bool
}

func newFleet(db *database) *fleet {
	return &fleet{
		db: db, book: newBook(), started: time.Now(), nodes: map[string]*node{}, alive: map[*node]struct{}{},
		led: map[leader.Term]string{}, messages: make(chan message),
	}
}

func (f *fleet) chapter(format string, args ...any) { fmt.Printf("\n"+format+"\n", args...) }

func (f *fleet) say(format string, args ...any) {
	if !f.quiet {
		fmt.Printf("%6.2f s  %s\n", time.Since(f.started).Seconds(), fmt.Sprintf(format, args...))
	}
}

// start starts a process: this very program.
func (f *fleet) start(set settings) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	set.Database = f.db.name
	arg, err := json.Marshal(set)
	if err != nil {
		return err
	}
	n := &node{settings: set}
	n.cmd = exec.CommandContext(context.Background(), self, nodeArg, string(arg))
	n.cmd.Stderr = os.Stderr
	if n.stdin, err = n.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := n.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := n.cmd.Start(); err != nil {
		return err
	}
	f.alive[n], f.nodes[set.Name] = struct{}{}, n
	go f.listen(n, stdout) // ends with the process; stop waits for it
	return nil
}

// listen hands the lines of a process on, and then its end.
func (f *fleet) listen(n *node, stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		m := message{node: n}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			m.Kind, m.Text = trouble, lines.Text()
		}
		f.messages <- m
	}
	_ = n.cmd.Wait() // ProcessState says it as well
	f.messages <- message{Kind: exits, node: n}
}

// handle takes up what a process says.
func (f *fleet) handle(m message) {
	n := m.node
	switch m.Kind {
	case listens:
		n.addr = m.Addr
		f.book.put(n.Name, m.Addr)
	case leads:
		f.leader, f.led[m.Term] = n, n.Name
		f.say("%s leads under term %d, and recovers", n.Name, m.Term)
	case stops:
		f.say("%s leads no more: %s", n.Name, m.Text)
	case trouble:
		f.trouble = n.Name + ": " + m.Text
	case exits:
		delete(f.alive, n)
		n.over = true
		if state := n.cmd.ProcessState; !n.killed && !state.Success() {
			f.err = errors.Join(f.err, fmt.Errorf("process %s has ended: %v", n.Name, state))
		}
	}
}

// until handles what the processes say until done says so.
func (f *fleet) until(ctx context.Context, what string, done func() bool) error {
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !done() {
		if err := f.err; err != nil && !f.stopping {
			f.err = nil // stop tells what comes later
			return err
		}
		select {
		case m := <-f.messages:
			f.handle(m)
		case <-look.C:
		case <-late.C:
			return fmt.Errorf("waited too long until %s; last trouble: %s", what, f.trouble)
		case <-ctx.Done():
			return errors.New("interrupted")
		}
	}
	return nil
}
