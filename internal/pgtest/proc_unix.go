// SPDX-License-Identifier: MIT

//go:build unix

package pgtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

// guardScript waits for a line, and ends the server and removes its folder if the pipe closes without one: the test
// binary is then gone, however it died. It works on every Unix, unlike a parent-death signal.
const guardScript = `
read -r line && exit
kill -QUIT "$1"
for i in 1 2 3 4 5; do kill -0 "$1" 2>/dev/null || break; sleep 1; done
rm -rf "$2"
`

// process is a running postmaster with its guard.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // how it ended, once exited is closed

	guard *exec.Cmd
	line  io.WriteCloser // to the guard
}

// launch starts cmd as a user that the server accepts, and a guard that ends it with this process.
func launch(ctx context.Context, cmd *exec.Cmd, dir string) (*process, error) {
	if err := unprivileged(cmd); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // until the server ends, which stop sees to
		p.err = cmd.Wait()
		close(p.exited)
	}()
	if err := p.watch(ctx, dir); err != nil {
		_ = p.stop("immediate") // the first error matters more
		return nil, fmt.Errorf("guard: %w", err)
	}
	return p, nil
}

func (p *process) watch(ctx context.Context, dir string) (err error) {
	guard := exec.CommandContext(ctx, "sh", "-c", guardScript, "guard",
		strconv.Itoa(p.cmd.Process.Pid), dir)
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the terminal's ^C is not for the guard
	if p.line, err = guard.StdinPipe(); err != nil {
		return err
	}
	if err = guard.Start(); err != nil {
		return err
	}
	p.guard = guard
	return nil
}

// stop signals the server as pg_ctl does and waits for its end. One that does not end is killed.
func (p *process) stop(mode string) error {
	signals := map[string]syscall.Signal{
		"smart": syscall.SIGTERM, "fast": syscall.SIGINT, "immediate": syscall.SIGQUIT,
	}
	sig, ok := signals[mode]
	if !ok {
		return fmt.Errorf("stop mode %q is not smart, fast or immediate", mode)
	}
	_ = p.cmd.Process.Signal(sig) // it may have ended by itself
	var err error
	select {
	case <-p.exited:
	case <-time.After(patience):
		err = fmt.Errorf("postgres did not stop (%s) within %v: killed", mode, patience)
		_ = p.cmd.Process.Kill() // its children see that and end
		<-p.exited
	}
	if p.guard != nil {
		_, _ = io.WriteString(p.line, "\n") // dismissed; if it died first there is nothing to tell it
		_ = p.guard.Wait()
	}
	return err
}

// reload has the program read its configuration again.
func (p *process) reload() error { return p.cmd.Process.Signal(syscall.SIGHUP) }

// account is the user to run a server as when the tests run as root, which PostgreSQL refuses.
func account() (uid, gid int, err error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return 0, 0, err
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}

// unprivileged makes cmd run in a process group of its own, and not as root.
func unprivileged(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() != 0 {
		return nil
	}
	uid, gid, err := account()
	if err != nil {
		return err
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return nil
}

// give hands path to the user whom unprivileged chooses.
func give(path string) error {
	if os.Getuid() != 0 {
		return nil
	}
	uid, gid, err := account()
	if err != nil {
		return err
	}
	return os.Chown(path, uid, gid)
}
