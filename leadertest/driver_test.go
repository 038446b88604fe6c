// SPDX-License-Identifier: MIT

package leadertest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/oxygenhub/leader/driver"
)

// storeControls are those of the sessions of a Store, also where they are wrapped.
func storeControls() Controls {
	return Controls{
		End:  func(_ testing.TB, s driver.Session) { sessionOf(s).End() },
		Take: func(_ testing.TB, s driver.Session, keys ...int64) { sessionOf(s).Take(keys...) },
		Cut:  func(_ testing.TB, s driver.Session) { sessionOf(s).Cut() },
		Another: func(_ testing.TB, d driver.Driver) driver.Driver {
			if d, ok := d.(*brokenDriver); ok {
				return d.another()
			}
			return d.(storeDriver).store.Driver()
		},
	}
}

// TestDriverOfStore runs the conformance suite as others do, in real time.
func TestDriverOfStore(t *testing.T) {
	c := storeControls()
	c.SessionTimeout, c.Slack = 400*time.Millisecond, 400*time.Millisecond
	TestDriver(t, func(*testing.T) driver.Driver { return NewStore().Driver() }, c)
}

// TestDriverOfStoreInBubbles: nothing is left behind, and the times are exact.
func TestDriverOfStoreInBubbles(t *testing.T) {
	c := storeControls()
	c.SessionTimeout, c.Slack = 10*time.Second, 50*time.Millisecond
	for _, test := range driverTests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.run(newPlace(t, NewStore().Driver(), c))
			})
		})
	}
}

// TestDriverOfDurableStore has locks that do not expire.
func TestDriverOfDurableStore(t *testing.T) {
	for _, test := range driverTests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := NewStore()
				st.durable = true
				test.run(newPlace(t, st.Driver(), storeControls()))
			})
		})
	}
}

// TestDriverWithoutControls skips what cannot be made.
func TestDriverWithoutControls(t *testing.T) {
	for _, test := range driverTests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.run(newPlace(t, struct{ driver.Driver }{NewStore().Driver()}, Controls{}))
			})
		})
	}
}
