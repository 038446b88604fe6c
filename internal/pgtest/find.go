// SPDX-License-Identifier: MIT

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The variables that say where PostgreSQL is.
const (
	envURL = "LEADER_TEST_POSTGRES_URL"
	envBin = "LEADER_TEST_POSTGRES_BIN"

	// noPostgres as the value of envURL says that there is none on purpose: skip, even where CI is set.
	noPostgres = "none"
)

// errNotFound says that this machine has no PostgreSQL server, which is a reason to skip. A server that does not start
// is a failure.
var errNotFound = errors.New("no PostgreSQL server found: set " + envURL + ", set " + envBin +
	" to the folder of postgres and initdb, or install one")

// errLeftOut says that the tests are to run without PostgreSQL.
var errLeftOut = errors.New(envURL + " is " + noPostgres)

// install is one set of server binaries.
type install struct {
	bin   string
	lib   string // for LD_LIBRARY_PATH, empty if not needed
	major int
}

// find returns the binaries to use. A folder that was named by hand must be right; the others are guesses.
func find(ctx context.Context) (install, error) {
	if os.Getenv(envURL) == noPostgres {
		return install{}, errLeftOut
	}
	if bin := os.Getenv(envBin); bin != "" {
		if !hasServer(bin) {
			return install{}, fmt.Errorf("%s: no postgres and initdb in %s", envBin, bin)
		}
		return inspect(ctx, bin, true)
	}
	var guesses []string
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		guesses = append(guesses, strings.TrimSpace(string(out)))
	}
	for _, bin := range append(guesses, newestDebian()) {
		if bin != "" && hasServer(bin) {
			return inspect(ctx, bin, false)
		}
	}
	return install{}, errNotFound
}

// newestDebian returns the newest server folder of Debian's layout, which is on nobody's PATH.
func newestDebian() string {
	var best string
	var bestMajor int
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is valid
	for _, bin := range bins {
		major, err := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
		if err == nil && major > bestMajor && hasServer(bin) {
			best, bestMajor = bin, major
		}
	}
	return best
}

// hasServer tells a server from a client-only installation, for which pg_config may exist as well.
func hasServer(bin string) bool {
	for _, name := range []string{"postgres", "initdb"} {
		if _, err := exec.LookPath(filepath.Join(bin, name)); err != nil {
			return false
		}
	}
	return true
}

// inspect completes what is known of the server in bin.
func inspect(ctx context.Context, bin string, named bool) (install, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return install{}, err
	}
	in := install{bin: bin}
	lib := filepath.Join(filepath.Dir(bin), "lib")
	if libpq, _ := filepath.Glob(filepath.Join(lib, "libpq.*")); named || len(libpq) > 0 {
		in.lib = lib
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version")
	cmd.Env = in.environ()
	out, err := cmd.Output()
	if err != nil {
		return install{}, fmt.Errorf("%s: %w", cmd, err)
	}
	match := regexp.MustCompile(`\) (\d+)`).FindSubmatch(out)
	if match == nil {
		return install{}, fmt.Errorf("%s: no version in %q", cmd, out)
	}
	in.major, err = strconv.Atoi(string(match[1]))
	return in, err
}

// Version is what the server that tests start says of itself, as in "postgres (PostgreSQL) 15.14".
func Version(ctx context.Context) (string, error) {
	in, err := find(ctx)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(in.bin, "postgres"), "--version")
	cmd.Env = in.environ()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", cmd, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// environ is the environment of the server's programs: no locale that may not be installed, and none of the PG*
// variables that steer them.
func (in install) environ() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "LD_LIBRARY_PATH=") {
			env = append(env, kv)
		}
	}
	if path := os.Getenv("LD_LIBRARY_PATH"); path != "" || in.lib != "" {
		env = append(env, "LD_LIBRARY_PATH="+strings.Trim(in.lib+":"+path, ":"))
	}
	return append(env, "LC_ALL=C")
}

// absent ends a test that needs a server where there is none.
func absent(tb testing.TB, reason error) {
	tb.Helper()
	switch {
	case errors.Is(reason, errLeftOut):
	case errors.Is(reason, errNotFound) && os.Getenv("CI") == "":
	default:
		tb.Fatalf("pgtest: %v", reason)
	}
	tb.Skipf("pgtest: %v", reason)
}
