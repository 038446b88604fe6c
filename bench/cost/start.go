// SPDX-License-Identifier: MIT

package cost

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oxygenhub/leader"
	"github.com/oxygenhub/leader/bench/result"
)

// StartEnv is the variable that holds the starter of a process, in JSON. The program that finds it set calls Starter and
// nothing else.
const StartEnv = "LEADER_BENCH_START"

// starter is a way to come to a first leadership.
type starter struct {
	Peer   string
	URL    string // of a PostgreSQL server
	SQLite string // or the path of a database
	Terms  bool
}

// Start is how long it takes from New until the first task runs, in this process and in new ones, and from the start of a new
// one. The lock is free, and nothing else has the database, but for what the one before has left.
func Start(ctx context.Context, c Config) ([]result.Row, error) {
	t := newTable("start")
	err := withLab(ctx, c, func(b *lab) error {
		dir := b.stage.TempDir()
		starters := []starter{
			{Peer: raw, URL: b.server.URL()},
			{Peer: ours, URL: b.server.URL()},
			{Peer: ours, URL: b.server.URL(), Terms: true},
			{Peer: ours, SQLite: filepath.Join(dir, "plain.db")},
			{Peer: ours, SQLite: filepath.Join(dir, "terms.db"), Terms: true},
		}
		for round := range 1 + c.few(100, 1) {
			for _, s := range starters {
				if err := s.measure(ctx, t, round == 0); err != nil {
					return fmt.Errorf("%s: %w", s.setting(), err)
				}
			}
		}
		return nil
	}, "fsync=on")
	t.note("in this process", "From New, or the connect, until the task runs.")
	t.note("in a new process", "From New, or the connect, until the task runs.")
	t.note("from the start of a process", "From before fork and exec of the benchmark's own binary, which is larger than most services, until the task runs.")
	return t.rows, err
}

func (s starter) setting() string {
	setting := "PostgreSQL"
	if s.SQLite != "" {
		setting = "SQLite"
	}
	if s.Terms {
		setting += ", " + terms
	}
	return setting
}

// measure makes two starts. The very first makes the tables: it does not count.
func (s starter) measure(ctx context.Context, t *table, first bool) error {
	here, err := s.start(ctx)
	if err != nil {
		return err
	}
	there, all, err := s.fork(ctx)
	if err != nil || first {
		return err
	}
	for _, took := range []struct {
		measure string
		time    time.Duration
	}{{"in this process", here}, {"in a new process", there}, {"from the start of a process", all}} {
		t.add(column{peer: s.Peer, setting: s.setting(), measure: took.measure, unit: "s"}, took.time.Seconds())
	}
	return nil
}

// start leads for a moment.
func (s starter) start(ctx context.Context) (took time.Duration, err error) {
	if s.Peer == raw {
		return s.startRaw(ctx)
	}
	backend := leader.Postgres(s.URL)
	if s.SQLite != "" {
		db, err := sql.Open("sqlite", s.SQLite)
		if err != nil {
			return 0, err
		}
		defer func() { _ = db.Close() }() // nothing is written any more
		backend = leader.SQLite(db)
	}
	begin := time.Now()
	l, err := leader.New(backend, leader.Options{Terms: s.Terms})
	if err != nil {
		return 0, err
	}
	err = l.Run(ctx, "start", func(context.Context) error {
		took = time.Since(begin)
		return nil
	})
	return took, errors.Join(err, l.Resign(ctx))
}

// startRaw connects and tries.
func (s starter) startRaw(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		return 0, err
	}
	var got bool
	err = conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", rawKey).Scan(&got)
	took := time.Since(begin)
	if err == nil && !got {
		err = errHeld
	}
	return took, errors.Join(err, conn.Close(ctx))
}

// fork starts in a process of its own. It returns how long that took by its own clock and by ours.
func (s starter) fork(ctx context.Context) (own, all time.Duration, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, 0, err
	}
	job, err := json.Marshal(s)
	if err != nil {
		return 0, 0, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), StartEnv+"="+string(job))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	line, readErr := bufio.NewReader(out).ReadBytes('\n')
	all = time.Since(begin)
	if err := errors.Join(readErr, cmd.Wait()); err != nil {
		return 0, 0, err
	}
	err = json.Unmarshal(line, &own)
	return own, all, err
}

// Starter does what this process was started for by Start, and reports whether it was.
func Starter(ctx context.Context) (was bool, err error) {
	job := os.Getenv(StartEnv)
	if job == "" {
		return false, nil
	}
	var s starter
	if err := json.Unmarshal([]byte(job), &s); err != nil {
		return true, fmt.Errorf("%s: %w", StartEnv, err)
	}
	took, err := s.start(ctx)
	if err == nil {
		_, err = fmt.Println(took.Nanoseconds())
	}
	return true, err
}
