// SPDX-License-Identifier: MIT

package leader_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/internal/pgtest"
)

// docFiles are the pages for users.
func docFiles(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	pages := make(map[string]string)
	for _, path := range append(paths, "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		pages[filepath.ToSlash(path)] = strings.ReplaceAll(string(text), "\r\n", "\n")
	}
	return pages
}

var (
	fence    = regexp.MustCompile("(?ms)^```.*?^```$")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInID  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	testName = regexp.MustCompile("`((?:Test|Benchmark|Fuzz|Example)[A-Z][A-Za-z0-9]*)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz|Example)[A-Za-z0-9]*)\(`)
	sqlBlock = regexp.MustCompile("(?ms)^```sql\n(.*?);\n```$")
	goBlock  = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	keyRow   = regexp.MustCompile("(?m)^\\| `(.*)` \\| `(.*)` \\| `([0-9a-f]{16})` \\| (-?\\d+) \\| (\\d+) \\| (\\d+) \\|$")
)

// anchors returns the ids that a page's headings get.
func anchors(text string) map[string]bool {
	ids := make(map[string]bool)
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		id := notInID.ReplaceAllString(strings.ToLower(h[1]), "")
		ids[strings.ReplaceAll(id, " ", "-")] = true
	}
	return ids
}

func TestDocsLinksResolve(t *testing.T) {
	pages := docFiles(t)
	for page, text := range pages {
		for _, l := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			target, anchor, _ := strings.Cut(l[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			path := page
			if target != "" {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(page), target))
			}
			_, err := os.Stat(path)
			assert.NoError(t, err, "%s: %s", page, l[1])
			if linked, known := pages[path]; known && anchor != "" {
				assert.True(t, anchors(linked)[anchor], "%s: %s", page, l[1])
			}
		}
	}
}

// TestDocsNameTestsThatExist: a guarantee whose test was renamed looks proved and is not.
func TestDocsNameTestsThatExist(t *testing.T) {
	exist := make(map[string]bool)
	for _, dir := range []string{".", "internal/*", "integration", "bench", "leaderhttp", "leadergocron", "leadergrpc", "leaderotel", "leadertest", "browsertest", "examples/*", "cmd/*"} {
		paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		require.NoError(t, err)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, f := range testFunc.FindAllStringSubmatch(string(text), -1) {
				exist[f[1]] = true
			}
		}
	}
	for page, text := range docFiles(t) {
		if page == "CONTRIBUTING.md" { // has an example of a name
			continue
		}
		for _, name := range testName.FindAllStringSubmatch(text, -1) {
			assert.True(t, exist[name[1]], "%s: %s", page, name[1])
		}
	}
}

// TestDocsSnippetsAreCode: what the pages show in Go is compiled somewhere, line by line; "..." stands for lines that a page leaves
// out.
func TestDocsSnippetsAreCode(t *testing.T) {
	var code strings.Builder
	for _, pattern := range []string{
		"*_test.go", "leaderhttp/*_test.go", "leadergocron/*_test.go", "leadergrpc/*_test.go", "leaderotel/*_test.go",
		"leadertest/*_test.go", "examples/metrics/*.go",
	} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			code.WriteString(flat(string(text)))
		}
	}
	found := 0
	for path, text := range docFiles(t) {
		for _, block := range goBlock.FindAllStringSubmatch(text, -1) {
			for part := range strings.SplitSeq(flat(block[1]), "\n...\n") {
				found++
				assert.True(t, strings.Contains(code.String(), flat(part)), "%s: is compiled nowhere:\n%s", path, part)
			}
		}
	}
	assert.Greater(t, found, 5)
}

// flat is text without indentation.
func flat(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}

func TestDocsKeyVectors(t *testing.T) {
	pages := docFiles(t)
	rows := keyRow.FindAllStringSubmatch(pages["docs/postgres.md"], -1)
	require.NotEmpty(t, rows)
	protocol := keyRow.FindAllStringSubmatch(pages["docs/protocol.md"], -1)
	require.NotEmpty(t, protocol)
	for _, row := range append(rows, protocol...) {
		key := leader.Key(row[1], row[2])
		assert.Equal(t, row[3], fmt.Sprintf("%016x", uint64(key)), row[0])
		assert.Equal(t, row[4], strconv.FormatInt(key, 10), row[0])
		assert.Equal(t, row[5], strconv.FormatUint(uint64(key)>>32, 10), row[0])
		assert.Equal(t, row[6], strconv.FormatUint(uint64(uint32(key)), 10), row[0])
	}
}

// TestPostgresDocsSQL runs the statements for people of docs/postgres.md and docs/operations.md.
func TestPostgresDocsSQL(t *testing.T) {
	url := pgtest.URL(t)
	pages := docFiles(t)
	blocks := sqlBlock.FindAllStringSubmatch(pages["docs/postgres.md"]+"\n"+pages["docs/operations.md"], -1)
	require.Len(t, blocks, 3)
	sessions, holder, terminate := blocks[0][1], blocks[1][1], blocks[2][1]
	l, err := leader.New(leader.Postgres(url), leader.Options{Node: "web-1"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Resign(context.Background())) })
	started, lost := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := l.Try(context.Background(), "invoices.nightly", func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			return nil
		})
		lost <- err
	}()
	select {
	case <-started:
	case err := <-lost:
		require.NoError(t, err)
	}
	conn := pgtest.Connect(t, url)
	var node, application string
	var key int64
	var pid uint32
	var any1, any2 any
	require.NoError(t, conn.QueryRow(t.Context(), sessions).Scan(&pid, &node, &any1, &any2, &key))
	assert.Equal(t, l.Status().SessionPID, pid)
	assert.Equal(t, "web-1", node)
	assert.Equal(t, leader.Key("public", "invoices.nightly"), key)
	require.NoError(t, conn.QueryRow(t.Context(), holder).Scan(&pid, &application))
	assert.Equal(t, l.Status().SessionPID, pid)
	assert.Equal(t, "leader/web-1", application)
	_, err = conn.Exec(t.Context(), terminate)
	require.NoError(t, err)
	require.ErrorIs(t, <-lost, leader.ErrLost)
}
