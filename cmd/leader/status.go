// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/oxygenhub/leader"
)

// watchEvery is how often --watch asks.
const watchEvery = time.Second

// lead is what is known of one lock.
type lead struct {
	Name  string     `json:"name,omitempty"` // "" if only its key is known
	Key   int64      `json:"key"`
	Hex   string     `json:"hex"`
	Held  bool       `json:"held"`
	Node  string     `json:"node,omitempty"`
	PID   uint32     `json:"pid,omitempty"`
	From  string     `json:"from,omitempty"` // the address of its session
	Since *time.Time `json:"since,omitempty"`
	Term  int64      `json:"term,omitempty"` // of the holder, or the last one
	Addr  string     `json:"addr,omitempty"`
	Ended string     `json:"ended,omitempty"` // how the last term ended, if nobody leads
}

// standby is a session that leads nothing.
type standby struct {
	Node string `json:"node"`
	PID  uint32 `json:"pid"`
	From string `json:"from,omitempty"`
}

// overviewOf is what status shows.
type overviewOf struct {
	Place     string    `json:"place"`
	Namespace string    `json:"namespace"`
	Leads     []lead    `json:"leads"`
	Standbys  []standby `json:"standbys"`
	Notes     []string  `json:"notes,omitempty"`
}

// statusFlags are the flags of status.
type statusFlags struct {
	db, namespace, schema string
	names                 []string
	json, watch           bool
}

func (a *app) status(args []string) (int, error) {
	var f statusFlags
	fs := a.flags("status", statusHelp)
	fs.StringVar(&f.db, "db", "", "")
	fs.StringVar(&f.namespace, "namespace", "", "")
	fs.StringVar(&f.schema, "schema", "", "")
	fs.BoolVar(&f.json, "json", false, "")
	fs.BoolVar(&f.watch, "watch", false, "")
	if err := parse(fs, args); err != nil {
		return 0, err
	}
	if fs.NArg() > 0 {
		f.names = fs.Args()
	}
	if slices.ContainsFunc(f.names, looksLikeDatabase) {
		return 0, usagef("status: what follows the flags are names; the database goes into --db, or into DATABASE_URL")
	}
	f.db = a.conceal(fs, f.db)
	db, err := a.database(f.db, false)
	if err != nil {
		return 0, err
	}
	defer db.close()
	ctx, stop := signal.NotifyContext(context.Background(), endingSignals()...)
	defer stop()
	if f.watch {
		a.watchStatus(ctx, db, f)
		return 0, nil
	}
	o, err := db.overview(ctx, f)
	if err != nil {
		return 0, err
	}
	if f.json {
		return 0, a.json(o)
	}
	o.write(a.stdout)
	return 0, nil
}

