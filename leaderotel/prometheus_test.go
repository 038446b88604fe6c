// SPDX-License-Identifier: MIT

package leaderotel_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func promtool(t *testing.T, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool in the path: Debian has it in the package prometheus")
	}
	output, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	require.NoError(t, err, string(output))
	return string(output)
}

func TestAlertsAreValid(t *testing.T) {
	assert.Contains(t, promtool(t, "check", "rules", "prometheus/alerts.yaml"), "8 rules found")
}

func TestAlertsFire(t *testing.T) { promtool(t, "test", "rules", "prometheus/alerts_test.yaml") }

// TestDocsHaveAllAlerts, and no others; and each has a test.
func TestDocsHaveAllAlerts(t *testing.T) {
	alerts, err := os.ReadFile("prometheus/alerts.yaml")
	require.NoError(t, err)
	tests, err := os.ReadFile("prometheus/alerts_test.yaml")
	require.NoError(t, err)
	var found, said []string
	for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(string(alerts), -1) {
		found = append(found, m[1])
		assert.Contains(t, string(tests), "alertname: "+m[1]+"\n", "expected to fire")
		assert.Contains(t, string(tests), "alertname: "+m[1]+"}", "expected not to fire")
	}
	for _, cells := range table(t, "alert") {
		said = append(said, cells[0])
	}
	assert.Equal(t, found, said)
}

// dashboard is what is checked of one.
type dashboard struct {
	Panels []struct {
		ID      int
		Title   string
		Targets []struct{ Expr string }
	}
	Templating struct{ List []struct{ Name string } }
}

// TestDashboardQueriesAreValid has promtool look at each as the expression of a rule.
func TestDashboardQueriesAreValid(t *testing.T) {
	text, err := os.ReadFile("grafana/dashboard.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	variables := []string{"$__rate_interval", "5m"}
	for _, v := range d.Templating.List {
		variables = append(variables, "$"+v.Name, ".*")
	}
	replacer := strings.NewReplacer(variables...)
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	ids := make(map[int]bool)
	for _, p := range d.Panels {
		assert.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		assert.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			expr := replacer.Replace(target.Expr)
			assert.NotContains(t, expr, "$", p.Title)
			rules = append(rules, rule{fmt.Sprintf("panel_%d", len(rules)), expr})
		}
	}
	require.NotEmpty(t, rules)
	type group struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	}
	file, err := json.Marshal(map[string][]group{"groups": {{"dashboard", rules}}}) // is YAML, too
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	promtool(t, "check", "rules", path)
}
