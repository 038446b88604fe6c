// SPDX-License-Identifier: MIT

// Package browsertest looks at the page of leaderhttp with a real browser, Chromium. It is a module of its own, so that
// nobody who uses the library inherits the driver of the browser.
//
// With LEADER_TEST_SCREENSHOTS set it writes the pictures of docs/ anew.
package browsertest_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/leaderhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"
)

// patience is for what should take a moment, on a busy machine.
const patience = 30 * time.Second

// binary finds the browser.
func binary(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("there is no Chromium, and CI is set")
	}
	t.Skip("there is no Chromium")
	return ""
}

// tab is one tab of a browser, with what went wrong in it.
type tab struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // the tab itself, for chromedp

	mu    sync.Mutex
	wrong []string
}

func newTab(t *testing.T) *tab {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(binary(t)))
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // Chromium has none for root
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, opts...)
	t.Cleanup(cancel)
	b := &tab{t: t}
	b.ctx, cancel = chromedp.NewContext(ctx, chromedp.WithListener(b.listen))
	t.Cleanup(cancel)
	b.do(call(cdplog.Enable, cdp.Empty{}))
	return b
}

// call is a command of the protocol as a step.
func call[P any](cmd cdp.Command[P, cdp.Empty], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, cmd, params)
		return err
	})
}

// listen notes dialogs, errors of scripts, and what the browser has to say, as of its policy.
func (b *tab) listen(event any) {
	var text string
	switch e := event.(type) {
	case *page.EventJavascriptDialogOpening:
		text = "dialog: " + e.Message
		go func() { // ends with the tab
			_ = chromedp.Do(b.ctx, call(page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true}))
		}()
	case *runtime.EventExceptionThrown:
		text = "exception: " + e.ExceptionDetails.Text
	case *runtime.EventConsoleAPICalled:
		text = fmt.Sprintf("console.%s", e.Type)
	case *cdplog.EventEntryAdded:
		text = fmt.Sprintf("%s: %s: %s", e.Entry.Level, e.Entry.Source, e.Entry.Text)
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = append(b.wrong, text)
}

// troubles are those since it was last called.
func (b *tab) troubles() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	wrong := b.wrong
	b.wrong = nil
	return wrong
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, steps...))
}

// js evaluates an expression, also where the page itself may run none.
func js[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err)
	return value
}

func (b *tab) eventually(what, condition string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return js[bool](b, condition) }, patience, 50*time.Millisecond, what)
}

// site is a page with a process behind it, and switches.
type site struct {
	lead *leader.Leader
	url  string
	away atomic.Bool // a server that is gone
}

// fleet is some processes on one database file, each with its page.
func fleet(t *testing.T, nodes ...string) (sites []*site) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "app.db")
	for i, node := range nodes {
		db, err := sql.Open("sqlite", file)
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		lead, err := leader.New(leader.SQLite(db), leader.Options{
			Terms: true, Node: node, Addr: fmt.Sprintf("10.0.0.%d:8080", i+1), Retry: 50 * time.Millisecond,
		})
		require.NoError(t, err)
		s := &site{lead: lead}
		page := leaderhttp.Page(lead)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s.away.Load() {
				panic(http.ErrAbortHandler)
			}
			page.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		t.Cleanup(func() { require.NoError(t, lead.Resign(context.WithoutCancel(t.Context()))) })
		s.url = server.URL
		sites = append(sites, s)
	}
	return sites
}

// run runs a task until the test ends, or stop is called, which waits for it.
func (s *site) run(t *testing.T, name string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := s.lead.Run(ctx, name, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
		assert.ErrorIs(t, err, context.Canceled)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func (s *site) leads(t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool { return s.lead.IsLeading(name) }, patience, 5*time.Millisecond)
}
