// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"fmt"
	"maps"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scenes are those of TestLogLines.
func scenes() map[string]scene {
	all := scenesOfSessions()
	maps.Copy(all, scenesOfTasks())
	maps.Copy(all, scenesOfTrouble())
	maps.Copy(all, scenesOfTerms())
	return all
}

func scenesOfSessions() map[string]scene {
	return map[string]scene{
		// Once for each change of state, and all written before Resign returns.
		"Outage": {
			random: true,
			play: func(p *play) {
				p.b.failures = 20
				c := p.run(obey)
				time.Sleep(10 * time.Minute)
				p.b.session().terminate()
				time.Sleep(10 * time.Minute)
				require.NoError(p.t, p.l.Resign(p.t.Context()))
				before := p.out.lines()
				<-c.done
				synctest.Wait()
				assert.Equal(p.t, before, p.out.lines())
			},
			lines: []string{
				`WARN "database session not opened, retrying" generation=0 names=[x] err="fake: connection refused"`,
				opened,
				`INFO "leadership gained" generation=0 name=x waited=~`,
				`WARN "database session lost" generation=0 names=[x] reason=connection err="fake: terminated by the server"`,
				`WARN "leadership lost" generation=0 name=x reason=connection led=~ err="fake: terminated by the server"`,
				`INFO "database session opened" generation=1 names=[x] place=memory namespace=test`,
				`INFO "leadership gained" generation=1 name=x waited=~`,
				`INFO "task told to stop" generation=1 name=x reason=resigned`,
				`INFO "leadership released" generation=1 name=x reason=resigned led=~`,
				`INFO "database session closed" generation=1`,
			},
		},
		"NoWork": {
			play: func(p *play) { p.run(nothing) },
			lines: []string{
				opened,
				`INFO "leadership gained" generation=0 name=x waited=0s`,
				`INFO "leadership released" generation=0 name=x reason=returned led=0s`,
				`INFO "database session closed" generation=0`,
			},
		},
		"Warning": {
			play: func(p *play) {
				p.b.warning = errSQLiteMemory
				p.run(obey)
			},
			lines: []string{
				fmt.Sprintf(`WARN "database session opened, with a warning" generation=0 names=[x] place=memory namespace=test err=%q`, errSQLiteMemory),
				`INFO "leadership gained" generation=0 name=x waited=0s`,
			},
		},
		"Unsupported": {
			play: func(p *play) {
				p.b.failures, p.b.dialErr = 1, fmt.Errorf("%w: fake: a pooler", ErrUnsupported)
				c := p.run(obey)
				<-c.done
			},
			lines: []string{
				fmt.Sprintf(`ERROR "database session not opened, giving up" generation=0 names=[x] err="%v: fake: a pooler"`, ErrUnsupported),
			},
		},
		// The lease ends during the release.
		"LostDuringTheRelease": {
			play: func(p *play) {
				p.b.fault(kindUnlock, fakeFault{hang: true})
				p.run(nothing)
			},
			lines: []string{
				opened,
				`INFO "leadership gained" generation=0 name=x waited=0s`,
				fmt.Sprintf(`WARN "database session lost" generation=0 names=[x] reason=lease err=%q`, errLeaseEnd),
				fmt.Sprintf(`WARN "leadership released with a session that was lost" generation=0 name=x reason=returned led=6s err=%q`, errLeaseEnd),
			},
		},
		// The lease ends because proofs are answered with an error.
		"ProofsFail": {
			play: func(p *play) {
				p.b.fault(kindProve, fakeFault{err: errFakeSoft}, fakeFault{err: errFakeSoft}, fakeFault{err: errFakeSoft})
				goRun(p.t.Context(), p.l, "x", obey)
				time.Sleep(6 * time.Second)
			},
			lines: []string{
				opened,
				`INFO "leadership gained" generation=0 name=x waited=0s`,
				fmt.Sprintf(`WARN "database session lost" generation=0 names=[x] reason=lease err=%q`, &leaseError{errFakeSoft}),
				fmt.Sprintf(`WARN "leadership lost" generation=0 name=x reason=lease led=6s err=%q`, &leaseError{errFakeSoft}),
			},
		},
	}
}

