// SPDX-License-Identifier: MIT

// Command allocsum reads the output of go test -bench -benchmem and compares the allocations per operation with a table. It
// fails if a benchmark allocates more often than the table says, did not run, or is not in the table.
//
//	go test -run '^$' -bench . -benchmem -cpu 1 -count 3 ./... | allocsum FILE
//
// A line of the table has a package, a benchmark in it and its allocations; # begins a comment. Of several runs the least counts:
// what else goes on in the process can only add to it.
package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// counts are allocations per operation, by package and benchmark: "example.com/a BenchmarkB/names=100".
type counts map[string]uint64

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "allocsum:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: allocsum FILE")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	allowed, err := readTable(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	measured, err := readOutput(in)
	if err != nil {
		return err
	}
	wrong, better := compare(allowed, measured)
	lines := slices.Concat(better, wrong)
	if len(wrong) == 0 {
		lines = append(lines, fmt.Sprintf("%d benchmarks allocate no more than %s says", len(measured), args[0]))
	}
	if _, err := io.WriteString(out, strings.Join(lines, "\n")+"\n"); err != nil {
		return err
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d benchmarks differ from %s", len(wrong), args[0])
	}
	return nil
}

func readTable(text string) (counts, error) {
	table := counts{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d: %q is not a package, a benchmark and a number", number, strings.TrimSpace(line))
		}
		n, err := strconv.ParseUint(fields[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: the allocations: %w", number, err)
		}
		name := fields[0] + " " + fields[1]
		if _, twice := table[name]; twice {
			return nil, fmt.Errorf("line %d: %s is there twice", number, name)
		}
		table[name] = n
	}
	return table, nil
}

// readOutput takes the least of each benchmark's runs. Without -benchmem or b.ReportAllocs there would be nothing to compare: that
// is an error.
func readOutput(in io.Reader) (counts, error) {
	measured := counts{}
	pkg := ""
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "pkg: "); ok {
			pkg = name
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") || fields[3] != "ns/op" {
			continue
		}
		if pkg == "" {
			return nil, fmt.Errorf("%s: no package was named before it", fields[0])
		}
		at := slices.Index(fields, "allocs/op")
		if at < 0 {
			return nil, fmt.Errorf("%s %s: it does not say allocs/op", pkg, fields[0])
		}
		n, err := strconv.ParseUint(fields[at-1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s %s: the allocations: %w", pkg, fields[0], err)
		}
		name := pkg + " " + fields[0]
		if least, again := measured[name]; again {
			n = min(n, least)
		}
		measured[name] = n
	}
	return measured, lines.Err()
}

// compare returns a line for each benchmark that fails, and for each whose line in the table can be lowered.
func compare(allowed, measured counts) (wrong, better []string) {
	for _, name := range slices.Sorted(maps.Keys(allowed)) {
		most := allowed[name]
		switch n, ran := measured[name]; {
		case !ran:
			wrong = append(wrong, fmt.Sprintf("MISSING %s: it is in the table and did not run", name))
		case n > most:
			wrong = append(wrong, fmt.Sprintf("RISEN %s: %d allocations are allowed, %d were measured", name, most, n))
		case n < most:
			better = append(better, fmt.Sprintf("fallen: %s: %d allocations are allowed, %d were measured: lower the table", name, most, n))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(measured)) {
		if _, known := allowed[name]; !known {
			wrong = append(wrong, fmt.Sprintf("UNKNOWN, add the line: %s %d", name, measured[name]))
		}
	}
	return wrong, better
}
