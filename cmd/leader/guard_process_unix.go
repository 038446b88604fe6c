// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"bufio"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// guard is the guard's process. It ends when its input does.
func (a *app) guard([]string) (int, error) {
	// They are for the command; whoever ends a service sends them to all of its processes. And who reads the answers may be gone.
	signal.Ignore(append(endingSignals(), syscall.SIGPIPE)...)
	lines := make(chan string)
	go func() { // until the end of the input, which is that of this process
		defer close(lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
	}()
	group := 0
	kill := func() {
		if group > 1 {
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
	}
	late := time.NewTimer(0)
	late.Stop()
	for {
		select {
		case line, more := <-lines:
			if !more {
				kill()
				return 0, nil
			}
			verb, text, _ := strings.Cut(line, " ")
			n, _ := strconv.Atoi(text)
			switch verb {
			case "run":
				group = n
			case "end":
				group = 0
				late.Stop()
			case "for":
				late.Reset(time.Duration(n) * time.Millisecond)
			}
			_, _ = os.Stdout.WriteString("\n")
		case <-late.C:
			kill()
		}
	}
}
