// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/oxygenhub/leader/leaderhttp"
)

// recovery is longer than SessionTimeout: the session is proved meanwhile, or the lock would not be held to its end.
const recovery = 2500 * time.Millisecond

// begin starts all, and shows that a leader is not ready at once.
func (f *fleet) begin(ctx context.Context) error {
	f.chapter("three processes of a service on %s; who leads takes %v to recover, and its session would end after %v of silence",
		f.db.place(), recovery, options.SessionTimeout)
	for _, name := range names {
		if err := f.start(settings{Name: name, Mode: leaderhttp.Refuse, Recovery: recovery}); err != nil { //nolint:contextcheck // stop ends it
			return err
		}
		if err := f.up(ctx, name); err != nil {
			return err
		}
	}
	if err := f.until(ctx, "somebody leads", func() bool { return f.leader != nil }); err != nil {
		return err
	}
	f.say("/leader at %s: %d", f.leader.Name, f.status(ctx, f.leader, "/leader"))
	f.say("a write there: %s", f.answer(ctx, f.leader, http.MethodPut, "/kv/hello"))
	err := f.serves(ctx, nil)
	if err == nil && len(f.led) > 1 {
		err = errors.New("the first leadership ended before its recovery did")
	}
	return err
}

// show sends a write to a standby, and does not follow.
func (f *fleet) show(ctx context.Context) error {
	for _, name := range names {
		if n := f.nodes[name]; n != f.leader {
			err := f.until(ctx, name+" has heard who leads", func() bool {
				a, _ := request(ctx, http.MethodPut, n.addr, "/kv/hello", "world") // no answer is no hint
				return (a.status == http.StatusNoContent || a.hint() == f.leader.addr) && f.status(ctx, n, "/kv/counter-0") == 200
			})
			if err != nil {
				return err
			}
			f.say("a write at %s, which stands by: %s", name, f.answer(ctx, n, http.MethodPut, "/kv/hello"))
			f.say("a read there: %s", f.answer(ctx, n, http.MethodGet, "/kv/counter-0"))
			return nil
		}
	}
	return nil
}

// rollout restarts all, the standbys first, as a new version that does something else with writes.
func (f *fleet) rollout(ctx context.Context, mode leaderhttp.Mode) error {
	last := f.leader
	for _, name := range append(f.standbys(), last.Name) {
		set := f.nodes[name].settings
		set.Mode = mode
		if err := f.again(ctx, set); err != nil {
			return err
		}
		f.say("%s is there again, and ready", name)
	}
	return f.serves(ctx, last)
}

// again restarts a process with SIGTERM: it gives its lock back, and leaves. Another one leads before it is there again.
func (f *fleet) again(ctx context.Context, set settings) error {
	last := f.nodes[set.Name]
	if err := f.leave(ctx, last); err != nil {
		return err
	}
	if err := f.until(ctx, "another one leads", func() bool { return f.leader != last }); err != nil {
		return err
	}
	if err := f.start(set); err != nil { //nolint:contextcheck // stop ends it
		return err
	}
	return f.up(ctx, set.Name)
}

// crash kills the leader.
func (f *fleet) crash(ctx context.Context) error {
	last := f.leader
	f.chapter("kill -9 %s", last.Name)
	if err := f.kill(last); err != nil {
		return err
	}
	if err := f.until(ctx, "another one leads", func() bool { return last.over && f.leader != last }); err != nil {
		return err
	}
	if err := f.start(last.settings); err != nil { //nolint:contextcheck // stop ends it
		return err
	}
	return f.serves(ctx, last)
}

// breaks leaves the service to a process that cannot recover, which stands back for those who can.
func (f *fleet) breaks(ctx context.Context) error {
	last, standbys := f.leader, f.standbys()
	broken, other := f.nodes[standbys[0]].settings, f.nodes[standbys[1]]
	f.chapter("%s cannot recover, and is the only one when %s stops", broken.Name, last.Name)
	broken.Fails, broken.Recovery = true, 300*time.Millisecond
	if err := f.again(ctx, broken); err != nil {
		return err
	}
	if err := f.leave(ctx, other); err != nil {
		return err
	}
	if err := f.leave(ctx, last); err != nil {
		return err
	}
	if err := f.until(ctx, broken.Name+" leads", func() bool { return f.leader.Name == broken.Name }); err != nil {
		return err
	}
	for _, set := range []settings{last.settings, other.settings} {
		if err := f.start(set); err != nil { //nolint:contextcheck // stop ends it
			return err
		}
	}
	return f.serves(ctx, f.nodes[broken.Name])
}

// standbys returns the names of those who do not lead.
func (f *fleet) standbys() (standby []string) {
	for _, name := range names {
		if f.nodes[name] != f.leader {
			standby = append(standby, name)
		}
	}
	return standby
}
