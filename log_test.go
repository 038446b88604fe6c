// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scene is what happens to a Leader, and the lines of its log from the first on, without their next, which is looked up.
type scene struct {
	opts   Options
	play   func(p *play)
	lines  []string
	random bool // waited and led are
	loose  bool // in any order: two things happen at the same time
}

// play is a scene under way.
type play struct {
	t   *testing.T
	st  *fakeStore
	l   *Leader
	b   *fakeBackend
	out *buffer
}

// run has l run task under the name x, for a minute or longer.
func (p *play) run(task func(context.Context) error) *call {
	c := goRun(p.t.Context(), p.l, "x", task)
	time.Sleep(time.Minute)
	return c
}

// opened is the first line of most scenes.
const opened = `INFO "database session opened" generation=0 names=[x] place=memory namespace=test`

var (
	lineParts = regexp.MustCompile(`^level=(\w+) msg=("[^"]*") node=n (.*?) ?next="([^"]+)"(.*)$`)
	times     = regexp.MustCompile(`(waited|led)=\S+`)
)

// read returns what the log says, and the rows of the table that say so.
func (p *play) read(t *testing.T) (lines []string, rows []int) {
	t.Helper()
	for _, line := range p.out.lines() {
		parts := lineParts.FindStringSubmatch(line)
		require.NotNil(t, parts, line)
		level, text, attrs, next, wait := parts[1], parts[2], parts[3], parts[4], parts[5]
		row := slices.IndexFunc(messages, func(m message) bool {
			return fmt.Sprintf("%q", m.text) == text && m.next == next && m.level.String() == level
		})
		require.GreaterOrEqual(t, row, 0, line)
		lines = append(lines, strings.TrimSpace(level+" "+text+" "+attrs+wait))
		rows = append(rows, row)
	}
	return lines, rows
}

// TestLogLines: each transition is one line, which says what has happened to which names, why, and what happens next; and each line of
// the table is written in some scene.
func TestLogLines(t *testing.T) {
	written := make([]bool, len(messages))
	for name, s := range scenes() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &play{t: t, st: newFakeStore(), out: &buffer{}}
				s.opts.Node = "n"
				s.opts.Logger = slog.New(slog.NewTextHandler(p.out, &slog.HandlerOptions{ReplaceAttr: timeless}))
				p.l, p.b = p.st.leader(t, s.opts)
				s.play(p)
				synctest.Wait()
				lines, rows := p.read(t)
				if s.random {
					for i := range lines {
						lines[i] = times.ReplaceAllString(lines[i], "$1=~")
					}
				}
				if s.loose {
					slices.Sort(s.lines)
					slices.Sort(lines)
				}
				assert.Equal(t, s.lines, lines)
				for _, row := range rows {
					written[row] = true
				}
			})
		})
	}
	for i, m := range messages {
		assert.True(t, written[i], "in no scene: %s %s; next: %s", m.kind, m.text, m.next)
	}
}

func timeless(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// until is a context for Run, and what ends it.
func until(t *testing.T) (context.Context, context.CancelCauseFunc) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return ctx, cancel
}

// TestLogHasALineForEveryKind that watch.go declares, whatever the event has in it.
func TestLogHasALineForEveryKind(t *testing.T) {
	source, err := os.ReadFile("watch.go")
	require.NoError(t, err)
	kinds := regexp.MustCompile(`(?m)^\t\w+ EventKind = "([a-z ]+)"$`).FindAllStringSubmatch(string(source), -1)
	require.Len(t, kinds, 18)
	for _, kind := range kinds {
		m := Event{Kind: EventKind(kind[1]), more: &more{}}.line()
		assert.Equal(t, kind[1], string(m.kind))
	}
	seen := make(map[string]bool)
	for _, m := range messages {
		assert.NotEmpty(t, m.text)
		assert.NotEmpty(t, m.next)
		line := m.level.String() + m.text + m.next
		assert.False(t, seen[line], "two rows that nobody can tell apart: %s", m.text)
		seen[line] = true
	}
}

// TestLogOfAReleaseWithASessionThatWasLost says so, also when the next session is there already:
//
//	caller   its task has returned
//	loop     the session is over, and the next one is opened
//	caller   it asks to give the lock back
func TestLogOfAReleaseWithASessionThatWasLost(t *testing.T) {
	synctest.Test(t, testLogOfAReleaseWithASessionThatWasLost)
}

func testLogOfAReleaseWithASessionThatWasLost(t *testing.T) {
	st := newFakeStore()
	l, b := st.leader(t, Options{})
	lead(t, l, 1, 0)
	events := l.Watch(t.Context())
	c, err := l.enter(t.Context(), "x", false, obey)
	require.NoError(t, err)
	g, err := l.await(t.Context(), c)
	require.NoError(t, err)
	l.finish(c, g, nil, nil, EndReturned, nil)
	b.session().terminate()
	time.Sleep(10 * time.Second)
	require.NoError(t, l.Status().Err)
	require.NoError(t, l.release(c))
	g.release()
	l.leave(c)
	for e := range events {
		if e.Name == "x" && e.Kind == Released {
			assert.ErrorIs(t, e.Err, errFakeEnded)
			assert.Zero(t, e.Generation)
			return
		}
	}
}

// TestLogDocs: docs/logs.md has the lines of the table, in its order, and its excerpts no others.
func TestLogDocs(t *testing.T) {
	page, err := os.ReadFile("docs/logs.md")
	require.NoError(t, err)
	text := strings.ReplaceAll(string(page), "\r\n", "\n")
	type row struct{ text, level, next string }
	var told, want []row
	for _, r := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (\\w+) \\| .* \\| `([^`]+)` \\| .* \\|$").FindAllStringSubmatch(text, -1) {
		told = append(told, row{r[1], r[2], r[3]})
	}
	for _, m := range messages {
		want = append(want, row{m.text, strings.ToLower(m.level.String()), m.next})
	}
	assert.Equal(t, append(want, row{droppedText, "warn", droppedNext}), told)
	excerpts := regexp.MustCompile(`(?m)^ ?[0-9.]+s level=(\w+) msg="([^"]+)" .*next="([^"]+)"`).FindAllStringSubmatch(text, -1)
	assert.Greater(t, len(excerpts), 20)
	for _, e := range excerpts {
		assert.Contains(t, want, row{e[2], strings.ToLower(e[1]), e[3]})
	}
	assert.Equal(t, strings.Count(text, "s level="), len(excerpts))
}
