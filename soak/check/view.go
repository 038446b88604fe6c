// SPDX-License-Identifier: MIT

package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oxygenhub/leader/soak/history"
)

// Span is a task, from Start until it surely ran no more.
type Span struct {
	Name, Node string
	Place      int
	Op, Term   int64
	Stubborn   bool
	Called     time.Duration // since when the call could have led: Run was called, or its last task had ended
	Start, End time.Duration
	Told       time.Duration // only if WasTold
	WasTold    bool
	Cause      history.Cause
	Died       bool          // it ended with its process
	Returned   time.Duration // when Run or Try had returned; that of the last event if it is not known

	events []history.Event // those that it is made of
	view   *view
}

// Lost says whether the task was told that its lock may be gone.
func (s *Span) Lost() bool { return s.WasTold && s.Cause == history.CauseLost }

// seen is when the task knew at the latest that it had to end.
func (s *Span) seen() time.Duration {
	if s.WasTold {
		return min(s.Told, s.End)
	}
	return s.End
}

func (s *Span) String() string {
	return fmt.Sprintf("%s/%d of %s [%v, %v]", s.Name, s.Term, s.Node, s.view.since(s.Start), s.view.since(s.End))
}

// Injury is a fault with the time that it lasted.
type Injury struct {
	history.Injury
	From, Until time.Duration
}

// node is a process.
type node struct {
	name     string
	place    int
	up, gone time.Duration // gone: when it said that it leaves, or was killed; else the end
	killed   bool
	events   []history.Event // its own
	injuries []*Injury       // its own and those of its place
}

// call is one of Run or Try.
type call struct {
	node        *node
	event, done history.Event // done.Kind is "" if it never returned
	from, until time.Duration
	spans       []*Span
}

// view is an episode as the checkers look at it.
type view struct {
	ep       *history.Episode
	nodes    map[string]*node
	spans    []*Span // by Start
	calls    []*call
	injuries []*Injury
	calm     [][2]time.Duration // from Calm to whatever is no longer calm
	begin    time.Duration      // of the first event
	end      time.Duration      // of the last one
	closing  time.Duration      // of Close
	sqlite   bool
	major    int // version of PostgreSQL, 0 if it is not known
	out      Result
}

// Spans returns the tasks of an episode by the time at which they began, and the faults.
func Spans(ep *history.Episode) ([]*Span, []*Injury) {
	v := look(ep)
	return v.spans, v.injuries
}