// overview asks the database once.
func (d *database) overview(ctx context.Context, f statusFlags) (*overviewOf, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	o, err := &overviewOf{Leads: []lead{}, Standbys: []standby{}}, error(nil)
	if d.config == nil {
		err = d.fromFiles(ctx, f, o)
	} else {
		err = d.fromServer(ctx, f, o)
	}
	if err != nil {
		return nil, unavailable(err)
	}
	if len(f.names) > 0 {
		o.Leads = slices.DeleteFunc(o.Leads, func(l lead) bool { return !slices.Contains(f.names, l.Name) })
	}
	slices.SortFunc(o.Leads, func(a, b lead) int {
		return cmp.Or(cmp.Compare(b2i(a.Name == ""), b2i(b.Name == "")), strings.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	})
	return o, nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// unavailable gives an error that has no exit status yet the one of a database that does not answer.
func unavailable(err error) error {
	if _, ok := errors.AsType[*exitError](err); ok {
		return err
	}
	return &exitError{statusUnavailable, err}
}

// names begins an overview with the names that were asked for.
func (o *overviewOf) names(names []string) {
	for _, name := range names {
		o.lead(leader.Key(o.Namespace, name)).Name = name
	}
}

// lead returns what o has of key, which it adds.
func (o *overviewOf) lead(key int64) *lead {
	for i := range o.Leads {
		if o.Leads[i].Key == key {
			return &o.Leads[i]
		}
	}
	o.Leads = append(o.Leads, lead{Key: key, Hex: fmt.Sprintf("%016x", uint64(key))})
	return &o.Leads[len(o.Leads)-1]
}

// term is a row of leader_terms.
type term struct {
	key      int64
	name     string
	term     int64
	node     string
	addr     string
	pid      uint32
	taken    time.Time
	released bool
	ended    string
}

// add adds a row. It is about the holder only if the holder's session wrote it.
func (o *overviewOf) add(t term) {
	l := o.lead(t.key)
	l.Name, l.Term = t.name, t.term
	switch {
	case l.Held && !t.released && l.PID == t.pid:
		l.Node, l.Addr, l.Since = t.node, t.addr, &t.taken
	case !l.Held && t.released:
		l.Ended = t.ended
	case !l.Held:
		l.Ended = string(leader.EndDied)
	}
}

// write prints a table for people.
func (o *overviewOf) write(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintf(to, "%s, namespace %s\n\n", o.Place, o.Namespace)
	_, _ = fmt.Fprintln(w, "NAME\tLED BY\tFROM\tSERVER PID\tSINCE\tTERM\tADDRESS")
	for _, l := range o.Leads {
		by, since := cmp.Or(l.Node, "a stranger"), ""
		if !l.Held {
			by = "nobody"
			if l.Ended != "" {
				by += " (last: " + l.Ended + ")"
			}
		}
		if l.Since != nil {
			since = l.Since.Local().Format(time.DateTime)
		}
		columns := []string{cmp.Or(printable(l.Name), "key "+l.Hex), printable(by), l.From, number(int64(l.PID)), since, number(l.Term), printable(l.Addr)}
		for i, column := range columns {
			columns[i] = cmp.Or(column, "-")
		}
		_, _ = fmt.Fprintln(w, strings.Join(columns, "\t"))
	}
	_ = w.Flush() // as print
	if len(o.Leads) == 0 {
		_, _ = fmt.Fprintln(to, "nothing is led")
	}
	if len(o.Standbys) > 0 {
		_, _ = fmt.Fprintf(to, "\nconnected, leading nothing:\n")
		for _, s := range o.Standbys {
			_, _ = fmt.Fprintf(to, "  %s\n", session{node: printable(s.Node), pid: s.PID, client: s.From}.describe())
		}
	}
	for _, note := range o.Notes {
		_, _ = fmt.Fprintf(to, "\nnote: %s\n", note)
	}
}

// printable is text that others chose, without what a terminal would obey.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// watchStatus shows what changes until ctx ends: on a terminal in place, elsewhere one after the other.
func (a *app) watchStatus(ctx context.Context, db *database, f statusFlags) {
	var screen *os.File
	if file, ok := a.stdout.(*os.File); ok && !f.json && os.Getenv("TERM") != "dumb" {
		if _, _, ok := terminal(file); ok {
			screen = file
			a.print("\x1b[2J")
		}
	}
	var last string
	for {
		text := a.statusText(ctx, db, f)
		if ctx.Err() != nil {
			return
		}
		switch {
		case screen != nil:
			columns, rows, _ := terminal(screen) // it may have another size by now
			a.print("%s", picture(time.Now().Format(time.DateTime)+"  (Ctrl-C ends this)  "+text, columns, rows))
		case text != last && f.json:
			a.print("%s", text)
		case text != last:
			a.print("%s\n%s\n", time.Now().Format(time.DateTime), text)
		}
		last = text
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
			return
		}
	}
}

// picture draws text over what is on a terminal of that size, of which 0 is not known, as much as fits.
func picture(text string, columns, rows int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if more := len(lines) - (rows - 1); rows > 2 && more > 0 { // the cursor has the last one
		lines = append(lines[:rows-2], fmt.Sprintf("... and %d lines more", more+1))
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	for _, line := range lines {
		if r := []rune(line); columns > 0 && len(r) > columns {
			line = string(r[:columns])
		}
		b.WriteString(line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	return b.String()
}

// statusText is an overview, or why there is none.
func (a *app) statusText(ctx context.Context, db *database, f statusFlags) string {
	o, err := db.overview(ctx, f)
	var text strings.Builder
	switch {
	case err != nil && f.json:
		_ = json.NewEncoder(&text).Encode(map[string]string{"error": a.hide.clean(err.Error())})
	case err != nil:
		return "not known: " + a.hide.clean(err.Error()) + "\n"
	case f.json:
		_ = json.NewEncoder(&text).Encode(o)
	default:
		o.write(&text)
	}
	return text.String()
}
