// SPDX-License-Identifier: MIT

package leader

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// optionsBackend is one whose check fails with err.
type optionsBackend struct {
	fakeBackend
	err error
}

func (b *optionsBackend) check(Options) error { return b.err }

func TestNewValidates(t *testing.T) {
	const second = time.Second
	for name, row := range map[string]struct {
		opts Options
		want string // part of the error; "" for none
	}{
		"zero":                    {Options{}, ""},
		"all set":                 {Options{Node: "n", Namespace: "s", Retry: 1 * second, Check: 2 * second, Lease: 6 * second, SessionTimeout: 10 * second, StopTimeout: second}, ""},
		"least":                   {Options{Retry: 10e6, Check: 10e6, Lease: 11e6, SessionTimeout: 100e6, StopTimeout: 10e6}, ""},
		"most":                    {Options{Retry: 24 * time.Hour, Check: 2 * second, Lease: 24*time.Hour - 1, SessionTimeout: 24 * time.Hour, StopTimeout: 24 * time.Hour}, ""},
		"negative Retry":          {Options{Retry: -1}, "Options.Retry is -1ns"},
		"negative Check":          {Options{Check: -second}, "Options.Check is -1s"},
		"negative Lease":          {Options{Lease: -second}, "Options.Lease is -1s"},
		"negative SessionTimeout": {Options{SessionTimeout: -second}, "Options.SessionTimeout is -1s"},
		"negative StopTimeout":    {Options{StopTimeout: -second}, "Options.StopTimeout is -1s"},
		"tiny Retry":              {Options{Retry: 1}, "Options.Retry is 1ns: it must be between 10ms and 24h0m0s, or 0 for the default"},
		"tiny Check":              {Options{Check: 9e6}, "Options.Check is 9ms"},
		"tiny Lease":              {Options{Lease: 1e6, Check: 1e5}, "Options.Check is 100µs"},
		"tiny SessionTimeout":     {Options{Check: 10e6, Lease: 20e6, SessionTimeout: 99e6}, "Options.SessionTimeout is 99ms"},
		"tiny StopTimeout":        {Options{StopTimeout: 1}, "Options.StopTimeout is 1ns"},
		"huge Retry":              {Options{Retry: 1<<63 - 1}, "Options.Retry is "},
		"huge Check":              {Options{Check: 25 * time.Hour}, "Options.Check is 25h"},
		"huge Lease":              {Options{Lease: 1<<63 - 1, SessionTimeout: 1<<63 - 1}, "Options.Lease is "},
		"huge SessionTimeout":     {Options{SessionTimeout: 24*time.Hour + 1}, "Options.SessionTimeout is "},
		"huge StopTimeout":        {Options{StopTimeout: 1<<63 - 1}, "Options.StopTimeout is "},
		"Check = Lease":           {Options{Check: 6 * second}, "Options.Check (6s) must be less than Options.Lease (6s)"},
		"Check > Lease":           {Options{Lease: second}, "Options.Check (2s) must be less than Options.Lease (1s)"},
		"Lease = SessionTimeout":  {Options{Lease: 10 * second}, "Options.Lease (10s) must be less than Options.SessionTimeout (10s)"},
		"Lease > SessionTimeout":  {Options{SessionTimeout: 5 * second}, "Options.Lease (6s) must be less than Options.SessionTimeout (5s)"},
		"long Node":               {Options{Node: strings.Repeat("n", 513)}, "Options.Node has 513 bytes"},
		"NUL in Node":             {Options{Node: "a\x00"}, "Options.Node contains a NUL"},
		"invalid Node":            {Options{Node: "\xff"}, "Options.Node is not valid UTF-8"},
		"long Namespace":          {Options{Namespace: strings.Repeat("n", 1025)}, "Options.Namespace has 1025 bytes"},
		"NUL in Namespace":        {Options{Namespace: "\x00"}, "Options.Namespace contains a NUL"},
		"invalid Namespace":       {Options{Namespace: "\xc3"}, "Options.Namespace is not valid UTF-8"},
	} {
		l, err := New(&optionsBackend{}, row.opts)
		if row.want == "" {
			require.NoError(t, err, name)
			assert.NotEmpty(t, l.Status().Node, name)
			assert.Nil(t, l.running, name)
			continue
		}
		require.ErrorContains(t, err, row.want, name)
		assert.True(t, strings.HasPrefix(err.Error(), "leader: "), name)
		assert.Equal(t, 1, strings.Count(err.Error(), "leader: "), name)
		assert.Nil(t, l, name)
	}
}

// An address to listen on is none that others can reach: gates would send clients nowhere.
func TestNewRefusesAnAddressOfNowhere(t *testing.T) {
	for addr, fine := range map[string]bool{
		":8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "http://:8080": false, "http://0.0.0.0:8080/app": false, "https://[::]": false,
		"10.0.0.1:8080": true, "a:8080": true, "http://a": true, "https://a.example:8080/app": true, "pod-7": true, "unix:///run/a": true,
	} {
		_, err := New(&fakeBackend{}, Options{Terms: true, Addr: addr})
		if fine {
			assert.NoError(t, err, addr)
		} else {
			assert.ErrorContains(t, err, "Options.Addr", addr)
		}
	}
}

func TestNewChecksTheBackend(t *testing.T) {
	_, err := New(nil, Options{})
	require.EqualError(t, err, "leader: the backend is nil")
	_, err = New(&optionsBackend{err: errors.New("a bad connection string")}, Options{})
	require.EqualError(t, err, "leader: a bad connection string")
}

func TestNewDefaults(t *testing.T) {
	l, err := New(&optionsBackend{}, Options{})
	require.NoError(t, err)
	want := Options{
		Node: l.opts.Node, Retry: time.Second, Check: 2 * time.Second, Lease: 6 * time.Second,
		SessionTimeout: 10 * time.Second, StopTimeout: 10 * time.Second,
	}
	assert.Equal(t, want, l.opts)
	other, err := New(&optionsBackend{}, Options{})
	require.NoError(t, err)
	assert.NotEqual(t, l.opts.Node, other.opts.Node)
	assert.Regexp(t, `-\d+-[0-9a-f]{4}$`, l.opts.Node)
}
