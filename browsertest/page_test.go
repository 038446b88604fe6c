// SPDX-License-Identifier: MIT

package browsertest_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// row is an expression for the text of the row of a name.
func row(name string) string {
	return `([...document.querySelectorAll("tbody tr")].find(r => r.querySelector("bdi").textContent === "` + name + `")?.innerText ?? "")`
}

func TestPageShowsWhoLeads(t *testing.T) {
	sites := fleet(t, "web-1", "web-2")
	sites[0].run(t, "outbox")
	sites[0].leads(t, "outbox")
	sites[1].run(t, "outbox")
	sites[1].run(t, "reports")
	sites[1].leads(t, "reports")
	b := newTab(t)
	b.do(chromedp.Navigate(sites[0].url))
	b.eventually("own", row("outbox")+`.includes("leads here")`)
	b.eventually("the other's", row("reports")+`.includes("leads elsewhere")`)
	assert.Contains(t, js[string](b, row("reports")), "web-2")
	assert.Contains(t, js[string](b, row("reports")), "10.0.0.2:8080")
	assert.Equal(t, "2 names: 1 led here, 1 led elsewhere.", js[string](b, `document.getElementById("summary").textContent`))
	assert.Contains(t, js[string](b, `document.getElementById("changes").innerText`), "gained")
	assert.Empty(t, b.troubles())
}

func TestPageWorksWithoutJavaScript(t *testing.T) {
	sites := fleet(t, "web-1", "web-2")
	sites[1].run(t, "outbox")
	sites[1].leads(t, "outbox")
	b := newTab(t)
	b.do(call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	require.Eventually(t, func() bool { // loaded again, as a person would
		b.do(chromedp.Navigate(sites[0].url))
		text := js[string](b, `document.querySelector("main").innerText`)
		return strings.Contains(text, "leads elsewhere") && strings.Contains(text, "web-2")
	}, patience, 50*time.Millisecond)
	assert.Contains(t, js[string](b, `document.querySelector("noscript p").innerText`), "does not refresh itself")
	assert.Empty(t, b.troubles())
}

func TestPageRefreshesItself(t *testing.T) {
	sites := fleet(t, "web-1", "web-2")
	stop := sites[0].run(t, "outbox")
	sites[0].leads(t, "outbox")
	sites[1].run(t, "outbox")
	b := newTab(t)
	b.do(chromedp.Navigate(sites[0].url))
	b.eventually("before", row("outbox")+`.includes("leads here")`)
	b.do(chromedp.Evaluate[chromedp.Void](`window.mark = 1`))
	stop()
	b.eventually("after the handover", row("outbox")+`.includes("web-2")`)
	b.eventually("summary", `document.getElementById("summary").textContent === "1 name: 1 led elsewhere."`)
	assert.Contains(t, js[string](b, `document.getElementById("changes").innerText`), "released")
	assert.EqualValues(t, 1, js[int](b, `window.mark`), "it was loaded anew")
	assert.Empty(t, b.troubles())
}

func TestPageTellsThatItCannotBeRefreshed(t *testing.T) {
	sites := fleet(t, "web-1")
	sites[0].run(t, "outbox")
	sites[0].leads(t, "outbox")
	b := newTab(t)
	b.do(chromedp.Navigate(sites[0].url))
	assert.True(t, js[bool](b, `document.getElementById("stale").hidden`))
	sites[0].away.Store(true)
	b.eventually("told", `!document.getElementById("stale").hidden && document.getElementById("why").textContent.includes("cannot be refreshed")`)
	age := `parseInt(document.getElementById("stale-age").textContent)`
	first := js[int](b, age)
	b.eventually("the age grows", age+` > `+strconv.Itoa(first))
	assert.Contains(t, js[string](b, row("outbox")), "leads here", "what was shown is still there")
	sites[0].away.Store(false)
	b.eventually("back", `document.getElementById("stale").hidden`)
}

func TestPageHoldsStillWhileTextIsSelected(t *testing.T) {
	sites := fleet(t, "web-1")
	sites[0].run(t, "outbox")
	sites[0].leads(t, "outbox")
	b := newTab(t)
	b.do(chromedp.Navigate(sites[0].url))
	b.do(chromedp.Evaluate[chromedp.Void](`document.getSelection().selectAllChildren(document.querySelector("tbody th"))`))
	b.eventually("told", `document.getElementById("why").textContent.includes("selected")`)
	assert.Equal(t, "outbox", js[string](b, `document.getSelection().toString().trim()`))
	b.do(chromedp.Evaluate[chromedp.Void](`document.getSelection().removeAllRanges()`))
	b.eventually("goes on", `document.getElementById("stale").hidden`)
}

// hostile are names that try to be more than text.
var hostile = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(2)>`,
	`</style></script><svg onload=alert(3)>`,
	`javascript:alert(4)//{{.}}`,
	"\u202egnp.exe\u2066 evil \u0007\u200b",
	"שלום-עולם",
	strings.Repeat("long", 200),
}