func scenesOfTasks() map[string]scene {
	return map[string]scene{
		"Failed": {
			play: func(p *play) {
				p.run(func(context.Context) error { time.Sleep(time.Second); return errSick })
			},
			lines: []string{
				opened,
				`INFO "leadership gained" generation=0 name=x waited=0s`,
				`INFO "leadership released, its task has failed" generation=0 name=x reason=failed led=1s`,
				`INFO "database session closed" generation=0`,
			},
		},
		"Caller": {
			play: func(p *play) {
				for _, cause := range []error{nil, errSick} {
					ctx, cancel := until(p.t)
					j := &job{drain: time.Second} // one that returns at once may do so before it is told
					c := goRun(ctx, p.l, "x", j.task)
					time.Sleep(time.Second)
					cancel(cause)
					<-c.done
				}
			},
			lines: []string{
				opened,
				`INFO "leadership gained" generation=0 name=x waited=0s`,
				`INFO "task told to stop" generation=0 name=x reason=caller`,
				`INFO "leadership released" generation=0 name=x reason=caller led=2s`,
				`INFO "leadership gained" generation=0 name=x waited=0s`,
				`INFO "task told to stop" generation=0 name=x reason=caller err="the disk is full"`,
				`INFO "leadership released" generation=0 name=x reason=caller led=2s`,
			},
		},
		"HandOver": {
			play: func(p *play) {
				p.run(obey)
				p.b.session().plead("x")
			},
			lines: []string{
				opened,
				`INFO "leadership gained" generation=0 name=x waited=0s`,
				`INFO "task told to stop" generation=0 name=x reason=handover`,
				`INFO "leadership released" generation=0 name=x reason=handover led=1m0s`,
				`INFO "left to others on request" generation=0 name=x next_in=3s`,
			},
		},
		"StepDown": {
			play: func(p *play) {
				p.run(func(context.Context) error { return StepDown(errSick, time.Hour) })
			},
			lines: []string{
				opened,
				`INFO "leadership gained" generation=0 name=x waited=0s`,
				`INFO "leadership released" generation=0 name=x reason=failed led=0s`,
				`WARN "stepped down, others may lead" generation=0 name=x err="the disk is full" next_in=1h0m0s`,
			},
		},
		"Overrun": {
			opts: Options{StopTimeout: 5 * time.Second},
			play: func(p *play) {
				ctx, cancel := until(p.t)
				j := &job{drain: time.Minute, err: errSick}
				c := goRun(ctx, p.l, "x", j.task)
				time.Sleep(time.Second)
				cancel(nil)
				<-c.done
			},
			lines: []string{
				opened,
				`INFO "leadership gained" generation=0 name=x waited=0s`,
				`INFO "task told to stop" generation=0 name=x reason=caller`,
				`WARN "task has not stopped in time" generation=0 name=x reason=caller`,
				`WARN "stopped task returned an error" generation=0 name=x reason=caller err="the disk is full"`,
				`INFO "leadership released" generation=0 name=x reason=caller led=1m1s`,
			},
		},
		// The lines about a leadership have the generation of its session, also when there is another one.
		"OverrunAfterALoss": {
			opts:   Options{StopTimeout: 5 * time.Second},
			random: true,
			play: func(p *play) {
				j := &job{drain: 50 * time.Second, err: errSick}
				c := goRun(p.t.Context(), p.l, "x", j.task)
				time.Sleep(2 * time.Second)
				p.b.session().terminate()
				goRun(p.t.Context(), p.l, "y", obey) // has another session opened
				time.Sleep(30 * time.Second)
				require.EqualValues(p.t, 1, p.l.Status().Generation)
				require.NoError(p.t, p.l.Status().Err)
				time.Sleep(50 * time.Second)
				require.False(p.t, c.returned())
			},
			lines: []string{
				opened,
				`INFO "leadership gained" generation=0 name=x waited=~`,
				`WARN "database session lost" generation=0 names=[x] reason=connection err="fake: terminated by the server"`,
				`WARN "leadership lost" generation=0 name=x reason=connection led=~ err="fake: terminated by the server"`,
				`INFO "database session opened" generation=1 names=[y] place=memory namespace=test`,
				`INFO "leadership gained" generation=1 name=y waited=~`,
				`WARN "task has not stopped in time" generation=0 name=x reason=connection err="fake: terminated by the server"`,
				`WARN "stopped task returned an error" generation=0 name=x reason=connection err="the disk is full"`,
				`INFO "leadership gained" generation=1 name=x waited=~`,
			},
		},
		"LostWhileItStops": {
			play: func(p *play) {
				ctx, cancel := until(p.t)
				j := &job{drain: 3 * time.Second}
				c := goRun(ctx, p.l, "x", j.task)
				time.Sleep(time.Second)
				cancel(nil)
				time.Sleep(time.Second)
				p.b.session().terminate()
				<-c.done
			},
			lines: []string{
				opened,
				`INFO "leadership gained" generation=0 name=x waited=0s`,
				`INFO "task told to stop" generation=0 name=x reason=caller`,
				`WARN "database session lost" generation=0 names=[x] reason=connection err="fake: terminated by the server"`,
				`WARN "leadership lost" generation=0 name=x reason=connection led=2s err="fake: terminated by the server"`,
			},
		},
		"LockGoneBeforeTheRelease": {
			play: func(p *play) {
				p.run(func(context.Context) error { p.b.session().steal("x"); return nil })
			},
			lines: []string{
				opened,
				`INFO "leadership gained" generation=0 name=x waited=0s`,
				fmt.Sprintf(`WARN "leadership lost before its release" generation=0 name=x reason=lock led=0s err=%q`, errNotHeld),
				`INFO "database session closed" generation=0`,
			},
		},
	}
}
