// SPDX-License-Identifier: MIT

package leader

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// Options of a Leader. The zero value is ready to use. Check < Lease < SessionTimeout must hold.
type Options struct {
	// Node says who this process is: it is shown in application_name, Status and Holder. At most 512 bytes.
	// Default: host name, process id and 4 random hexadecimal digits.
	Node string
	// Namespace separates names: locks of different namespaces are different locks. Default: current_schema() of the
	// first connection on PostgreSQL, which is better set than left to the search_path; on SQLite, where the locks lie
	// beside the database file, always the same.
	Namespace string
	// Retry is how often a standby asks for all the names that it waits for, give or take a fifth. Where the database
	// tells of a release (PostgreSQL) it asks at once, too. Default 1 s, on SQLite 200 ms; at least 10 ms.
	Retry time.Duration
	// Check is how often the session and its locks are proved to be there. Default 2 s; at least 10 ms.
	Check time.Duration
	// Lease is for how long a proof is trusted, counted from when it was sent: then tasks are cancelled. Default 6 s.
	Lease time.Duration
	// SessionTimeout is after how much silence the server ends the session of this process and frees its locks.
	// SessionTimeout - Lease is the time that a task has to stop in a partition before another may start. Default
	// 10 s; at least 100 ms, at most 24 h. Servers before PostgreSQL 14 need whole seconds to be exact.
	SessionTimeout time.Duration
	// StopTimeout is after how long a task that was told to stop and has not returned is reported as overrun. Its lock
	// stays held all the same, unless it was lost. Default 10 s.
	StopTimeout time.Duration
	// Terms turns on fencing: this Leader keeps the table leader_terms, which it makes if there is none, gives each task a
	// [Term], for [Fence] and for other systems, and shows who leads where in [Holder]. All processes of a fleet must
	// agree on it. With a Namespace that is not the name of a schema, set Schema, too. It takes a second connection for
	// some seconds at each takeover and release, and up to four more while takeovers wait for transactions of others. See
	// docs/fencing.md.
	Terms bool
	// Schema is where leader_terms is on PostgreSQL, and must be the same for all processes that share the namespace.
	// Default: the schema that has the name of the namespace; if there is none, nothing is led, and Status and the log say
	// so. Needs Terms.
	Schema string
	// Addr is where others reach this process, for [Holder]: host:port or a URL for the gates, which must not be an address to
	// listen on, as ":8080". At most 1,024 bytes. Needs Terms.
	Addr string
	// TakeoverDelay is how long a task waits, counted from when its lock was got, if nobody has said that the last term
	// ended ([EndDied]): the old task may still be stopping. With Lease + the time that takes, a task never overlaps one in a partition or a
	// failover (docs/guarantees.md, G3). A clean release is followed at once. Default 0. Needs Terms.
	TakeoverDelay time.Duration
	// Disconnect has a process that leads nothing keep no connection between two tries: each of them makes one. It is for
	// fleets whose standbys are too many for the server. A standby then hears of no release and leads within Retry, which
	// is better set longer, as each connection costs the server far more than a try does. A process that leads, and one whose
	// Run, Try or Holder is new, connects as ever.
	Disconnect bool
	// NoHandover has this Leader ignore requests of others to hand a name over ([ErrHandOver]), which whoever may connect to the
	// database can make. They are heard on PostgreSQL only.
	NoHandover bool
	// Logger gets a line for each transition, which says what happens next: see docs/logs.md. Its handler may block: that
	// delays no proof. Default: nothing is logged.
	Logger *slog.Logger
}

// What Options.Node and Options.Addr have at most, in bytes.
const (
	maxNode = 512
	maxAddr = 1024
)

// withDefaults fills in what is not set and validates the rest.
func (o Options) withDefaults(backend Backend) (Options, error) {
	o.Retry = cmp.Or(o.Retry, backend.retry())
	o.Check = cmp.Or(o.Check, 2*time.Second)
	o.Lease = cmp.Or(o.Lease, 6*time.Second)
	o.SessionTimeout = cmp.Or(o.SessionTimeout, 10*time.Second)
	o.StopTimeout = cmp.Or(o.StopTimeout, 10*time.Second)
	const least, most = 10 * time.Millisecond, 24 * time.Hour
	for _, field := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"Retry", o.Retry, least},
		{"Check", o.Check, least},
		{"Lease", o.Lease, least},
		{"SessionTimeout", o.SessionTimeout, 100 * time.Millisecond},
		{"StopTimeout", o.StopTimeout, least},
	} {
		if field.value < field.least || field.value > most {
			return o, fmt.Errorf("leader: Options.%s is %v: it must be between %v and %v, or 0 for the default", field.name, field.value, field.least, most)
		}
	}
	if o.Check >= o.Lease {
		return o, fmt.Errorf("leader: Options.Check (%v) must be less than Options.Lease (%v)", o.Check, o.Lease)
	}
	if o.Lease >= o.SessionTimeout {
		return o, fmt.Errorf("leader: Options.Lease (%v) must be less than Options.SessionTimeout (%v)", o.Lease, o.SessionTimeout)
	}
	if err := validText("Options.Node", o.Node, maxNode); err != nil && o.Node != "" {
		return o, err
	}
	if err := validText("Options.Namespace", o.Namespace, 1024); err != nil && o.Namespace != "" {
		return o, err
	}
	if err := o.validTerms(); err != nil {
		return o, err
	}
	if o.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		var random [2]byte
		_, _ = rand.Read(random[:]) // never fails
		o.Node = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(random[:]))
	}
	return o, nil
}

// validTerms checks what belongs to Terms.
func (o Options) validTerms() error {
	if o.TakeoverDelay < 0 || o.TakeoverDelay > 24*time.Hour {
		return fmt.Errorf("leader: Options.TakeoverDelay is %v: it must be between 0 and 24h", o.TakeoverDelay)
	}
	for _, field := range []struct {
		name, value string
		most        int
	}{{"Options.Schema", o.Schema, 63}, {"Options.Addr", o.Addr, maxAddr}} {
		if field.value == "" {
			continue
		}
		if err := validText(field.name, field.value, field.most); err != nil {
			return err
		}
		if !o.Terms {
			return fmt.Errorf("leader: %s needs Options.Terms", field.name)
		}
	}
	if nowhere(o.Addr) {
		return fmt.Errorf("leader: Options.Addr is %q: it is where others reach this process, so it must name a host: not an address to listen on", o.Addr)
	}
	if o.TakeoverDelay > 0 && !o.Terms {
		return errors.New("leader: Options.TakeoverDelay needs Options.Terms: without them it is not known how the last leadership ended")
	}
	return nil
}

// nowhere reports whether addr, a host:port or a URL, names no host, as ":8080" and "0.0.0.0:8080". What is neither is the
// user's own matter.
func nowhere(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if u, bad := url.Parse(addr); bad == nil && u.Host != "" {
		host, err = u.Hostname(), nil
	}
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// validText checks a text that goes to the database.
func validText(what, text string, most int) error {
	switch {
	case text == "":
		return fmt.Errorf("leader: %s is empty", what)
	case len(text) > most:
		return fmt.Errorf("leader: %s has %d bytes: at most %d are allowed", what, len(text), most)
	case !utf8.ValidString(text):
		return fmt.Errorf("leader: %s is not valid UTF-8", what)
	case strings.ContainsRune(text, 0):
		return fmt.Errorf("leader: %s contains a NUL", what)
	}
	return nil
}
