// SPDX-License-Identifier: MIT

//go:build unix

package takeover

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/oxygenhub/leader/bench/peer"
)

// proc is a process of a peer.
type proc struct {
	node   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer  // to be read when it is gone
	gone   chan struct{} // closed when it has been waited for

	mu     sync.Mutex
	events []peer.Event
	more   chan struct{} // closed and replaced when there is another event, or the process is gone
}

// launch starts a process, which takes orders when launch returns. It is killed by kill, or ends with this one.
func launch(ctx context.Context, j peer.Job) (*proc, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	job, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	p := &proc{node: j.Node, gone: make(chan struct{}), more: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), self)
	p.cmd.Env = append(os.Environ(), peer.JobEnv+"="+string(job))
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = dieWithUs()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() { // until the process is gone
		runtime.LockOSThread() // the kernel kills it when the thread ends that started it
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.listen(stdout)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	if _, err := p.await(ctx, peer.Ready, 0, starts); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

// starts is how long a process may take to start, and to reach a store that is there.
const starts = 30 * time.Second

// listen notes what the process says until it is gone.
func (p *proc) listen(stdout io.Reader) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var e peer.Event
		if json.Unmarshal(lines.Bytes(), &e) == nil { // a line that a kill has cut off says nothing
			p.mu.Lock()
			p.events = append(p.events, e)
			p.stirLocked()
			p.mu.Unlock()
		}
	}
	_ = p.cmd.Wait() // how it ended is of interest only to who waits for what it did not say
	close(p.gone)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stirLocked()
}

func (p *proc) stirLocked() {
	close(p.more)
	p.more = make(chan struct{})
}

// order gives the process an order.
func (p *proc) order(order string) error {
	_, err := io.WriteString(p.stdin, order+"\n")
	return err
}

// await returns the first event of a kind after a time.
func (p *proc) await(ctx context.Context, kind string, after, patience time.Duration) (peer.Event, error) {
	return first(ctx, kind, after, patience, p)
}

// first returns the first event of a kind after a time in any of the processes.
func first(ctx context.Context, kind string, after, patience time.Duration, procs ...*proc) (peer.Event, error) {
	enough := time.NewTimer(patience)
	defer enough.Stop()
	a, b := procs[0], procs[len(procs)-1]
	for {
		moreA, moreB := a.stirred(), b.stirred()
		if e, ok := earliest(kind, after, procs); ok {
			return e, nil
		}
		gone := ""
		select {
		case <-moreA:
		case <-moreB:
		case <-a.gone:
			gone = a.complaint()
		case <-b.gone:
			gone = b.complaint()
		case <-enough.C:
			return peer.Event{}, fmt.Errorf("%s: not %s within %v: %w", a.node, kind, patience, errLate)
		case <-ctx.Done():
			return peer.Event{}, ctx.Err()
		}
		if e, ok := earliest(kind, after, procs); gone != "" && !ok {
			return e, fmt.Errorf("%s before it was %s", gone, kind)
		}
	}
}

// errLate says that something has not happened in time.
var errLate = errors.New("late")

func earliest(kind string, after time.Duration, procs []*proc) (found peer.Event, ok bool) {
	for _, p := range procs {
		p.mu.Lock()
		i := slices.IndexFunc(p.events, func(e peer.Event) bool { return e.Kind == kind && e.At > after })
		if i >= 0 && (!ok || p.events[i].At < found.At) {
			found, ok = p.events[i], true
		}
		p.mu.Unlock()
	}
	return found, ok
}

func (p *proc) stirred() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.more
}

// complaint says how a process ended that is gone.
func (p *proc) complaint() string {
	return fmt.Sprintf("%s ended (%v): %s", p.node, p.cmd.ProcessState, bytes.TrimSpace(p.stderr.Bytes()))
}

// lead has the process contend, and returns when it leads.
func (p *proc) lead(ctx context.Context, patience time.Duration) error {
	now := peer.Now()
	if err := p.order(peer.Go); err != nil {
		return err
	}
	_, err := p.await(ctx, peer.Leading, now, patience)
	return err
}

// standBy has the process contend, and returns when it waits for the one that leads.
func (p *proc) standBy(ctx context.Context) error {
	now := peer.Now()
	if err := p.order(peer.Go); err != nil {
		return err
	}
	_, err := p.await(ctx, peer.Waiting, now, starts)
	return err
}

// kill ends the process without a warning, and returns when it is gone. It may be gone already.
func (p *proc) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.gone
	_ = p.stdin.Close() // nobody reads it
	return nil
}
