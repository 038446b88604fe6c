// SPDX-License-Identifier: MIT

// Package driver is what a place of locks has to implement so that a Leader can use it: a database, a lock service or a
// file system that this module does not know. Programs do not call it; they pass a [Driver] to leader.Driver.
//
// # What a place must have
//
// Locks that belong to a session, exclude all other sessions, and are never given to another session while the place holds
// that one to be alive. Either the place ends a session by itself when it has been silent for [Config].SessionTimeout, and not
// before, or locks end with the process that holds them, as file locks do ([Traits].Durable). Whoever asks must get the answer
// of the place itself, not that of a replica which may lag behind.
//
// # What a driver must not do
//
// It must not keep a session alive by itself: no heartbeats in the background, no prolonging while it waits for news. Only
// Prove and the other calls of the Leader do that. A Leader that cannot prove its locks falls silent, and relies on the place to
// free them.
//
// docs/drivers.md has each promise, with the test of leadertest.TestDriver that shows it.
//
// # Concurrency
//
// A Driver may be used by several Leaders at the same time. A [Session] is called by one goroutine, one call at a time, but
// for Kill, which may come at any time.
package driver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrUnsupported is returned, wrapped, by Open where the place cannot lock, and never will: each Run that waits for it ends.
var ErrUnsupported = errors.New("driver: unsupported")

// Driver opens sessions at one place of locks.
type Driver interface {
	// Traits describes the place, always in the same way. It does no I/O.
	Traits() Traits
	// Open makes a session. It may block until ctx ends; then it returns an error and leaves nothing behind. Any error but
	// ErrUnsupported is logged, and Open is called again after a pause. It may be called concurrently.
	Open(ctx context.Context, config Config) (Session, error)
}

// Traits are what a Leader has to know of a place before it has a session there.
type Traits struct {
	// Durable means that the place does not free locks when a session falls silent, but only when it is closed, killed, or
	// when its process dies. Then Options.Lease and Options.SessionTimeout mean nothing.
	Durable bool
	// Retry is the default of Options.Retry. Default 1 s. Choose less where Tell tells nobody.
	Retry time.Duration
	// OpenTimeout bounds Open, and the first Prove. Default 5 s.
	OpenTimeout time.Duration
}

// Config is what a Leader wants of a session.
type Config struct {
	// Node says who this process is. Holders shows it.
	Node string
	// SessionTimeout is after how much silence the place ends the session and frees its locks, counted from the arrival
	// of the last request: never sooner, and little later. It means nothing to a durable place.
	SessionTimeout time.Duration
}

// Info is what a session knows of itself and of its place.
type Info struct {
	// Namespace is the default of Options.Namespace at this place. It must not be empty.
	Namespace string
	// Place is the name of the place for people, without passwords.
	Place string
	// PID is that of the server's process for the session, or 0.
	PID uint32
	// Warning is what is doubtful about the place, if anything. It is logged.
	Warning error
}

// Session holds locks, all of which end with it. A key is any int64. No call but Open and Wait has a context: a request that
// was sent is waited for, unless Kill ends the wait.
//
// A method that returns an error with an [OverError] in it says that the session is over: then all its methods do so from then on.
// After any other error the session lives, and knows which locks it holds.
type Session interface {
	// Info describes the session. It is called once, before anything else, and does no I/O.
	Info() Info
	// Try asks once for each of keys, none of which the session holds, and returns those that it holds now, also beside an
	// error. It never waits for a lock, and one that is taken holds up no other. A [KeysError] says that some could not be
	// asked for.
	Try(keys []int64) (held []int64, err error)
	// Unlock gives keys back and returns those that the session did not hold any more. After an error the Leader gives the
	// session up, as it cannot know what is held. At a durable place Unlock works also when the session is over, until Close
	// or Kill.
	Unlock(keys []int64) (missing []int64, err error)
	// Tell wakes the other sessions that wait for keys, which are free now. It is best effort, takes less than a
	// second, and may do nothing where there is no way to tell: Options.Retry finds what is free.
	Tell(keys []int64) error
	// Prove asks the place itself whether the session and its locks are still there, which keeps the session alive.
	// It returns the keys that were lost on their own, once each, also beside an error.
	Prove() (lost []int64, err error)
	// Holders tells who holds each of keys. A key that nobody holds is left out.
	Holders(keys []int64) (map[int64]Holder, error)
	// Wait blocks until another session has told keys, which it returns, or until ctx ends: nil, nil. What is told while
	// nobody waits is kept for the next Wait. It does not keep the session alive at the place. Any error is the end of the
	// session.
	Wait(ctx context.Context) ([]int64, error)
	// Close ends the session politely, within a second, and frees its locks. It is the last call, also after Kill.
	Close()
	// Kill ends the session at once, as if the process had died, and makes the method that is under way return soon. The
	// place frees the locks when it hears of it. It may be called by any goroutine and several times, and does not block.
	Kill()
}

// Holder is who holds a lock.
type Holder struct {
	Node  string    // Config.Node of its session
	PID   uint32    // as in Info, or that of the process
	Since time.Time // of the lock or of the session; zero if that is not known
}

// OverError says that a session is over. Whatever Err is, events tell it as leader.ReasonConnection.
type OverError struct {
	Err error
	// Ended means that the place said so itself, and that the locks of the session are free. If it is false they may be
	// held on: as after a reset of the connection of which the place may not know, or when Kill was called.
	Ended bool
}

// Error returns the text of Err.
func (e *OverError) Error() string { return fmt.Sprintf("the session is over: %v", e.Err) }

// Unwrap returns Err.
func (e *OverError) Unwrap() error { return e.Err }

// KeysError says that some keys could not be asked for, while all others were.
type KeysError struct {
	Keys []int64
	Err  error
}

// Error tells how many keys it is about, and the text of Err.
func (e *KeysError) Error() string { return fmt.Sprintf("%d keys: %v", len(e.Keys), e.Err) }

// Unwrap returns Err.
func (e *KeysError) Unwrap() error { return e.Err }
