// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

// reaper waits for all children of this process in one place: also for those that the command leaves behind, which adopt makes
// ours, and of which nobody else would take notice. A service may leave thousands.
type reaper struct {
	mu    sync.Mutex // also held while a process starts, so that none ends before it is known
	ended map[int]func(syscall.WaitStatus)
}

// newReaper reaps until stop.
func newReaper() (r *reaper, stop func()) {
	adopt()
	r = &reaper{ended: make(map[int]func(syscall.WaitStatus))}
	news := make(chan os.Signal, 1)
	signal.Notify(news, syscall.SIGCHLD)
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // until stop
		for {
			select {
			case <-news:
				r.reap()
			case <-over:
				return
			}
		}
	})
	return r, func() {
		signal.Stop(news)
		close(over)
		wg.Wait()
	}
}

// start starts cmd, and calls ended in the goroutine of the reaper when that has ended.
func (r *reaper) start(cmd *exec.Cmd, ended func(syscall.WaitStatus)) (pid int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid = cmd.Process.Pid
	r.ended[pid] = ended
	_ = cmd.Process.Release() // Wait is not for us
	return pid, nil
}

// reap takes notice of all that have ended.
func (r *reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if pid <= 0 {
			return
		}
		if ended := r.ended[pid]; ended != nil {
			delete(r.ended, pid)
			ended(ws)
		}
	}
}
