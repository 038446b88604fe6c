// SPDX-License-Identifier: MIT

package main

import (
	"flag"
	"io"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// handedOn has the --db of the command line, on its way from the process that had a password there to itself.
const handedOn = "LEADER_HANDED_ON"

// hidden stands for a password.
const hidden = "xxxxx"

// redactor takes secrets out of what is written to it, line by line. The errors of the library have none; those of the driver and
// of a server are not ours.
type redactor struct {
	mu      sync.Mutex
	to      io.Writer
	secrets []string
}

// add hides secret, unless it is one that everybody knows, which a hole in a text would tell of first.
func (r *redactor) add(secret string, known ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(secret) < 4 || slices.Contains(append(known, "leader"), secret) {
		return
	}
	for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret)} {
		if !slices.Contains(r.secrets, form) {
			r.secrets = append(r.secrets, form)
		}
	}
}

func (r *redactor) Write(b []byte) (int, error) {
	if _, err := io.WriteString(r.to, r.clean(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// clean is text without secrets, and without what looks like one in a connection string.
func (r *redactor) clean(text string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, secret := range r.secrets {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	return keyPassword.ReplaceAllString(userPassword.ReplaceAllString(text, "${1}"+hidden+"@"), "${1}"+hidden)
}

var (
	userPassword  = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^\s:/?#@"]*:)\S*@`)
	keyPassword   = regexp.MustCompile(`(?i)(\b(?:ssl)?password\s*=\s*)('(?:\\.|[^'\\])*'?|(?:\\.|[^\s\\])+)`)
	queryPassword = regexp.MustCompile(`(?i)^((?:ssl)?password=).+`)
)

// withoutPassword returns a connection string without its password, and whether it had one.
func withoutPassword(value string) (string, bool) {
	if !hasScheme.MatchString(value) {
		clean := keyPassword.ReplaceAllString(value, "${1}"+hidden)
		return clean, clean != value
	}
	u, err := url.Parse(value)
	if err != nil { // it may have one all the same
		return hidden, strings.ContainsAny(value, "@?")
	}
	_, has := u.User.Password()
	if has {
		u.User = url.UserPassword(u.User.Username(), hidden)
	}
	query := strings.FieldsFunc(u.RawQuery, func(r rune) bool { return r == '&' || r == ';' })
	for i, one := range query { // not those that can be parsed only
		query[i] = queryPassword.ReplaceAllString(one, "${1}"+hidden)
		has = has || query[i] != one
	}
	u.RawQuery = strings.Join(query, "&")
	return u.String(), has
}

// conceal is for a --db with a password in it, which everybody on the machine can see as long as the process has it on its
// command line. The process becomes itself anew, without. It returns the --db to use.
func (a *app) conceal(fs *flag.FlagSet, value string) string {
	if secret, ok := os.LookupEnv(handedOn); ok {
		_ = os.Unsetenv(handedOn) // it is not for the command
		if clean, _ := withoutPassword(secret); clean == value {
			return secret
		}
	}
	argv, found := slices.Clone(os.Args), false
	for i := 1; i < len(argv)-fs.NArg(); i++ {
		flag, one, joined := strings.Cut(argv[i], "=")
		if flag != "-db" && flag != "--db" {
			continue
		}
		if !joined && i+1 < len(argv)-fs.NArg() {
			i++
			flag, one = "", argv[i]
		}
		if clean, has := withoutPassword(one); has {
			found = true
			argv[i] = strings.TrimPrefix(flag+"="+clean, "=")
		}
	}
	if !found {
		return value
	}
	a.note("warning: the password in --db could be seen in the list of processes: put it into DATABASE_URL, PGPASSFILE or a service file")
	become(argv, append(os.Environ(), handedOn+"="+value))
	return value
}
