// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/oxygenhub/leader"
)

// Kinds of messages to the program.
const (
	listens = "listens" // Addr
	leads   = "leads"   // Term
	stops   = "stops"   // Term
	trouble = "trouble" // Text
	exits   = "exits"   // not sent: the process has ended
)

// message is a line on the standard output of a process.
type message struct {
	Kind string      `json:"kind"`
	Addr string      `json:"addr,omitempty"`
	Term leader.Term `json:"term,omitempty"`
	Text string      `json:"text,omitempty"`

	node *node
}

// ordered returns what tells that the program wants this process to go: SIGTERM, or the end of its stdin, as when the
// program dies. Ctrl-C goes to all processes, and the program decides what to do.
func ordered() <-chan os.Signal {
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGHUP)
	leave := make(chan os.Signal, 2)
	signal.Notify(leave, syscall.SIGTERM)
	go func() { // ends with stdin
		_, _ = io.Copy(io.Discard, os.Stdin)
		leave <- syscall.SIGTERM
	}()
	return leave
}

// tell writes one line to the program: one write, so that lines do not mix.
func tell(m message) {
	line, err := json.Marshal(m)
	if err == nil {
		_, err = os.Stdout.Write(append(line, '\n'))
	}
	if err != nil {
		os.Exit(1) // the program is gone
	}
}
