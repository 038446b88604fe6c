// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// asProgram has the test binary be the program.
const asProgram = "LEADER_METRICS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// soon is what "at once" may take on a busy machine.
const soon = 30 * time.Second

// process is a copy of the program.
type process struct {
	*exec.Cmd
	url string
}

// startProcess starts one on the database in dir. It is killed at the end of the test.
func startProcess(t *testing.T, dir string) process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-addr", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+dir, "TMP="+dir)
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewReader(output)
	first, err := lines.ReadString('\n')
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, lines) }() // ends with the process
	_, url, found := strings.Cut(strings.TrimSpace(first), "metrics at ")
	require.True(t, found, first)
	return process{cmd, url}
}

// scrape is what Prometheus would read.
type scrape struct {
	text   string
	types  map[string]string          // of the metrics
	values map[string]string          // of the series, without the labels of the scope
	labels map[string]map[string]bool // the values of each
}

var (
	typeLine = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
	sample   = regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)\})? (\S+)$`)
	pair     = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

func (p process) scrape(t *testing.T) scrape {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	require.NoError(t, err)
	// As Prometheus 3 asks: the names must not depend on it.
	request.Header.Set("Accept", "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	s := scrape{string(text), make(map[string]string), make(map[string]string), make(map[string]map[string]bool)}
	for _, m := range typeLine.FindAllStringSubmatch(s.text, -1) {
		s.types[m[1]] = m[2]
	}
	for _, m := range sample.FindAllStringSubmatch(s.text, -1) {
		var kept []string
		for _, l := range pair.FindAllStringSubmatch(m[2], -1) {
			if s.labels[l[1]] == nil {
				s.labels[l[1]] = make(map[string]bool)
			}
			s.labels[l[1]][l[2]] = true
			if strings.HasPrefix(l[1], "leader_") && l[0] != `leader_namespace="main"` {
				kept = append(kept, l[0])
			}
		}
		slices.Sort(kept)
		s.values[m[1]+"{"+strings.Join(kept, ",")+"}"] = m[3]
	}
	return s
}

const (
	leadsOutbox = `leader_leading{leader_name="outbox"}`
	reportsEnd  = `leader_transitions_total{leader_event="released",leader_name="report",leader_reason="returned"}`
	overruns    = `leader_transitions_total{leader_event="overrun",leader_name="outbox"}`
)

// leading waits until p leads the outbox, and all that it has to tell is there.
func (p process) leading(t *testing.T) (s scrape) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		s = p.scrape(t)
		assert.Equal(c, "1", s.values[leadsOutbox])
		assert.Contains(c, s.types, "leader_proof_last_duration_seconds")
		assert.Contains(c, s.types, "leader_leadership_duration_seconds")
	}, soon, 20*time.Millisecond)
	return s
}

func TestTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	first := startProcess(t, dir)
	s := first.leading(t)
	assert.Equal(t, "0", s.values[overruns], "before the first one")
	assert.NotEqual(t, "0", s.values[reportsEnd])
	second := startProcess(t, dir)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		s := second.scrape(t)
		assert.Equal(c, "0", s.values[leadsOutbox])
		assert.Equal(c, "1", s.values[`leader_calls{leader_name="outbox"}`])
		assert.Equal(c, "1", s.values[`leader_tasks{leader_state="contending"}`])
		assert.Equal(c, "1", s.values["leader_session_connected{}"])
	}, soon, 20*time.Millisecond)
	assert.Equal(t, "1", first.scrape(t).values[leadsOutbox])

	require.NoError(t, first.Process.Signal(syscall.SIGTERM))
	require.NoError(t, first.Wait(), "it ends well")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, "1", second.scrape(t).values[leadsOutbox])
	}, soon, 20*time.Millisecond)
}

// named are the metrics and labels of a text.
var (
	named   = regexp.MustCompile(`\bleader_\w+`)
	matched = regexp.MustCompile(`(leader_(?:event|reason|state))(?:=|!=|=~|!~)\\?"([^"\\]*)\\?"`)
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// TestNamesExist: the metrics, the labels and the values of labels that the dashboard and the alerts use are served.
func TestNamesExist(t *testing.T) {
	s := startProcess(t, t.TempDir()).leading(t)
	for _, path := range []string{
		"../../leaderotel/grafana/dashboard.json", "../../leaderotel/prometheus/alerts.yaml",
		"../../leaderotel/prometheus/alerts_test.yaml",
	} {
		text := read(t, path)
		used := named.FindAllString(text, -1)
		require.NotEmpty(t, used)
		for _, name := range used {
			histogram := s.types[strings.TrimSuffix(name, "_bucket")] == "histogram" && strings.HasSuffix(name, "_bucket")
			assert.True(t, s.types[name] != "" || s.labels[name] != nil || histogram, "%s: %s", path, name)
		}
		values := matched.FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, values)
		for _, m := range values {
			for value := range strings.SplitSeq(m[2], "|") {
				assert.True(t, s.labels[m[1]][value], "%s: %s: %s", path, m[1], value)
			}
		}
	}
}

// TestDocsHaveThePrometheusNames, and no others, and a kind for each.
func TestDocsHaveThePrometheusNames(t *testing.T) {
	s := startProcess(t, t.TempDir()).leading(t)
	kinds := map[string]string{"up-down": "gauge", "gauge": "gauge", "counter": "counter", "histogram": "histogram"}
	rows := regexp.MustCompile("(?m)^\\| `leader\\.[a-z._]+` \\| `(leader_[a-z_]+)` \\| ([a-z-]+) \\|").
		FindAllStringSubmatch(read(t, "../../docs/metrics.md"), -1)
	said := make(map[string]string)
	for _, row := range rows {
		said[row[1]] = kinds[row[2]]
	}
	found := maps.Clone(s.types)
	maps.DeleteFunc(found, func(name, _ string) bool { return !strings.HasPrefix(name, "leader_") })
	assert.Equal(t, found, said)
}

func promtool(t *testing.T, stdin io.Reader, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool in the path: Debian has it in the package prometheus")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Stdin = stdin
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, string(output))
}

// TestPromtoolTakesTheMetrics, by its rules for names and help texts; of what is ours.
func TestPromtoolTakesTheMetrics(t *testing.T) {
	s := startProcess(t, t.TempDir()).leading(t)
	var ours strings.Builder
	for line := range strings.Lines(s.text) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if strings.HasPrefix(name, "leader_") {
			ours.WriteString(line)
		}
	}
	promtool(t, strings.NewReader(ours.String()), "check", "metrics")
}

func TestPromtoolTakesTheConfiguration(t *testing.T) {
	promtool(t, nil, "check", "config", "prometheus.yml")
}
