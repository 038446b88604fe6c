// SPDX-License-Identifier: MIT

// Package dialerr puts into one line what pgx says of a connect that has failed.
package dialerr

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Error is what the driver says of a connect, host by host. Its own error repeats a host for each kind of TLS, takes a line
// for each, and has the configuration in it, with the password.
type Error struct{ errs []error }

// New makes an Error of one of pgx's.
func New(err error) *Error {
	if connect, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		err = connect.Unwrap()
	}
	if joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		return &Error{joined.Unwrap()}
	}
	return &Error{[]error{err}}
}

// Unwrap returns what each attempt has come to.
func (e *Error) Unwrap() []error { return e.errs }

// Error leaves out what an address has said besides where the server has answered: with sslmode=prefer, the default, that is
// the attempt with TLS.
func (e *Error) Error() string {
	twice := regexp.MustCompile(`^(\S+) \(([^()]*)\): `) // address (host): ...
	answered := make(map[string]bool)
	texts := make([]string, len(e.errs))
	for i, err := range e.errs {
		text := strings.Join(strings.Fields(err.Error()), " ")
		if m := twice.FindStringSubmatch(text); m != nil && strings.HasPrefix(m[1], m[2]) {
			text = m[1] + ": " + text[len(m[0]):]
		}
		texts[i] = text
		answered[addressIn(text)] = answered[addressIn(text)] || isAnswer(err)
	}
	var some []string
	for i, text := range texts {
		if !slices.Contains(some, text) && (isAnswer(e.errs[i]) || !answered[addressIn(text)]) {
			some = append(some, text)
		}
	}
	return strings.Join(some, "; ")
}

func addressIn(text string) string {
	address, _, _ := strings.Cut(text, " ")
	return address
}

// isAnswer reports whether err is the word of a server.
func isAnswer(err error) bool {
	_, ok := errors.AsType[*pgconn.PgError](err)
	return ok
}
