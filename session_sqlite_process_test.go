// SPDX-License-Identifier: MIT

package leader

import (
	"bufio"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sqliteFileEnv names the database of a helper process: the test binary, run again with TestSQLiteHelperProcess only.
const sqliteFileEnv = "LEADER_TEST_SQLITE_FILE"

// sqliteProcess is another process with a session of its own. It does what it is told, line by line.
type sqliteProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func sqliteStart(t *testing.T, file string, change ...func(*exec.Cmd)) *sqliteProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSQLiteHelperProcess$")
	cmd.Env = append(os.Environ(), sqliteFileEnv+"="+file)
	cmd.Stderr = os.Stderr
	for _, f := range change {
		f(cmd)
	}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &sqliteProcess{cmd: cmd, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(p.kill)
	return p
}

// do has the process do something and returns what it answers.
func (p *sqliteProcess) do(t *testing.T, command string) string {
	t.Helper()
	stuck := time.AfterFunc(time.Minute, func() { p.cmd.Process.Kill() })
	defer stuck.Stop()
	_, err := fmt.Fprintln(p.in, command)
	require.NoError(t, err, command)
	for p.out.Scan() {
		if answer, ok := strings.CutPrefix(p.out.Text(), "sqlite> "); ok {
			return answer
		}
	}
	require.Fail(t, "the helper process has ended", command)
	return ""
}

// kill ends the process as kill -9 does, and returns when it is dead.
func (p *sqliteProcess) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// sqliteHelper is the state of a helper process.
type sqliteHelper struct {
	t  *testing.T
	db *sql.DB
	s  *sqliteSession
}

// sqliteHelperCommands are what a helper process can do. Those of one system only are added beside their tests.
var sqliteHelperCommands = map[string]func(h *sqliteHelper, args []string, keys []int64) string{
	"open": func(h *sqliteHelper, args []string, _ []int64) string {
		var err error
		h.s, err = sqliteTryOpen(h.t.Context(), SQLite(h.db), args[0])
		return fmt.Sprint(err)
	},
	"try": func(h *sqliteHelper, _ []string, keys []int64) string {
		held, err := h.s.try(keys)
		return fmt.Sprint(held, " ", err)
	},
	"unlock": func(h *sqliteHelper, _ []string, keys []int64) string {
		missing, err := h.s.unlock(keys)
		return fmt.Sprint(missing, " ", err)
	},
	"prove": func(h *sqliteHelper, _ []string, _ []int64) string {
		lost, err := h.s.prove()
		return fmt.Sprint(lost, " ", err)
	},
	"holder": func(h *sqliteHelper, _ []string, keys []int64) string {
		holder := sqliteHolder(h.t, h.s, keys[0])
		return fmt.Sprint(holder.Node, " ", holder.Held)
	},
}

func TestSQLiteHelperProcess(t *testing.T) {
	file := os.Getenv(sqliteFileEnv)
	if file == "" {
		return // run by itself there is nothing to do
	}
	db, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	h := &sqliteHelper{t: t, db: db}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words := strings.Fields(in.Text())
		var keys []int64
		for _, word := range words[1:] {
			if key, err := strconv.ParseInt(word, 10, 64); err == nil {
				keys = append(keys, key)
			}
		}
		answer := sqliteHelperCommands[words[0]](h, words[1:], keys)
		fmt.Println("\nsqlite> " + strings.ReplaceAll(answer, "\n", " "))
	}
}
