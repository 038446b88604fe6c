// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// writer is a client that writes one number after another, whatever is done to the service.
type writer struct {
	book   *book
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	acks    []ack
	again   int           // requests that did not write for sure
	slowest time.Duration // write, from its first request to its acknowledgement
	err     error         // a write has failed
}

func startWriter(b *book) *writer {
	ctx, cancel := context.WithCancel(context.Background())
	w := &writer{book: b, cancel: cancel, ended: make(chan struct{})}
	go w.run(ctx) // ends with stop, or when a write fails
	return w
}

// run gives each write 15 s, also the last one: nothing is left half done.
func (w *writer) run(ctx context.Context) {
	defer close(w.ended)
	for n := 0; ctx.Err() == nil; n++ {
		begun := time.Now()
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		ack, err := write(within, w.book, fmt.Sprint("counter-", n%5), fmt.Sprint(n), w.count)
		cancel()
		w.mu.Lock()
		w.slowest = max(w.slowest, time.Since(begun))
		if err == nil {
			w.acks = append(w.acks, ack)
		}
		w.err = err
		w.mu.Unlock()
		if err != nil {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (w *writer) count(_ string, _ time.Time, a answer, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || a.status >= 300 {
		w.again++
	}
}

// tell returns how it goes since the last call, and an error if a write has failed.
func (w *writer) tell() (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := fmt.Sprintf("the client: %d writes acknowledged, %d requests sent on or again, the slowest write took %v",
		len(w.acks), w.again, w.slowest.Round(time.Millisecond))
	w.slowest = 0
	return text, w.err
}

// stop lets the last write end.
func (w *writer) stop() []ack {
	w.cancel()
	<-w.ended
	return w.acks
}
