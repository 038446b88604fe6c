// SPDX-License-Identifier: MIT

package leaderhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/oxygenhub/leader/leaderhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shown is the page from its first heading on: without style and script.
func shown(t *testing.T, h http.Handler) string {
	t.Helper()
	a := ask(t, h, http.MethodGet, "/any/path")
	require.Equal(t, http.StatusOK, a.code)
	_, body, found := strings.Cut(a.text, "<body>")
	require.True(t, found)
	body, _, found = strings.Cut(body, "<script>")
	require.True(t, found)
	return body
}

func TestPageShowsEveryName(t *testing.T) {
	fleet := healthFleet(t, "web-1", "web-2")
	page := leaderhttp.Page(fleet[0])
	assert.Contains(t, shown(t, page), "Nothing has changed here since")
	stop := contend(t, fleet[0], "over")
	awaitLeading(t, fleet[0], "over")
	stop()
	contend(t, fleet[0], "here")
	awaitLeading(t, fleet[0], "here")
	contend(t, fleet[1], "there")
	awaitLeading(t, fleet[1], "there")
	fleet[0].Note("lockless")
	require.Eventually(t, func() bool {
		return strings.Contains(shown(t, page), "3 names: 1 led here, 1 led elsewhere, 1 led by nobody.")
	}, patience, 10*time.Millisecond)
	html := shown(t, page)
	for _, text := range []string{
		"leads here", "leads elsewhere", "nobody leads", "needs no leader", "web-1.internal:8080", "web-2.internal:8080", "gained", "released",
		`<bdi>over</bdi><span class="note"><bdi>Term `, "ended: resigned</bdi>",
	} {
		assert.Contains(t, html, text)
	}
}

func TestPageEscapes(t *testing.T) {
	l := healthFleet(t, `"><i>node</i>`)[0]
	page := leaderhttp.Page(l)
	for _, name := range []string{
		"<script>alert(1)</script>", "שלום", "x\u202egnp.exe", "line\nfeed", "a\u200bc", "\ufffdé", "\U000E0041tag", " blank ",
	} {
		contend(t, l, name)
		awaitLeading(t, l, name)
	}
	html := shown(t, page)
	for _, text := range []string{
		"&lt;script&gt;alert(1)&lt;/script&gt;", "<bdi>שלום</bdi>", `<bdi>x<span class="code">U&#43;202E</span>gnp.exe</bdi>`,
		`line<span class="code">U&#43;000A</span>feed`, `a<span class="code">U&#43;200B</span>c`, "<bdi>\ufffdé</bdi>",
		`<span class="code">U&#43;E0041</span>tag`, "<bdi> blank </bdi>", "&#34;&gt;&lt;i&gt;node&lt;/i&gt;",
	} {
		assert.Contains(t, html, text)
	}
	assert.NotContains(t, html, "<script")
	assert.NotContains(t, html, "<i>")
	assert.NotContains(t, html, "\u202e")
}

func TestPagePolicyAndMethods(t *testing.T) {
	page := leaderhttp.Page(healthFleet(t, "a")[0])
	a := ask(t, page, http.MethodGet, "/")
	policy := a.header.Get("Content-Security-Policy")
	assert.Contains(t, policy, "default-src 'none'; script-src 'sha256-")
	assert.NotContains(t, policy, "unsafe")
	assert.Equal(t, "no-store", a.header.Get("Cache-Control"))
	assert.Equal(t, "text/html; charset=utf-8", a.header.Get("Content-Type"))
	assert.NotRegexp(t, `(?i)(src|href)="?https?:|@import|url\(`, a.text, "it needs something else")
	assert.NotRegexp(t, `(?i)<[^>]* (style|on[a-z]+)=`, a.text, "the policy would not have it")
	head := ask(t, page, http.MethodHead, "/")
	assert.Equal(t, http.StatusOK, head.code)
	assert.Empty(t, head.text)
	post := ask(t, page, http.MethodPost, "/")
	assert.Equal(t, http.StatusMethodNotAllowed, post.code)
	assert.Equal(t, "GET, HEAD", post.header.Get("Allow"))
}

// The changes are bounded, the newest first, and there still after Resign.
func TestPageKeepsTheLastChanges(t *testing.T) {
	l := healthFleet(t, "a")[0]
	page := leaderhttp.Page(l)
	for i := range 30 {
		ran, err := l.Try(t.Context(), fmt.Sprintf("job-%02d", i), func(context.Context) error { return nil })
		require.NoError(t, err)
		require.True(t, ran)
	}
	changes := func() string {
		_, html, found := strings.Cut(shown(t, page), `id="changes"`)
		require.True(t, found)
		return html
	}
	html := changes()
	assert.Equal(t, 50, strings.Count(html, "<li>"))
	assert.Less(t, strings.Index(html, "job-29"), strings.Index(html, "job-28"))
	assert.NotContains(t, html, "job-00")
	require.NoError(t, l.Resign(t.Context()))
	assert.Contains(t, changes(), "job-29")
	assert.Contains(t, shown(t, page), `<span class="pill calm">resigned</span>`)
	assert.Equal(t, 50, strings.Count(changes(), "<li>"))
}

func TestPageOfVeryManyNames(t *testing.T) {
	l := healthFleet(t, "a")[0]
	for i := range 1001 {
		l.Note(fmt.Sprintf("note-%04d", i))
	}
	html := shown(t, leaderhttp.Page(l))
	assert.Contains(t, html, "note-0999")
	assert.NotContains(t, html, "note-1000")
	assert.Contains(t, html, "1 more names are not shown.")
}

func TestPageOfNothing(t *testing.T) {
	l := healthFleet(t, "a")[0]
	html := shown(t, leaderhttp.Page(l))
	assert.Contains(t, html, "No names are known yet.")
	assert.Contains(t, html, `<span class="pill calm">idle</span>`)
}
