// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"errors"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/driver"
)

// mapTerms is a driver.Terms for one goroutine.
type mapTerms struct {
	records map[int64]driver.Term
	refused error // of swaps of key 9
	raced   bool  // somebody swaps between a read and a swap
}

func (m *mapTerms) ReadTerms(context.Context, string, []int64) (map[int64]driver.Term, error) {
	return maps.Clone(m.records), nil
}

func (m *mapTerms) SwapTerm(_ context.Context, key, last int64, next driver.Term) (bool, error) {
	if key == 9 && m.refused != nil {
		return false, m.refused
	}
	if m.raced || m.records[key].Number != last {
		return false, nil
	}
	m.records[key] = next
	return true, nil
}

var driverSite = termSite{namespace: "n", node: "node", addr: "addr", pid: 7}

// begin begins the term of key 1.
func (m *mapTerms) begin(t *testing.T, last, floor Term) termBegun {
	t.Helper()
	begun, stuck, err := driverTerms{m}.begin(t.Context(), driverSite, []termWant{{key: 1, name: "x", last: last, floor: floor}})
	require.NoError(t, err)
	require.NoError(t, stuck)
	require.Len(t, begun, 1)
	return begun[1]
}

func TestDriverTermsBegin(t *testing.T) {
	m := &mapTerms{records: make(map[int64]driver.Term)}
	before := Term(time.Now().UnixMilli())
	first := m.begin(t, 0, 0)
	assert.True(t, first.clean)
	assert.GreaterOrEqual(t, first.term, before)
	record := m.records[1]
	assert.WithinDuration(t, time.Now(), record.Taken, time.Minute)
	record.Taken = time.Time{}
	assert.Equal(t, driver.Term{Namespace: "n", Name: "x", Number: int64(first.term), Node: "node", Addr: "addr", PID: 7}, record)

	assert.Zero(t, m.begin(t, 0, 0), "the record is not what was read")
	assert.Equal(t, int64(first.term), m.records[1].Number)

	const future = 1 << 50
	second := m.begin(t, first.term, future)
	assert.Equal(t, termBegun{term: future, last: first.term}, second, "nobody has marked the end of the first")
	assert.Equal(t, string(EndDied), m.records[1].Ended)

	third := m.begin(t, unread, 0)
	assert.Equal(t, termBegun{term: future + 1, last: future}, third, "in spite of the clock")

	m.raced = true
	assert.Zero(t, m.begin(t, unread, 0))
	m.raced = false
	m.records[1] = driver.Term{Number: math.MaxInt64}
	_, _, err := driverTerms{m}.begin(t.Context(), driverSite, []termWant{{key: 1, name: "x", last: unread}})
	require.ErrorIs(t, err, errLastTerm)
}

// TestDriverTermsBeginSome: what has begun is told also when the next one fails.
func TestDriverTermsBeginSome(t *testing.T) {
	m := &mapTerms{records: make(map[int64]driver.Term), refused: errors.New("no")}
	wants := []termWant{{key: 1, name: "x"}, {key: 9, name: "y"}}
	begun, _, err := driverTerms{m}.begin(t.Context(), driverSite, wants)
	require.ErrorIs(t, err, m.refused)
	assert.Len(t, begun, 1)
	assert.NotZero(t, begun[1].term)
}

func TestDriverTermsEnd(t *testing.T) {
	m := &mapTerms{records: make(map[int64]driver.Term)}
	first := m.begin(t, 0, 0)
	end := func(term Term) {
		t.Helper()
		locked, err := driverTerms{m}.end(t.Context(), driverSite, []termEnd{{key: 1, term: term, reason: EndReturned}})
		require.NoError(t, err)
		require.Empty(t, locked)
	}
	end(first.term - 1)
	assert.Zero(t, m.records[1].Released, "another term")
	end(first.term)
	assert.WithinDuration(t, time.Now(), m.records[1].Released, time.Minute)
	assert.Equal(t, string(EndReturned), m.records[1].Ended)
	second := m.begin(t, first.term, 0)
	assert.True(t, second.clean)
	assert.Equal(t, string(EndReturned), m.records[1].Ended, "of the term before, until this one ends")
	assert.Zero(t, m.records[1].Released)
}
