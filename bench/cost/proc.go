// SPDX-License-Identifier: MIT

package cost

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc/<pid>/stat: USER_HZ, which is 100 on all platforms of Linux that Go knows.
const tick = 10 * time.Millisecond

// cpuTime is for how long a process of one thread has run, to the nanosecond.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0, fmt.Errorf("cpu of a process: %w", err)
	}
	first, _, _ := bytes.Cut(text, []byte(" "))
	ns, err := strconv.ParseInt(string(first), 10, 64)
	return time.Duration(ns), err
}

// memory is the proportional set size of a process in bytes: pages that several share count as their share of them.
func memory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of a process: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if size, ok := strings.CutPrefix(line, "Pss:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(size)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("memory of a process: no Pss of %d", pid)
}

// stat is what /proc/<pid>/stat says of a process, from its third field on.
func stat(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	_, fields, ok := strings.Cut(string(text), ") ") // the name of a server's process has no parenthesis
	if !ok {
		return nil, fmt.Errorf("stat of process %d: %q", pid, text)
	}
	return strings.Fields(fields), nil
}

func parentOf(pid int) (int, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(fields[1])
}

// family is a process with its children.
func family(pid int) ([]int, error) {
	paths, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	all := []int{pid}
	for _, path := range paths {
		child, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		if parent, err := parentOf(child); err == nil && parent == pid { // it may have ended
			all = append(all, child)
		}
	}
	return all, nil
}

// usage is what a family of processes has used, those of them that have ended included, and what it has now.
type usage struct {
	cpu       time.Duration
	memory    int64
	processes int
}

func usageOf(pid int) (usage, error) {
	pids, err := family(pid)
	if err != nil {
		return usage{}, err
	}
	var u usage
	for _, member := range pids {
		cpu, cpuErr := cpuTime(member)
		size, sizeErr := memory(member)
		if cpuErr != nil || sizeErr != nil {
			continue // it has ended
		}
		u.cpu += cpu
		u.memory += size
		u.processes++
	}
	if u.processes == 0 {
		return u, fmt.Errorf("usage of process %d: none of its family can be looked at", pid)
	}
	fields, err := stat(pid)
	if err != nil {
		return u, err
	}
	for _, field := range fields[13:15] { // cutime and cstime
		ticks, err := strconv.Atoi(field)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(ticks) * tick
	}
	return u, nil
}
