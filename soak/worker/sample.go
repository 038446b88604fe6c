// SPDX-License-Identifier: MIT

//go:build unix

package main

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/oxygenhub/leader/soak/history"
)

// sample says each second what the process has.
func (w *worker) sample(ctx context.Context) {
	for pause(ctx, time.Second) {
		runtime.GC() // what is left is in use
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		w.tape.Say(history.Event{
			Kind: history.Sample, Goroutines: runtime.NumGoroutine(), Heap: int64(memory.HeapAlloc), Files: files(),
		})
	}
}

// files counts the open ones, where the system says.
func files() int {
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		if entries, err := os.ReadDir(dir); err == nil {
			return len(entries)
		}
	}
	return 0
}
