// SPDX-License-Identifier: MIT

package report_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/bench/report"
	"github.com/oxygenhub/leader/bench/result"
)

func run() result.Run {
	var ours, raws []float64
	for i := range 100 {
		ours = append(ours, 0.002+float64(i)*1e-6)
		raws = append(raws, ours[i]/2)
	}
	row := func(work, measure, peer, setting, unit string, x float64, samples ...float64) result.Row {
		return result.Row{Work: work, Measure: measure, Peer: peer, Setting: setting, Unit: unit, X: x, Samples: samples}
	}
	rows := []result.Row{
		row("handover", "takeover", "leader", "defaults", "s", 0, ours...),
		row("handover", "takeover", "raw", "", "s", 0, raws...),
		row("handover", "takeover", "gocron", "defaults", "s", 0, 0.3, 0.5),
		row("session", "told", "client-go", "defaults", "s", 0),
		row("hole", "overlap", "leader", "defaults", "s", 0, 0, 0),
		row("names", "standby cpu", "leader", "defaults", "s/s", 1, 1e-4),
		row("names", "standby cpu", "leader", "defaults", "s/s", 5000, 1e-2),
		row("names", "standby cpu", "raw", "", "s/s", 1, 9e-5),
		row("names", "standby cpu", "raw", "", "s/s", 5000, 1.2e-2),
		row("novel|ty", "weight", "leader", "defaults", "kg", 0, 12345),
	}
	rows[1].Note = "The limit, not a choice."
	return result.Run{
		Date: time.Date(2026, 12, 3, 0, 0, 0, 0, time.UTC), Took: 1200, Machine: "2 processors",
		Versions: []result.Version{{Name: "Go", Version: "1.26"}}, Rows: rows,
	}
}

func write(t *testing.T) (dir, page string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, report.Write(dir, run()))
	text, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
	require.NoError(t, err)
	return dir, string(text)
}

func TestThePageSaysWhatWasMeasured(t *testing.T) {
	_, page := write(t)
	for _, line := range []string{
		"    make bench",
		"Measured on 3 December 2026 in 20 minutes, on 2 processors. How many rounds there were is n in the tables.",
		"| Go | 1.26 |",
		"| leader | defaults | 100 | 2 ms | 2.05 ms | 2.1 ms | 2.1 ms | 1 |  |",
		"| raw |  | 100 | 1 ms | 1.02 ms | 1.05 ms | 1.05 ms | 0.5 | [1](#notes) |",
		"1. The limit, not a choice.",
		"| gocron | defaults | 2 | 300 ms | 400 ms | – | 500 ms | 195 |  |",
		"| client-go | defaults | 0 | – | – | – | – | – |  |",
		"| a clean handover, against the raw NOTIFY loop | 2 x | 2 x | met |",
		"| a clean handover, against River's | 0.1 x | – | not measured |",
		"## novel|ty",
		"| leader | defaults | 1 | 12,345 kg | 12,345 kg | – | 12,345 kg | 1 |  |",
	} {
		assert.Contains(t, page, line+"\n")
	}
}

func TestAQuickRunJudgesNothing(t *testing.T) {
	dir, quick := t.TempDir(), run()
	quick.Quick = true
	require.NoError(t, report.Write(dir, quick))
	page, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
	require.NoError(t, err)
	assert.Contains(t, string(page), "| a clean handover, against the raw NOTIFY loop | 2 x | 2 x | not judged |\n")
	assert.NotContains(t, string(page), "| met |")
}

func TestEachDrawingOfThePageIsThereAndWellFormed(t *testing.T) {
	dir, page := write(t)
	drawn, err := filepath.Glob(filepath.Join(dir, "benchmarks", "*.svg"))
	require.NoError(t, err)
	assert.Len(t, drawn, 2, "handover has dots, names has lines")
	for _, file := range drawn {
		assert.Contains(t, page, "](benchmarks/"+filepath.Base(file)+")")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		parser := xml.NewDecoder(strings.NewReader(string(text)))
		for err == nil {
			_, err = parser.Token()
		}
		assert.True(t, errors.Is(err, io.EOF), "%s: %v", file, err)
		assert.Contains(t, string(text), "leader, defaults")
	}
}

func TestTheNumbersCanBeReadAgain(t *testing.T) {
	dir, _ := write(t)
	text, err := os.ReadFile(filepath.Join(dir, "benchmarks.json"))
	require.NoError(t, err)
	var again result.Run
	require.NoError(t, json.Unmarshal(text, &again))
	assert.Equal(t, run().Rows[0], again.Rows[0])
	assert.Len(t, again.Targets, 12)
}

func TestDrawingsOfAnEarlierRunGo(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "benchmarks", "old.svg")
	require.NoError(t, os.Mkdir(filepath.Dir(old), 0o755))
	require.NoError(t, os.WriteFile(old, nil, 0o600))
	require.NoError(t, report.Write(dir, run()))
	assert.NoFileExists(t, old)
}
