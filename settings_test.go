// SPDX-License-Identifier: MIT

package leader

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What ends the session of a host that is gone must not do so early, and no later than it must. Linux ends it at the first probe
// after tcp_user_timeout, other systems after the last one.
func TestSettingsEndASilentSessionInTime(t *testing.T) {
	for _, timeout := range []time.Duration{
		time.Millisecond, 999 * time.Millisecond, time.Second, 1500 * time.Millisecond, 2 * time.Second, 3 * time.Second,
		5 * time.Second, 10 * time.Second, 11 * time.Second, time.Minute, 200 * time.Second, 10 * time.Minute, time.Hour, 24 * time.Hour,
	} {
		for _, version := range []int{130000, 140000} {
			s := &pgSession{opts: Options{Lease: timeout / 2, SessionTimeout: timeout}}
			set := make(map[string]int)
			for _, setting := range s.settings(version) {
				n, err := strconv.Atoi(setting[1])
				if err == nil {
					set[setting[0]] = n
				}
			}
			idle, interval, count := set["tcp_keepalives_idle"], set["tcp_keepalives_interval"], set["tcp_keepalives_count"]
			require.Positive(t, idle, timeout)
			require.Positive(t, interval, timeout)
			require.Positive(t, count, timeout)
			assert.EqualValues(t, timeout.Milliseconds(), set["tcp_user_timeout"], timeout)
			assert.LessOrEqual(t, count, 127, "%v: what Linux allows", timeout)
			assert.LessOrEqual(t, idle, 32767, "%v: what Linux allows", timeout)
			assert.LessOrEqual(t, idle, max(1, int((timeout+time.Second)/(2*time.Second))+1), "%v: the first probe is early", timeout)
			if timeout <= 200*time.Second {
				assert.Equal(t, 1, interval, "%v: the probe that ends it is a second late at most", timeout)
			}
			all := time.Duration(idle+interval*count) * time.Second
			assert.GreaterOrEqual(t, all, timeout)
			assert.LessOrEqual(t, all, max(2*time.Second, timeout+time.Duration(interval)*time.Second), timeout)
			if version >= 140000 {
				assert.EqualValues(t, timeout.Milliseconds(), set["idle_session_timeout"], timeout)
			} else {
				assert.NotContains(t, set, "idle_session_timeout")
			}
		}
	}
}
