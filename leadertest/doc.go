// SPDX-License-Identifier: MIT

// Package leadertest helps to test programs that use a Leader, and drivers for other places of locks.
//
// # A program
//
// A [Store] is a place of locks in memory. Several Leaders on one Store contend as several processes do, and a [Session] of it
// can be ended, cut off, delayed, frozen, or robbed of a lock. As a Store does no I/O, all of that can be done in a bubble of
// testing/synctest, where the ten seconds of a session timeout take no time:
//
//	synctest.Test(t, func(t *testing.T) {
//		store := leadertest.NewStore()
//		lead, err := leader.New(store.Backend(), leader.Options{Node: "web-1"})
//		...
//		store.Session("web-1").Cut() // a partition
//		time.Sleep(10 * time.Second)
//	})
//
// Make the Store and the Leader inside the bubble, and call Resign before its end.
//
// To test with the database of production, [Kill] ends the session of a Leader of any backend.
//
// # A driver
//
// [TestDriver] tests what a driver.Driver must promise; docs/drivers.md lists it. It shows that a promise is broken, where it
// is; it cannot show that none is under loads and faults that it does not make.
package leadertest
