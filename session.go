// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Backend says where the locks live. [Postgres], [PostgresConfig], [PostgresPool], [SQLite] and [Driver] make one. Its
// methods are unexported: what a lock must promise is more than an interface can say. Other places of locks come in by way of
// package driver.
type Backend interface {
	// check validates what can be validated without I/O; its error goes to the caller of New.
	check(opts Options) error
	// expires reports whether the place of the locks frees them by itself when a session falls silent. Only then do
	// leases apply.
	expires() bool
	// retry is the default of Options.Retry.
	retry() time.Duration
	// dialTimeout bounds open: ctx is cancelled after it.
	dialTimeout() time.Duration
	// open makes a session. It may block and may run code of the user, and is called on a goroutine of its own. When
	// ctx ends it gives up and leaves nothing behind. A permanent failure is ErrUnsupported.
	open(ctx context.Context, opts Options, clock *clock) (session, error)
	// terms returns the store of the terms of one Leader, without I/O.
	terms(opts Options, clock *clock) termStore
	// sqlite tells which SQL is spoken there.
	sqlite() bool
}

// session holds locks, all of which end with it. One goroutine, its worker, calls the methods, one at a time; only kill
// and sent may be called from elsewhere. No method takes a caller's context: a statement that was sent is waited for.
//
// An error that is a *sessionError means that the session is over. After any other the session lives, and knows which locks it
// holds.
type session interface {
	// about describes the session. Called once, before anything else.
	about() sessionInfo
	// try asks once for each key, none of which the session holds, and returns those that it holds now, also beside an
	// error. It never waits for a lock. A *keysError says that only some could not be asked for.
	try(keys []int64) (held []int64, err error)
	// unlock gives keys back and returns those of them that were not held any more. Where locks do not expire it does so
	// also when the session is over, until it is killed.
	unlock(keys []int64) (missing []int64, err error)
	// tell wakes the other sessions that wait for keys. It is best effort and takes less than a second.
	tell(keys []int64) error
	// prove asks the place of the locks itself whether this session and its locks are still there, and returns the
	// keys that were lost on their own, also beside an error.
	prove() (lost []int64, err error)
	// holders tells who holds each of keys; a key that nobody holds is left out.
	holders(keys []int64) (map[int64]Holder, error)
	// terms reads the rows of keys, those that there are; nil for keys means all of the namespace. It is called only
	// with Options.Terms and if sessionInfo.reads.
	terms(keys []int64) (map[int64]termRow, error)
	// wait blocks until another session has told keys, which it returns, or until ctx ends: nil, nil. Where there is
	// nothing to hear it just waits for ctx. Any error is the end of the session.
	wait(ctx context.Context) ([]int64, error)
	// sent tells when the last byte was sent: the place of the locks may count its silence from there.
	sent() reading
	// close ends the session politely, within a second. It is the last call of the worker, also after kill.
	close()
	// kill ends the session from any goroutine without blocking, and makes every other method return soon. More than
	// one call is harmless.
	kill()
}

// sessionInfo is what a session knows of itself and of where its locks live.
type sessionInfo struct {
	namespace string  // the default namespace at this place
	place     string  // the database and its server, for people
	pid       uint32  // of the server's process, 0 where there is none
	proved    reading // when the last statement of opening the session was sent
	warning   error   // what is doubtful about this place, if anything

	schema string // with Options.Terms: of the table
	server string // and the instance of the server
	reads  bool   // the session can read terms itself, and so surely while it has its locks
}

// sessionError says that a session is over.
type sessionError struct {
	err   error
	ended bool // the other side said so itself; its locks are free. Otherwise they may be held on
	cut   bool // the connection has failed, on whichever side: it is not for what the session has answered
}

func (e *sessionError) Error() string { return e.err.Error() }
func (e *sessionError) Unwrap() error { return e.err }

// keysError says that some keys could not be asked for, while all others were.
type keysError struct {
	keys []int64
	err  error // of the first
}

func (e *keysError) Error() string {
	if len(e.keys) == 1 {
		return e.err.Error()
	}
	return fmt.Sprintf("%d locks, first: %v", len(e.keys), e.err)
}
func (e *keysError) Unwrap() error { return e.err }

// worker runs one session: commands of the loop, one at a time, and the wait for news in between.
type worker struct {
	session    session
	info       sessionInfo
	lease      *lease
	generation uint64

	running int     // tasks that hold a lock of this session; guarded by Leader.mu, like the next two
	busy    bool    // a command is under way
	ended   bool    // the other side has ended the session
	frees   []int64 // locks that nobody wants since it was given up; only where locks do not expire
	took    []int64 // by a try whose answer the loop has not seen

	mu        sync.Mutex
	command   func(session) func()
	interrupt context.CancelFunc
	retired   bool // it has been given up
	closing   bool // no more commands; close or kill has been called for
}

// unwanted notes keys that nobody wants in a session that has been given up. Where locks do not expire nobody else frees them;
// elsewhere the session stays silent.
func (w *worker) unwanted(keys ...int64) {
	if w.lease.length == 0 {
		w.frees = append(w.frees, keys...)
	}
}

// do has the session run command, in which I/O may happen, and then the loop run what it returns. Called by the loop
// when the worker is not busy.
func (w *worker) do(command func(session) func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.command = command
	w.interruptLocked()
}

// retire takes back a command that has not begun: a session that is given up asks for nothing more. It tells whether
// there was one.
func (w *worker) retire() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := w.command != nil
	w.command, w.retired = nil, true
	return waiting
}

// givenUp is for a command between two statements.
func (w *worker) givenUp() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.retired
}

func (w *worker) interruptLocked() {
	if w.interrupt != nil {
		w.interrupt()
	}
}

// end closes the session politely when its worker is at rest, and kills it otherwise.
func (w *worker) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return
	}
	w.closing = true
	if w.interrupt == nil { // in the middle of a statement
		w.session.kill()
		return
	}
	w.interrupt()
}

// kill ends the session at once.
func (w *worker) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closing = true
	w.session.kill()
	w.interruptLocked()
}

// next returns the command to run, or a context under which to wait for one, or neither at the end.
func (w *worker) next() (func(session) func(), context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interruptLocked() // releases the context of the wait that is over
	w.interrupt = nil
	if command := w.command; command != nil && !w.closing {
		w.command = nil
		return command, nil
	}
	if w.closing {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.interrupt = cancel
	return nil, ctx
}

// run is the goroutine of the session. It ends when the session has been closed or killed; ended tells the loop. heard
// gets the keys of a notification, pleaded those of a request to hand over, and failed the end of the session, all on the loop;
// after failed the worker rests until it is killed, and sends nothing.
func (w *worker) run(post func(func()), heard, pleaded func([]int64), failed func(error), ended func()) {
	for {
		command, ctx := w.next()
		switch {
		case command != nil:
			post(command(w.session))
			continue
		case ctx == nil:
			w.session.close()
			post(ended)
			return
		}
		keys, err := w.session.wait(ctx)
		if p, ok := w.session.(pleader); ok {
			if asked := p.pleas(); len(asked) > 0 {
				post(func() { pleaded(asked) })
			}
		}
		switch {
		case err != nil:
			post(func() { failed(err) })
			<-ctx.Done() // nothing more can be heard; a command or the end is what is left
		case len(keys) > 0:
			post(func() { heard(keys) })
		}
	}
}
