// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"fmt"
	"strings"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func scenesOfTrouble() map[string]scene {
	return map[string]scene{
		// It stands by again after a loss, and after questions that were refused: that is what tells that the trouble is over.
		"Standby": {
			play: func(p *play) {
				other, _ := p.st.leader(p.t, Options{})
				goRun(p.t.Context(), other, "x", obey)
				synctest.Wait()
				p.run(obey)
				p.b.session().terminate()
				time.Sleep(time.Minute)
				p.b.fault(kindTry, fakeFault{err: errFakeSoft}, fakeFault{err: errFakeSoft})
				time.Sleep(time.Minute)
				require.NoError(p.t, other.Resign(p.t.Context()))
				time.Sleep(time.Second)
				p.run(obey)
			},
			lines: []string{
				opened,
				`INFO "standing by, somebody else leads" generation=0 name=x next_in=1s`,
				`WARN "database session lost" generation=0 reason=connection err="fake: terminated by the server"`,
				`INFO "database session opened" generation=1 names=[x] place=memory namespace=test`,
				`INFO "standing by, somebody else leads" generation=1 name=x next_in=1s`,
				`WARN "asking for locks failed, retrying" generation=1 names=[x] err="fake: statement failed"`,
				`INFO "standing by, somebody else leads" generation=1 name=x next_in=1s`,
				`INFO "leadership gained" generation=1 name=x waited=3m0s`,
				`INFO "standing by, another call of this process leads" generation=1 name=x`,
			},
		},
		"ManyNames": {
			play: func(p *play) {
				p.b.failures, p.b.dialTime = 1, time.Second
				for i := range mostNames + 2 {
					goRun(p.t.Context(), p.l, fmt.Sprintf("%02d", i), obey)
				}
				time.Sleep(time.Second)
			},
			lines: []string{
				`WARN "database session not opened, retrying" generation=0 names="[00 01 02 03 04 05 06 07 08 09]" more_names=2 err="fake: connection refused"`,
			},
		},
		// The trouble of one name is told whatever it had before, once as long as it lasts, and again in the next session.
		"OneLockHasTrouble": {
			play: func(p *play) {
				trouble := fakeFault{err: &keysError{keys: []int64{Key("test", "x")}, err: errSick}}
				other, _ := p.st.leader(p.t, Options{})
				goRun(p.t.Context(), other, "x", obey)
				synctest.Wait()
				p.b.fault(kindTry, trouble, trouble, trouble)
				goRun(p.t.Context(), p.l, "x", obey)
				time.Sleep(2 * time.Second)
				p.b.session().terminate()
				p.st.set(func() { p.b.faults[kindTry] = []fakeFault{trouble, trouble} })
				time.Sleep(time.Minute)
			},
			lines: []string{
				opened,
				`WARN "asking for a lock failed, retrying" generation=0 name=x err="the disk is full" next_in=1s`,
				`WARN "database session lost" generation=0 reason=connection err="fake: terminated by the server"`,
				`INFO "database session opened" generation=1 names=[x] place=memory namespace=test`,
				`WARN "asking for a lock failed, retrying" generation=1 name=x err="the disk is full" next_in=1s`,
				`INFO "standing by, somebody else leads" generation=1 name=x next_in=1s`,
			},
		},
		"Untold": {
			play: func(p *play) {
				p.b.fault(kindTell, fakeFault{err: errFakeSoft})
				require.NoError(p.t, p.l.Run(p.t.Context(), "x", nothing))
			},
			lines: []string{
				opened,
				`INFO "leadership gained" generation=0 name=x waited=0s`,
				`WARN "release not told to others" generation=0 names=[x] err="fake: statement failed"`,
				`INFO "leadership released" generation=0 name=x reason=returned led=0s`,
			},
		},
	}
}

