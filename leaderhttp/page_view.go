// SPDX-License-Identifier: MIT

package leaderhttp

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/oxygenhub/leader"
)

// mostRows is how many names are shown.
const mostRows = 1000

// pageView is what the template shows.
type pageView struct {
	Style        template.CSS
	Script       template.JS
	Now          time.Time
	Began        time.Time
	Status       leader.Status
	Session      pill
	SessionSince *pageAge
	Health       string // of the session, in a sentence
	Trouble      string // of the session, in its own words
	Age          string // of what is known of others, in words; "" if it is not known
	AgeMS        int64
	KnowErr      string
	Summary      string
	Rows         []pageRow
	More         int // rows that are not shown
	Changes      []pageChange
}

// pill is a word about a state, in a colour: never the colour alone.
type pill struct {
	Class string // good, info, warn, bad or calm
	Text  string
}

type pageRow struct {
	Name   string
	Who    pill
	Node   string
	Addr   string
	Since  *pageAge
	Term   leader.Term
	Here   pill // Text is "" if this process has nothing to do with the name
	InHere *pageAge
	Notes  []pageNote
}

// pageNote is a text, and how long ago that was, if it is known.
type pageNote struct {
	Text string
	When *pageAge
}

// pageAge is a point in time, shown as an age.
type pageAge struct {
	At  time.Time
	Age time.Duration
}

type pageChange struct {
	When *pageAge
	Kind pill
	Name string
	Term leader.Term
	Err  string
}

func newPageView(l *leader.Leader, began time.Time, changes []leader.Event) *pageView {
	known := l.Known()
	s := l.Status() // after Known: where the two differ, the later word is that of this process on itself
	now := time.Now()
	v := &pageView{Now: now, Began: began, Status: s, KnowErr: clip(errText(known.Err))}
	if !known.Time.IsZero() {
		v.Age, v.AgeMS = span(now.Sub(known.Time)), now.Sub(known.Time).Milliseconds()
	}
	v.Session, v.Health = sessionPill(s)
	v.SessionSince, v.Trouble = v.age(s.Since), clip(errText(s.Err))
	v.rows(l, known)
	for _, e := range changes {
		v.Changes = append(v.Changes, pageChange{v.age(e.Time), changePill(e), e.Name, e.Term, clip(errText(e.Err))})
	}
	return v
}

func sessionPill(s leader.Status) (p pill, sentence string) {
	switch {
	case s.Resigned:
		return pill{"calm", "resigned"}, "This process has resigned and leads nothing any more."
	case s.Connected && s.Err != nil:
		return pill{"warn", "connected, with trouble"}, "There is a session, and something on it is being retried."
	case s.Connected:
		return pill{"good", "connected"}, "The session is there and its locks are proved regularly."
	case s.Resting:
		return pill{"calm", "resting"}, "This process leads nothing, and connects only to ask: Options.Disconnect is set."
	case len(s.Tasks) == 0 && s.Err == nil:
		return pill{"calm", "idle"}, "Nothing contends here, so there is no session."
	}
	return pill{"bad", "no session"}, "There is no session: this process leads nothing, and does not know who does."
}