func look(ep *history.Episode) *view {
	v := &view{ep: ep, nodes: make(map[string]*node), sqlite: ep.Backend == "sqlite", out: Result{Counts: make(map[string]int)}}
	v.major = majorOf(ep.Server)
	events := slices.SortedStableFunc(slices.Values(ep.Events), func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	if len(events) > 0 {
		v.begin, v.end = events[0].At, events[len(events)-1].At
	}
	v.closing = v.end
	for _, e := range events {
		if e.Kind == history.Close {
			v.closing = e.At
			break
		}
	}
	v.findInjuries(events)
	v.findNodes(events)
	for _, name := range slices.Sorted(maps.Keys(v.nodes)) {
		v.findSpans(v.nodes[name])
	}
	slices.SortStableFunc(v.spans, func(a, b *Span) int { return cmp.Compare(a.Start, b.Start) })
	return v
}

// since is a time as a reader counts it: from the begin of the episode, in milliseconds.
func (v *view) since(at time.Duration) time.Duration { return (at - v.begin).Round(time.Millisecond) }

func majorOf(server string) int {
	for word := range strings.FieldsSeq(server) {
		head, _, _ := strings.Cut(word, ".")
		if major, err := strconv.Atoi(head); err == nil {
			return major
		}
	}
	return 0
}

// findInjuries matches Fault with Heal, and finds the times without any.
func (v *view) findInjuries(events []history.Event) {
	open := make(map[int]*Injury)
	var calm time.Duration
	isCalm := false
	for _, e := range events {
		switch e.Kind {
		case history.Fault, history.Close, history.End:
			if isCalm {
				v.calm = append(v.calm, [2]time.Duration{calm, e.At})
			}
			isCalm = false
			if e.Kind == history.Fault && e.Fault != nil {
				i := &Injury{Injury: *e.Fault, From: e.At, Until: -1}
				v.injuries, open[i.ID] = append(v.injuries, i), i
			}
		case history.Heal:
			if e.Fault != nil && open[e.Fault.ID] != nil {
				open[e.Fault.ID].Until = e.At
				delete(open, e.Fault.ID)
			}
		case history.Calm:
			calm, isCalm = e.At, true
			for id, i := range open { // everything is undone
				i.Until = e.At
				delete(open, id)
			}
		}
	}
	if isCalm {
		v.calm = append(v.calm, [2]time.Duration{calm, v.end})
	}
	for _, i := range open {
		i.Until = v.end
	}
	for _, i := range v.injuries {
		if i.Reach == history.ReachSession || i.Reach == history.ReachCut { // they happen once, whatever the plan says
			i.Until = min(i.Until, i.From+i.For+After)
		}
	}
}

func (v *view) findNodes(events []history.Event) {
	for _, e := range events {
		if e.Node == "" {
			continue
		}
		n := v.nodes[e.Node]
		if n == nil {
			n = &node{name: e.Node, up: e.At}
			v.nodes[e.Node] = n
		}
		n.events, n.gone = append(n.events, e), e.At
		if e.Kind == history.Up {
			n.place = e.Place
		}
	}
	for _, n := range v.nodes {
		for _, i := range v.injuries {
			if i.Node != "" && i.Node != n.name || i.Node == "" && i.Place != 0 && i.Place != n.place {
				continue
			}
			if i.Reach == history.ReachProcess { // its last line may come after the one that says that it is killed
				last := n.events[len(n.events)-1]
				if i.From >= n.up && last.Kind != history.Down && last.At <= i.Until+After {
					n.killed, n.gone = true, max(i.From, last.At)
				}
				continue
			}
			n.injuries = append(n.injuries, i)
		}
		if !n.killed && n.events[len(n.events)-1].Kind != history.Down {
			n.gone = v.end
		}
	}
}

// findSpans reads what a process says of its calls and tasks.
func (v *view) findSpans(n *node) {
	calls := make(map[int64]*call)
	running := make(map[int64]*Span)
	for _, e := range n.events {
		c, s := calls[e.Op], running[e.Op]
		switch e.Kind {
		case history.Contend:
			c = &call{node: n, event: e, from: e.At, until: -1}
			calls[e.Op], v.calls = c, append(v.calls, c)
		case history.Start:
			if c == nil || s != nil {
				v.violate(Inconsistent, e.Name, e.At, "a task began without a call, or twice in one", e)
				continue
			}
			s = &Span{
				Name: e.Name, Node: n.name, Place: n.place, Op: e.Op, Term: e.Term, Stubborn: e.Stubborn,
				view: v, Called: c.event.At, Start: e.At, End: -1, Returned: v.end, events: []history.Event{e},
			}
			if len(c.spans) > 0 {
				s.Called = c.spans[len(c.spans)-1].End
			}
			c.spans, running[e.Op], v.spans = append(c.spans, s), s, append(v.spans, s)
		case history.Told, history.Stop:
			if s == nil {
				v.violate(Inconsistent, e.Name, e.At, "a task that had not begun was told or stopped", e)
				continue
			}
			s.events = append(s.events, e)
			if e.Kind == history.Told {
				s.Told, s.WasTold, s.Cause = e.At, true, e.Cause
				continue
			}
			s.End = e.At
			delete(running, e.Op)
		case history.Done:
			if c != nil { // Done of Resign has an Op of its own
				c.done, c.until = e, e.At
				v.returned(c, s)
				if len(c.spans) > 0 {
					c.spans[len(c.spans)-1].Returned = e.At
				}
			}
		}
	}
	for _, s := range running { // the process died, or the history ends before the task
		s.End, s.Died = n.gone, n.killed
	}
	for _, c := range calls {
		if c.until < 0 {
			c.until = n.gone
		}
	}
}

// returned checks what a call says at its end: Run returns nil for a task that has run, Try says whether one has, and neither
// returns before the task.
func (v *view) returned(c *call, running *Span) {
	e, once, ran := c.done, c.event.Once, len(c.spans) > 0
	wrong := ""
	switch {
	case running != nil:
		wrong = "it returned while its task went on"
	case !once && e.Text == "" && !ran:
		wrong = "Run returned nil, and no task had run"
	case once && e.Ran && !ran:
		wrong = "Try said that the task had run, and none had"
	case once && !e.Ran && ran:
		wrong = "Try said that no task had run, and one had"
	default:
		return
	}
	v.violate(Returned, e.Name, e.At, fmt.Sprintf("%s/%d: %s", c.node.name, e.Op, wrong), c.event, e)
}