func TestPageRunsNothingOfNames(t *testing.T) {
	sites := fleet(t, `<img src=x onerror=alert("node")>`)
	for _, name := range hostile {
		sites[0].run(t, name)
		sites[0].leads(t, name)
	}
	b := newTab(t)
	b.do(chromedp.Navigate(sites[0].url))
	b.eventually("all", `document.querySelectorAll("tbody tr").length === 7`)
	b.eventually("refreshed", `document.querySelector("[data-age]").textContent !== "" && performance.now() > 4500`)
	assert.Empty(t, b.troubles(), "a dialog, or a violation of the policy")
	assert.Equal(t, 0, js[int](b, `document.querySelectorAll("main script, main img, main svg, main style").length`))
	text := js[string](b, `document.querySelector("main").textContent`)
	for _, name := range hostile[:4] {
		assert.Contains(t, text, name)
	}
	assert.NotRegexp(t, "[\u202a-\u202e\u2066-\u2069\u200b\u0007]", text)
	assert.Contains(t, text, "U+202E")
	assert.Contains(t, text, "U+0007")
	assert.LessOrEqual(t, js[int](b, `document.documentElement.scrollWidth`), js[int](b, `innerWidth`), "a long name")
}

func TestPageFitsAPhone(t *testing.T) {
	sites := fleet(t, "web-1."+strings.Repeat("x", 100))
	for _, name := range append(hostile, "outbox") {
		sites[0].run(t, name)
		sites[0].leads(t, name)
	}
	b := newTab(t)
	b.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile, chromedp.EmulateScale(2)), chromedp.Navigate(sites[0].url))
	b.eventually("there", `document.querySelectorAll("tbody tr").length === 8`)
	assert.LessOrEqual(t, js[int](b, `document.documentElement.scrollWidth`), 360)
	assert.Equal(t, 360, js[int](b, `innerWidth`))
	assert.Empty(t, js[[]string](b, `[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > 360.5).map(e => e.outerHTML.slice(0, 80))`))
}

// contrast is the least contrast of any text with what is behind it, by WCAG.
const contrast = `(() => {
	const rgb = c => c.match(/[\d.]+/g).map(Number);
	const lum = c => { const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
	const back = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
	let least = 21;
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || e.closest("script, noscript, [hidden]")) continue;
		const [a, b] = [lum(rgb(getComputedStyle(e).color)), lum(back(e))].sort((x, y) => y - x);
		least = Math.min(least, (a + .05) / (b + .05));
	}
	return least;
})()`

func prefer(scheme string) chromedp.Action[chromedp.Void] {
	return call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

func TestPageIsLightAndDark(t *testing.T) {
	sites := fleet(t, "web-1")
	sites[0].run(t, "outbox")
	sites[0].leads(t, "outbox")
	b := newTab(t)
	back := make(map[string]string)
	for _, scheme := range []string{"light", "dark"} {
		b.do(prefer(scheme),
			chromedp.Navigate(sites[0].url))
		back[scheme] = js[string](b, `getComputedStyle(document.body).backgroundColor`)
		assert.GreaterOrEqual(t, js[float64](b, contrast), 4.5, scheme)
	}
	assert.NotEqual(t, back["light"], back["dark"])
}

// The pictures of the docs, from a fleet that shows every state.
func TestPageScreenshots(t *testing.T) {
	sites := fleet(t, "web-1", "web-2", "web-3")
	sites[0].run(t, "mail.outbox")
	sites[0].leads(t, "mail.outbox")
	sites[0].run(t, "invoices.nightly")
	sites[0].leads(t, "invoices.nightly")
	sites[1].run(t, "search.reindex")
	sites[1].leads(t, "search.reindex")
	sites[2].run(t, "cache.warm")
	sites[2].leads(t, "cache.warm")
	stop := sites[2].run(t, "reports.monthly")
	sites[2].leads(t, "reports.monthly")
	sites[0].run(t, "search.reindex")
	stop()
	sites[0].lead.Note("metrics.flush")
	b := newTab(t)
	for _, shot := range []struct {
		file, scheme  string
		width, height int64
	}{{"status-light.png", "light", 1160, 1180}, {"status-dark.png", "dark", 1160, 1180}, {"status-phone.png", "light", 360, 1180}} {
		b.do(prefer(shot.scheme),
			chromedp.EmulateViewport(shot.width, shot.height, chromedp.EmulateScale(1.5)), chromedp.Navigate(sites[0].url))
		b.eventually("known", row("reports.monthly")+`.includes("nobody leads") && `+row("cache.warm")+`.includes("web-3")`)
		// Not the folder of this test.
		b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector(".place bdi").textContent = "/srv/app/app.db"`))
		picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		require.NoError(t, err)
		if os.Getenv("LEADER_TEST_SCREENSHOTS") != "" {
			require.NoError(t, os.WriteFile(filepath.Join("..", "docs", shot.file), picture, 0o644))
		}
	}
	assert.Empty(t, b.troubles())
}
