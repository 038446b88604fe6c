// SPDX-License-Identifier: MIT

package pgtest_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// refused returns how the Remote, where nobody listens, answers a connect from here.
func refused(r *pgtest.Remote) error {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(r.There(), "1"), 5*time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

func TestRemoteIsCutAsAsked(t *testing.T) {
	silent := func(err error) bool {
		var timeout net.Error
		return errors.As(err, &timeout) && timeout.Timeout()
	}
	gone := func(err error) bool { return errors.Is(err, syscall.EHOSTUNREACH) }
	unreachable := func(err error) bool { return errors.Is(err, syscall.ENETUNREACH) }
	for fault, want := range map[pgtest.Fault]func(error) bool{
		pgtest.LinkDown: gone, pgtest.Silence: silent, pgtest.Unreachable: unreachable,
	} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			r := pgtest.NewRemote(t)
			if err := refused(r); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatalf("before: %v", err)
			}
			r.Cut(fault)
			if err := refused(r); !want(err) {
				t.Fatalf("cut: %v", err)
			}
			r.Mend()
			if err := refused(r); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatalf("after: %v", err)
			}
		})
	}
}

func TestRemoteLeavesNothingBehind(t *testing.T) {
	var there, name string
	t.Run("While", func(t *testing.T) {
		r := pgtest.NewRemote(t)
		there = r.There()
		prefix := r.Prefix()
		name = prefix[len(prefix)-1]
		out, err := exec.Command(prefix[0], append(prefix[1:], "ip", "-brief", "address")...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), there) {
			t.Fatalf("%v: %s", err, out)
		}
	})
	if name == "" {
		t.Skip("no Remote here: see the subtest")
	}
	if _, err := os.Stat("/run/netns/" + name); !os.IsNotExist(err) {
		t.Errorf("the namespace: %v", err)
	}
	deadline := time.Now().Add(5 * time.Second) // the kernel takes links down a moment later
	for {
		out, err := exec.Command("ip", "route", "get", there).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "ldrtest") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the link: %s", out)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
