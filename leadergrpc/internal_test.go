// SPDX-License-Identifier: MIT

package leadergrpc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestHostPortTakesNothingElse(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.7:8080": "dns:///10.0.0.7:8080", "db-1.internal:1": "dns:///db-1.internal:1", "[::1]:80": "dns:///[::1]:80",
		"unix:1": "dns:///unix:1", "my_host:80": "dns:///my_host:80",
		"": "", ":80": "", "host": "", "host:": "", "host:http": "", "host:123456": "", "http://host:80": "", "unix:///run/x": "", "unix:/x:1": "",
		"xds:///a:1": "", "a/b:1": "", "a@b:1": "", "a b:1": "", "a\n:1": "", "[fe80::1%eth0]:1": "", "a?x=y:1": "", "é:1": "",
	} {
		assert.Equal(t, want, hostPort(addr), "%q", addr)
	}
}

// Whoever can write into leader_terms chooses node and address.
func TestHostileHints(t *testing.T) {
	g := &gate{name: "a\nb\xff"}
	for _, evil := range []string{"a\r\nleader-term: 9", "é\xff\x00", " 100% ", strings.Repeat("\xff", 1024)} {
		h := hint{node: evil, addr: evil, term: 7}
		for key, values := range h.trailer() {
			for _, value := range values {
				assert.Regexp(t, `^[!-~]*$`, value, key)
			}
		}
		st := status.Convert(g.refusal(h, false))
		assert.Equal(t, codes.Unavailable, st.Code())
		assert.Len(t, st.Details(), 2, "%q", evil)
		if named(st.Err(), h.trailer()) != "" {
			assert.Equal(t, evil, named(st.Err(), h.trailer()))
		}
		assert.Empty(t, hostPort(evil))
	}
	assert.Equal(t, metadata.MD{"leader-addr": {"h%C3%A9:1"}, "leader-node": {"a%25b"}, "leader-term": {"7"}}, hint{node: "a%b", addr: "hé:1", term: 7}.trailer())
}
