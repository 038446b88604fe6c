// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const output = `goos: linux
pkg: example.com/a
BenchmarkOne            	    2000	        98.65 ns/op	       0 B/op	       0 allocs/op
BenchmarkMany/names=100 	    2000	     12889 ns/op	       128.9 ns/name	    2379 B/op	      16 allocs/op
BenchmarkMany/names=100 	    2000	     12889 ns/op	       128.9 ns/name	    2379 B/op	      15 allocs/op
PASS
ok  	example.com/a	0.825s
pkg: example.com/b
BenchmarkOne            	    2000	        98.65 ns/op	     480 B/op	       1 allocs/op
PASS
ok  	example.com/b	0.825s
`

const table = `# package, benchmark, allocations per operation
example.com/a BenchmarkOne 0
example.com/a BenchmarkMany/names=100 15

example.com/b BenchmarkOne 1 # the context
`

// sum returns what allocsum prints and says of table and output.
func sum(t *testing.T, table, output string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "allocs.txt")
	if err := os.WriteFile(file, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err := run([]string{file}, strings.NewReader(output), &out)
	return out.String(), err
}

func TestAllocationsThatAreAllowedPass(t *testing.T) {
	if out, err := sum(t, table, output); err != nil || !strings.Contains(out, "3 benchmarks") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestEachDifferenceIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		old, change string // of the table
		says        string
		passes      bool
	}{
		"risen":          {"names=100 15", "names=100 14", "RISEN example.com/a BenchmarkMany/names=100: 14 allocations are allowed, 15 were measured\n", false},
		"in one of two":  {"b BenchmarkOne 1", "b BenchmarkOne 0", "RISEN example.com/b BenchmarkOne: 0 allocations are allowed, 1 were measured\n", false},
		"did not run":    {"a BenchmarkOne 0", "a BenchmarkOne 0\nexample.com/a BenchmarkGone 0", "MISSING example.com/a BenchmarkGone: ", false},
		"renamed":        {"a BenchmarkOne 0", "a BenchmarkFirst 0", "MISSING example.com/a BenchmarkFirst: ", false},
		"not in a table": {"example.com/b BenchmarkOne 1", "", "UNKNOWN, add the line: example.com/b BenchmarkOne 1\n", false},
		"fallen":         {"names=100 15", "names=100 20", "fallen: example.com/a BenchmarkMany/names=100: 20 allocations are allowed, 15 were measured: lower the table\n", true},
	} {
		changed := strings.Replace(table, c.old, c.change, 1)
		if changed == table {
			t.Fatalf("%s: the table has no %q", name, c.old)
		}
		out, err := sum(t, changed, output)
		if !strings.Contains(out, c.says) || (err == nil) != c.passes {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestWhatCannotBeComparedIsAnError(t *testing.T) {
	for name, c := range map[string]struct{ table, output, says string }{
		"two fields":         {"example.com/a BenchmarkOne", output, `line 1: "example.com/a BenchmarkOne" is not`},
		"no number":          {"example.com/a BenchmarkOne -1", output, "line 1: the allocations: "},
		"a line twice":       {table + "example.com/a BenchmarkOne 0", output, "line 6: example.com/a BenchmarkOne is there twice"},
		"no allocations":     {table, strings.ReplaceAll(output, "allocs/op", "x/op"), "BenchmarkOne: it does not say allocs/op"},
		"no package":         {table, strings.ReplaceAll(output, "pkg: ", "mod: "), "BenchmarkOne: no package"},
		"nothing at all ran": {table, "", "3 benchmarks differ"},
	} {
		if out, err := sum(t, c.table, c.output); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	if err := run(nil, strings.NewReader(output), &strings.Builder{}); err == nil {
		t.Error("no table: no error")
	}
}
