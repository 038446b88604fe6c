// SPDX-License-Identifier: MIT

package leaderhttp

import (
	"time"

	"github.com/oxygenhub/leader"
)

// statusBody is the body of /status: ages beside times, because clocks of machines differ.
type statusBody struct {
	Node       string     `json:"node_id"`
	Addr       string     `json:"addr"`
	Namespace  string     `json:"namespace"`
	Place      string     `json:"place"`
	Resigned   bool       `json:"resigned"`
	Connected  bool       `json:"connected"`
	Resting    bool       `json:"resting,omitempty"`
	SinceMS    *int64     `json:"since_ms"` // how long it has been connected, or not
	SessionPID uint32     `json:"session_pid"`
	Generation uint64     `json:"generation"`
	Losses     uint64     `json:"losses"`
	Retired    int        `json:"retired"`
	ProofAgeMS *int64     `json:"proof_age_ms"` // null without a session
	Err        string     `json:"error"`
	Tasks      []taskBody `json:"tasks"`
	Known      knownBody  `json:"known"`
}

type taskBody struct {
	Name     string       `json:"name"`
	State    leader.State `json:"state"`
	SinceMS  *int64       `json:"since_ms"`
	Standbys int          `json:"standbys"`
	Losses   uint64       `json:"losses"`
	Term     leader.Term  `json:"term"`
	Err      string       `json:"error"`
	Blocker  string       `json:"blocker"` // what a takeover waits for
}

type knownBody struct {
	AgeMS   *int64       `json:"age_ms"` // null: the database has not answered yet
	Err     string       `json:"error"`
	Holders []holderBody `json:"holders"`
}

type holderBody struct {
	Name    string      `json:"name"`
	Held    bool        `json:"held"`
	Current bool        `json:"current"`
	Node    string      `json:"node_id"`
	Addr    string      `json:"addr"`
	PID     uint32      `json:"pid"`
	Since   string      `json:"since"` // by the clock of the database
	Term    leader.Term `json:"term"`
	Ended   *endBody    `json:"ended"` // the last term that is over; null if none is
}

type endBody struct {
	Term   leader.Term      `json:"term"`
	Reason leader.EndReason `json:"reason"`
	At     string           `json:"at"`
}

func statusOf(l *leader.Leader) statusBody {
	known := l.Known()
	s := l.Status()
	body := statusBody{
		Node: s.Node, Addr: s.Addr, Namespace: s.Namespace, Place: s.Place, Resigned: s.Resigned,
		Connected: s.Connected, Resting: s.Resting, SinceMS: ageMS(s.Since), SessionPID: s.SessionPID, Generation: s.Generation,
		Losses: s.Losses, Retired: s.Retired, ProofAgeMS: millis(s.ProofAge), Err: errText(s.Err),
		Tasks: []taskBody{},
		Known: knownBody{AgeMS: ageMS(known.Time), Err: errText(known.Err), Holders: []holderBody{}},
	}
	for _, t := range s.Tasks {
		task := taskBody{t.Name, t.State, ageMS(t.Since), t.Standbys, t.Losses, t.Term, errText(t.Err), ""}
		if t.Blocker != (leader.Blocker{}) {
			task.Blocker = t.Blocker.Error()
		}
		body.Tasks = append(body.Tasks, task)
	}
	for _, h := range known.Holders {
		holder := holderBody{h.Name, h.Held, h.Current, h.Node, h.Addr, h.PID, utc(h.Since), h.Term, nil}
		if h.Ended != (leader.End{}) {
			holder.Ended = &endBody{h.Ended.Term, h.Ended.Reason, utc(h.Ended.At)}
		}
		body.Known.Holders = append(body.Known.Holders, holder)
	}
	return body
}

// ageMS is in milliseconds, and nil for the zero time.
func ageMS(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	return millis(max(time.Since(t), 0))
}

func utc(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
