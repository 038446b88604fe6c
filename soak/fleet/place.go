// SPDX-License-Identifier: MIT

//go:build unix

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/oxygenhub/leader/internal/pgtest"
	"github.com/oxygenhub/leader/soak/faults"
	"github.com/oxygenhub/leader/soak/history"
	"github.com/oxygenhub/leader/soak/internal/crew"
)

// place is where processes run; when one dies, there is another. What is done to the network applies to each of them.
type place struct {
	fleet     *Fleet
	id        int
	lock, app proxies  // none where the network is another one
	prefix    []string // of the command of a process

	mu     sync.Mutex
	born   int
	main   *proc   // the one that faults of processes are about
	others []*proc // of a crowd
}

// Lock is the way of the Leader to the database.
func (p *place) Lock() faults.Proxy { return p.lock }

// App is that of the transactions of tasks.
func (p *place) App() faults.Proxy { return p.app }

// proxies are the ways to all hosts that a URL names, which fail together.
type proxies []*pgtest.Proxy

func (ps proxies) url(server string) string {
	u, err := url.Parse(ps[0].URL(server))
	if err != nil {
		panic("soak: the URL of a proxy is none")
	}
	hosts := make([]string, len(ps))
	for i, p := range ps {
		hosts[i] = p.Addr()
	}
	u.Host = strings.Join(hosts, ",")
	return u.String()
}

func (ps proxies) each(do func(*pgtest.Proxy)) {
	for _, p := range ps {
		do(p)
	}
}

func (ps proxies) Swallow(up, down bool) { ps.each(func(p *pgtest.Proxy) { p.Swallow(up, down) }) }
func (ps proxies) Stall(up, down bool)   { ps.each(func(p *pgtest.Proxy) { p.Stall(up, down) }) }
func (ps proxies) Delay(d time.Duration) { ps.each(func(p *pgtest.Proxy) { p.Delay(d) }) }
func (ps proxies) Heal()                 { ps.each((*pgtest.Proxy).Heal) }
func (ps proxies) Reset()                { ps.each((*pgtest.Proxy).Reset) }

// proc is a process of the fleet.
type proc struct {
	fleet *Fleet
	node  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	gone  chan struct{} // closed when it has been waited for
	err   error         // how it ended, once gone is closed

	mu      sync.Mutex
	killed  bool // or told to leave: its end is no surprise
	aborted bool // by the laboratory, which has lost its patience
}

// leaves is how long a process may take to leave: its tasks, stubborn ones included, and two bounded calls of Resign.
const leaves = 30 * time.Second

// start has another process in the place.
func (p *place) start() (*proc, error) {
	p.mu.Lock()
	p.born++
	born := p.born
	p.mu.Unlock()
	f := p.fleet
	node := fmt.Sprintf("p%d.%d", p.id, born)
	program := f.program(born)
	text, err := json.Marshal(f.job(p, node, born, program.Version))
	if err != nil {
		return nil, err
	}
	stderr, err := os.Create(p.complaints(node))
	if err != nil {
		return nil, err
	}
	defer func() { _ = stderr.Close() }() // the process has its own handle
	args := append(append([]string(nil), p.prefix...), program.Bin)
	w := &proc{fleet: f, node: node, gone: make(chan struct{})}
	w.cmd = exec.CommandContext(context.WithoutCancel(f.ctx), args[0], args[1:]...) // it is killed by kill
	w.cmd.Env = append(os.Environ(), crew.JobEnv+"="+string(text))
	w.cmd.Stderr = stderr
	w.cmd.SysProcAttr = dieWithUs()
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err = w.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // until the process is gone, which kill and leave wait for
		defer close(w.gone)
		w.err = w.cmd.Wait()
		w.ended(p.complaints(node))
	}()
	return w, nil
}

func (p *place) complaints(node string) string {
	return filepath.Join(p.fleet.Dir, node+".stderr")
}

// ended says what must not happen: a process that was not killed and ends, or complains.
func (w *proc) ended(complaints string) {
	text, _ := os.ReadFile(complaints)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.aborted:
		w.fleet.Say(history.Event{Kind: history.Broken, Text: fmt.Sprintf("%s does not leave: %s", w.node, text)})
	case !w.killed:
		w.fleet.Say(history.Event{Kind: history.Broken, Text: fmt.Sprintf("%s ended by itself: %v: %s", w.node, w.err, text)})
	case len(text) > 0:
		w.fleet.Say(history.Event{Kind: history.Broken, Text: fmt.Sprintf("%s complained: %s", w.node, text)})
	}
}

func (w *proc) expect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.killed = true
}

func (w *proc) kill() {
	w.expect()
	_ = w.cmd.Process.Signal(syscall.SIGKILL) // it may be gone
	<-w.gone
	_ = w.stdin.Close() // likewise
}

// leave tells the process to leave, and waits until it has.
func (w *proc) leave() error {
	w.expect()
	if err := w.order(crew.Leave, ""); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrClosed) {
		return err
	}
	_ = w.stdin.Close() // says the same
	select {
	case <-w.gone:
		return nil
	case <-time.After(leaves):
	}
	w.mu.Lock()
	w.aborted = true
	w.mu.Unlock()
	_ = w.cmd.Process.Signal(syscall.SIGQUIT) // for its stacks
	select {
	case <-w.gone:
	case <-time.After(5 * time.Second):
		_ = w.cmd.Process.Signal(syscall.SIGKILL)
		<-w.gone
	}
	return nil
}

func (w *proc) order(order string, arg any) error {
	line := strings.TrimSpace(fmt.Sprint(order, " ", arg)) + "\n"
	_, err := io.WriteString(w.stdin, line)
	return err
}

// current is the process that faults are about; its place must have one.
func (p *place) current() *proc {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.main
}

// renew starts the process of the place.
func (p *place) renew() error {
	w, err := p.start()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.main = w
	return nil
}

// all are the processes of the place that may be alive.
func (p *place) all() []*proc {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := append([]*proc(nil), p.others...)
	if p.main != nil {
		all = append(all, p.main)
	}
	return all
}
