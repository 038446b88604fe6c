// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/oxygenhub/leader/leaderhttp"
)

// look leaves half a second to see it.
func (f *fleet) look(ctx context.Context) error {
	end := time.Now().Add(500 * time.Millisecond)
	return f.until(ctx, "", func() bool { return time.Now().After(end) })
}

// up waits until a process is ready: it stands by or leads.
func (f *fleet) up(ctx context.Context, name string) error {
	n := f.nodes[name]
	return f.until(ctx, name+" is ready", func() bool { return n.addr != "" && f.status(ctx, n, "/ready") == 200 })
}

// serves waits until a leader of another process than not has its engine.
func (f *fleet) serves(ctx context.Context, not *node) error {
	err := f.until(ctx, "somebody leads and serves", func() bool {
		return f.leader != nil && f.leader != not && !f.leader.over && f.status(ctx, f.leader, "/leader") == 200
	})
	if err == nil {
		f.say("%s serves", f.leader.Name)
	}
	return err
}

// leave tells a process to stop, and waits until it has.
func (f *fleet) leave(ctx context.Context, n *node) error {
	if err := signalLeave(n); err != nil {
		return err
	}
	return f.until(ctx, n.Name+" has ended", func() bool { return n.over })
}

func (f *fleet) kill(n *node) error {
	n.killed = true
	return n.cmd.Process.Kill()
}

// stop ends all processes and waits for them: their stdin ends, and a kill for who does not heed that.
func (f *fleet) stop() error {
	f.stopping = true
	for n := range f.alive {
		_ = n.stdin.Close()               // it may be closed already
		_ = signalContinue(n.cmd.Process) // it may be frozen, or have ended
	}
	ctx := context.Background() // also after Ctrl-C
	over := func() bool { return len(f.alive) == 0 }
	err := f.until(ctx, "the processes have ended", over)
	if err == nil {
		return f.err
	}
	for n := range f.alive {
		_ = n.cmd.Process.Kill() // it may have ended
	}
	return errors.Join(err, f.until(ctx, "the processes are dead", over), f.err)
}

// answer sends one request, and describes what came.
func (f *fleet) answer(ctx context.Context, n *node, method, path string) string {
	a, err := request(ctx, method, n.addr, path, "world")
	if err != nil {
		return err.Error()
	}
	line, _, _ := strings.Cut(a.body, "\n")
	var refusal struct{ Error struct{ Code string } } // of a gate
	if json.Unmarshal([]byte(line), &refusal) == nil && refusal.Error.Code != "" {
		line = refusal.Error.Code
	}
	text := []string{strings.TrimSpace(fmt.Sprint(a.status, " ", line))}
	for _, name := range []string{leaderhttp.HeaderLeader, "Location", "Retry-After", "Served-By", "Served-From"} {
		if value := a.header.Get(name); value != "" {
			text = append(text, name+": "+value)
		}
	}
	return strings.Join(text, ", ")
}

// status is what a process says to a GET, or 0.
func (f *fleet) status(ctx context.Context, n *node, path string) int {
	a, _ := request(ctx, http.MethodGet, n.addr, path, "") // no answer is no status
	return a.status
}
