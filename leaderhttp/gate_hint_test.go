// SPDX-License-Identifier: MIT

package leaderhttp

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTarget(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.1:80":                "http://10.0.0.1:80",
		"[::1]:80":                   "http://[::1]:80",
		"node-1.svc_a.local":         "http://node-1.svc_a.local",
		"https://node:443":           "https://node:443",
		"https://node:443/base":      "https://node:443/base",
		"node:80/base/":              "http://node:80/base/",
		"HTTP://node":                "http://node",
		"":                           "",
		"/":                          "",
		"//evil.com":                 "",
		":80":                        "",
		"http://":                    "",
		"http://:80":                 "",
		"node:port":                  "",
		"ftp://node":                 "",
		"javascript:alert(1)":        "",
		"javascript://node/%0aalert": "",
		"user@node:80":               "",
		"http://user:secret@node":    "",
		"node:80?x":                  "",
		"node:80?":                   "",
		"node:80#x":                  "",
		"node:80\r\nX: y":            "",
		"node :80":                   "",
		"nöde:80":                    "",
		"node<script>:80":            "",
		`node\@evil.com`:             "",
		"node,other:80":              "",
		"unix:///run/socket":         "",
		"/run/socket":                "",
		"http:node:80":               "",
	} {
		u, ok := target(addr, "http")
		assert.Equal(t, want != "", ok, addr)
		if ok {
			assert.Equal(t, want, u.String())
		}
	}
}

func TestAtStaysAtItsServer(t *testing.T) {
	for _, server := range []string{"http://node:80", "http://node:80/", "http://node:80/base"} {
		base, err := url.Parse(server)
		require.NoError(t, err)
		for _, sent := range []string{"/", "/x?y=1", "//evil.com", "http://evil.com/x", "/@evil.com", "/%2F%2Fevil.com", "*", "/a/../b"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
			r.RequestURI = sent
			u := at(base, r)
			again, err := url.Parse(u.String())
			require.NoError(t, err)
			assert.Equal(t, "node:80", again.Host, sent)
			assert.Nil(t, again.User, sent)
			assert.Equal(t, u.EscapedPath(), again.EscapedPath(), sent)
		}
	}
}