// scenesOfTerms begin at the beginning of a bubble, in the year 2000: so their terms are known.
func scenesOfTerms() map[string]scene {
	const began = `INFO "leadership gained" generation=0 name=x term=946684800000 waited=0s`
	terms := Options{Terms: true}
	fails := func(p *play, err error) { p.st.set(func() { p.st.termErr = err }) }
	return map[string]scene{
		"Blocked": {
			opts: terms,
			play: func(p *play) {
				p.st.lockRow("x", true)
				p.run(obey)
			},
			lines: []string{
				opened,
				fmt.Sprintf(`WARN "takeover waits for a transaction" generation=0 name=x err=%q`, Blocker{PID: 7, Application: "fake", Age: time.Minute}),
			},
		},
		"Delayed": {
			opts: Options{Terms: true, TakeoverDelay: 8 * time.Second},
			play: func(p *play) {
				p.st.deadRow()
				p.run(obey)
			},
			lines: []string{
				opened,
				`WARN "takeover delayed" generation=0 name=x term=946684800000 ` +
					`err="nobody said that the last term has ended: its task may still be stopping, so the takeover waits for another 8s" next_in=8s`,
				`INFO "leadership gained" generation=0 name=x term=946684800000 waited=8s`,
			},
		},
		"NotBegun": {
			opts: terms,
			play: func(p *play) {
				fails(p, errFakeSoft)
				goRun(p.t.Context(), p.l, "x", obey)
				time.Sleep(time.Minute)
				fails(p, nil)
			},
			lines: []string{
				opened,
				`WARN "terms not begun, retrying" generation=0 name=x err="begin a term: fake: statement failed"`,
			},
		},
		"SeveralNotBegun": {
			opts: terms,
			play: func(p *play) {
				p.b.dialTime = time.Second // both wait by then
				fails(p, errFakeSoft)
				goRun(p.t.Context(), p.l, "x", obey)
				goRun(p.t.Context(), p.l, "y", obey)
				time.Sleep(time.Minute)
				fails(p, nil)
			},
			lines: []string{
				`INFO "database session opened" generation=0 names="[x y]" place=memory namespace=test`,
				`WARN "terms not begun, retrying" generation=0 names="[x y]" err="begin a term: fake: statement failed"`,
			},
		},
		"NotChecked": {
			opts: terms,
			play: func(p *play) {
				p.b.fault(kindTerms, fakeFault{}, fakeFault{err: errFakeSoft}, fakeFault{err: errFakeSoft})
				p.run(obey)
			},
			lines: []string{
				opened, began,
				`WARN "terms not checked, retrying" generation=0 names=[x] err="check the terms: fake: statement failed"`,
			},
		},
		"NotMarked": {
			opts: terms,
			play: func(p *play) {
				require.NoError(p.t, p.l.Run(p.t.Context(), "x", func(context.Context) error {
					fails(p, errFakeSoft)
					return nil
				}))
				fails(p, nil)
			},
			lines: []string{
				opened, began,
				`WARN "end of a term not marked" generation=0 names=[x] err="fake: statement failed"`,
				`INFO "leadership released" generation=0 name=x term=946684800000 reason=returned led=0s`,
			},
		},
		"RowLocked": {
			opts:   terms,
			random: true,
			loose:  true,
			play: func(p *play) {
				require.NoError(p.t, p.l.Run(p.t.Context(), "x", func(context.Context) error {
					p.st.lockRow("x", true)
					return nil
				}))
				time.Sleep(time.Second)
			},
			lines: []string{
				opened, strings.Replace(began, "0s", "~", 1),
				`INFO "leadership released" generation=0 name=x term=946684800000 reason=returned led=~`,
				fmt.Sprintf(`WARN "end of a term not marked" generation=0 names=[x] err=%q`, errRowLocked),
			},
		},
		// Somebody has taken the row away.
		"TermGone": {
			opts: terms,
			play: func(p *play) {
				goRun(p.t.Context(), p.l, "x", obey)
				time.Sleep(time.Second)
				p.st.set(func() { delete(p.st.terms, Key("test", "x")) })
				time.Sleep(1500 * time.Millisecond)
			},
			lines: []string{
				opened, began,
				fmt.Sprintf(`WARN "leadership lost" generation=0 name=x term=946684800000 reason=term led=2s err=%q`, errTermGone),
				`INFO "leadership gained" generation=0 name=x term=946684802000 waited=0s`,
			},
		},
	}
}
