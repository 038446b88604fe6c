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

func (r *redactor) add(secret string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if secret == "" {
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

// clean is text without secrets.
func (r *redactor) clean(text string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, secret := range r.secrets {
		text = strings.ReplaceAll(text, secret, hidden)
	}
	return text
}

var keyPassword = regexp.MustCompile(`(?i)(\bpassword\s*=\s*)('(?:\\.|[^'\\])*'|[^\s&]+)`)

// withoutPassword returns a connection string without its password, and whether it had one.
func withoutPassword(value string) (string, bool) {
	if !hasScheme.MatchString(value) {
		clean := keyPassword.ReplaceAllString(value, "${1}"+hidden)
		return clean, clean != value
	}
	u, err := url.Parse(value)
	if err != nil { // it may have one all the same
		return hidden, strings.Contains(value, "@")
	}
	_, has := u.User.Password()
	if has {
		u.User = url.UserPassword(u.User.Username(), hidden)
	}
	if query := u.Query(); query.Has("password") {
		has = true
		query.Set("password", hidden)
		u.RawQuery = query.Encode()
	}
	return u.String(), has
}

// conceal is for a --db with a password in it, which everybody on the machine can see as long as the process has it on its
// command line. The process becomes itself anew, without. It returns the --db to use.
func (a *app) conceal(fs *flag.FlagSet, value string) string {
	if secret, ok := os.LookupEnv(handedOn); ok {
		_ = os.Unsetenv(handedOn) // it is not for the command
		if clean, has := withoutPassword(secret); has && clean == value {
			return secret
		}
	}
	clean, has := withoutPassword(value)
	if !has {
		return value
	}
	a.note("warning: the password in --db could be seen in the list of processes: put it into DATABASE_URL, PGPASSFILE or a service file")
	argv := slices.Clone(os.Args)
	for i := range len(argv) - fs.NArg() {
		switch {
		case argv[i] == value:
			argv[i] = clean
		case strings.HasPrefix(argv[i], "-") && strings.HasSuffix(argv[i], "="+value):
			argv[i] = strings.TrimSuffix(argv[i], value) + clean
		}
	}
	become(argv, append(os.Environ(), handedOn+"="+value))
	return value
}