// rows makes a row of each name that this process or the database knows.
func (v *pageView) rows(l *leader.Leader, known leader.View) {
	tasks := make(map[string]leader.TaskStatus)
	for _, t := range v.Status.Tasks {
		tasks[t.Name] = t
	}
	holders := make(map[string]leader.Holder)
	for _, h := range known.Holders {
		holders[h.Name] = h
	}
	names := l.Tasks()
	for name := range holders {
		names = append(names, name)
	}
	for name := range tasks {
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	counts := make(map[string]int)
	for _, name := range names {
		t, contends := tasks[name]
		h, held := holders[name]
		row := pageRow{Name: name}
		switch {
		case contends && t.State == leader.StateLeading && l.IsLeading(name):
			row.Who, row.Node, row.Addr, row.Term, row.Since = whoPill(leadsHere), v.Status.Node, v.Status.Addr, t.Term, v.age(t.Since)
		case !contends && !held:
			row.Who = whoPill(noted)
		case known.Err != nil || known.Time.IsZero() || !held, contends && !h.Held && t.Since.After(known.Time):
			row.Who = whoPill(unknown)
		default:
			v.elsewhere(&row, h)
		}
		if contends {
			v.here(&row, t)
		}
		counts[row.Who.Text]++
		if len(v.Rows) == mostRows {
			v.More++
			continue
		}
		v.Rows = append(v.Rows, row)
	}
	v.Summary = summary(len(names)-counts[noted], counts)
}

// What the page says of the leader of a name.
const (
	leadsHere = "leads here"
	leads     = "leads elsewhere"
	changing  = "changing hands"
	nobody    = "nobody leads"
	unknown   = "not known"
	noted     = "needs no leader"
)

func whoPill(who string) pill {
	switch who {
	case leadsHere:
		return pill{"good", who}
	case leads:
		return pill{"info", who}
	case nobody:
		return pill{"bad", who}
	case noted:
		return pill{"calm", who}
	}
	return pill{"warn", who}
}

// elsewhere is what the database said of a name that this process does not lead now.
func (v *pageView) elsewhere(row *pageRow, h leader.Holder) {
	switch {
	case !h.Held:
		row.Who = whoPill(nobody)
		if h.Ended.Term != 0 {
			row.Notes = append(row.Notes, pageNote{fmt.Sprintf("Term %d ended: %s", h.Ended.Term, h.Ended.Reason), v.age(h.Ended.At)})
		}
		return
	case v.self(h), !h.Current && h.Ended.Term != 0:
		row.Who = whoPill(changing) // held here and not led, or held by who has not begun its term
	default:
		row.Who = whoPill(leads)
	}
	row.Node = h.Node
	if h.Current {
		row.Addr, row.Term = h.Addr, h.Term
	}
	row.Since = v.age(h.Since)
}

// self reports whether h is this process. Without a term long nodes are cut.
func (v *pageView) self(h leader.Holder) bool {
	return h.Node == v.Status.Node || !h.Current && len(h.Node) > 50 && strings.HasPrefix(v.Status.Node, h.Node)
}

// here adds what this process does about the name.
func (v *pageView) here(row *pageRow, t leader.TaskStatus) {
	class := "calm"
	switch t.State {
	case leader.StateLeading:
		class = "good"
	case leader.StateOverrun:
		class = "bad"
	case leader.StateConnecting, leader.StateStopping, leader.StateTakeover:
		class = "warn"
	}
	row.Here, row.InHere = pill{class, string(t.State)}, v.age(t.Since)
	if t.Blocker != (leader.Blocker{}) {
		row.Notes = append(row.Notes, pageNote{Text: clip(t.Blocker.Error())})
	} else if t.Err != nil {
		row.Notes = append(row.Notes, pageNote{Text: clip(t.Err.Error())})
	}
}

// summary says in a sentence what the table says in rows.
func summary(names int, counts map[string]int) string {
	if names == 0 {
		return "No names are known yet."
	}
	var parts []string
	for _, p := range []struct{ who, words string }{
		{leadsHere, "led here"}, {leads, "led elsewhere"}, {changing, changing}, {nobody, "led by nobody"}, {unknown, unknown},
	} {
		if n := counts[p.who]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, p.words))
		}
	}
	word := "names"
	if names == 1 {
		word = "name"
	}
	return fmt.Sprintf("%d %s: %s.", names, word, strings.Join(parts, ", "))
}

func changePill(e leader.Event) pill {
	switch e.Kind {
	case leader.Gained, leader.Connected:
		return pill{"good", string(e.Kind)}
	case leader.Lost, leader.Overrun, leader.Unreachable, leader.Unsupported, leader.Failed:
		return pill{"bad", string(e.Kind)}
	case leader.Stopping, leader.Blocked, leader.Refused, leader.Unmarked, leader.Untold:
		return pill{"warn", string(e.Kind)}
	case leader.Disconnected:
		if e.Err != nil {
			return pill{"bad", string(e.Kind)}
		}
	}
	return pill{"calm", string(e.Kind)}
}

// age is nil for the zero time. Times of the database may be ahead of this clock.
func (v *pageView) age(t time.Time) *pageAge {
	if t.IsZero() {
		return nil
	}
	return &pageAge{t.UTC(), max(v.Now.Sub(t), 0)}
}

// span says how long d is, in two units at most. The script of the page does the same.
func span(d time.Duration) string {
	s := int64(d / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%d h %d min", s/3600, s/60%60)
	}
	return fmt.Sprintf("%d d %d h", s/86400, s/3600%24)
}

// clip shortens a text that somebody else has written.
func clip(s string) string {
	const most = 400
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}

// part of a text. What would not be seen, or would turn what is around it, is shown by its code.
type part struct {
	Text string
	Code bool
}

func show(s string) (parts []part) {
	plain := 0 // up to here parts has s
	for i, r := range s {
		if unicode.IsPrint(r) && !unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
			continue
		}
		if plain < i {
			parts = append(parts, part{Text: s[plain:i]})
		}
		parts = append(parts, part{fmt.Sprintf("U+%04X", r), true})
		plain = i + utf8.RuneLen(r)
	}
	if plain < len(s) {
		parts = append(parts, part{Text: s[plain:]})
	}
	return parts
}
