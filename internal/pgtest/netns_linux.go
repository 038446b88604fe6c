// SPDX-License-Identifier: MIT

package pgtest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Fault is how the way to a Remote is cut. Nothing passes in either direction; what differs is what the kernel of this
// machine, where the server runs, gets to know.
type Fault string

const (
	// LinkDown is a cable that is pulled, or the neighbour itself that is gone: the address is not resolved any more,
	// which the kernel notes as EHOSTUNREACH.
	LinkDown Fault = "LinkDown"
	// Silence is a router that drops all packets.
	Silence Fault = "Silence"
	// Unreachable is a router that answers each packet with an ICMP message.
	Unreachable Fault = "Unreachable"
)

// remoteGuard removes the namespaces if the test binary dies. The links go with the router's.
const remoteGuard = `
read -r line && exit
ip netns del "$1"
ip netns del "$2"
`

// Remote is another host, as far as the network can tell: a namespace, behind a router, which is one too.
//
//	this machine .1 ---- .2 router .5 ---- .6 remote
//
// Its methods are for one goroutine, that of the test.
type Remote struct {
	tb          testing.TB
	id          string // unique on this machine
	here, there netip.Addr
	guard       *exec.Cmd
	line        io.WriteCloser // to the guard
	hostEnd     string         // of the link to the router
	cut         Fault
}

// NewRemote makes one that lasts until the test ends. Without root or network namespaces it skips the test.
func NewRemote(tb testing.TB) *Remote {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("pgtest: a network namespace needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		tb.Skipf("pgtest: a network namespace needs the command ip of iproute2: %v", err)
	}
	r := &Remote{tb: tb}
	for range 10 {
		// 198.18.0.0/15 is for tests like these. The same number makes names and addresses.
		n := rand.Uint32N(1 << 14)
		r.id = fmt.Sprintf("leader-test-%04x", n)
		out, err := exec.CommandContext(tb.Context(), "ip", "netns", "add", r.router()).CombinedOutput()
		switch {
		case err == nil:
			r.hostEnd = fmt.Sprintf("ldrtest%04x", n)
			tb.Cleanup(r.remove)
			r.build(198<<24 | 18<<16 | n<<3)
			return r
		case !bytes.Contains(out, []byte("File exists")):
			tb.Skipf("pgtest: no network namespaces here: %v: %s", err, out)
		}
	}
	tb.Fatal("pgtest: ten names of namespaces were taken")
	return nil
}

func (r *Remote) router() string { return r.id + "-router" }
func (r *Remote) host() string   { return r.id + "-host" }

// Here is the address at which the Remote finds this machine.
func (r *Remote) Here() string { return r.here.String() }

// There is the address at which this machine finds the Remote.
func (r *Remote) There() string { return r.there.String() }

// Prefix is what to put in front of a command to run it there. The command keeps the process that this starts as.
func (r *Remote) Prefix() []string { return []string{"ip", "netns", "exec", r.host()} }

// build makes the namespaces and links on the eight addresses from base on.
func (r *Remote) build(base uint32) {
	r.tb.Helper()
	at := func(i uint32) netip.Addr {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, base+i)))
	}
	r.here, r.there = at(1), at(6)
	r.watch()
	r.batch("",
		"netns add "+r.host(),
		"link add "+r.hostEnd+" type veth peer name near netns "+r.router(),
		"address add "+at(1).String()+"/30 dev "+r.hostEnd,
		"link set "+r.hostEnd+" up")
	r.batch(r.router(),
		"link add far type veth peer name eth0 netns "+r.host(),
		"address add "+at(2).String()+"/30 dev near",
		"address add "+at(5).String()+"/30 dev far",
		"link set lo up", "link set near up", "link set far up")
	r.batch(r.host(),
		"address add "+at(6).String()+"/30 dev eth0",
		"link set lo up", "link set eth0 up",
		"route add default via "+at(5).String())
	r.batch("", "route add "+at(4).String()+"/30 via "+at(2).String())
	r.run("ip", "netns", "exec", r.router(), "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
}

// Cut ends all traffic until Mend.
func (r *Remote) Cut(fault Fault) {
	r.tb.Helper()
	switch fault {
	case LinkDown:
		r.batch(r.router(), "link set near down")
	case Silence, Unreachable:
		kind := map[Fault]string{Silence: "blackhole", Unreachable: "unreachable"}[fault]
		// Not routes: those would take the way from the router's own messages too.
		r.batch(r.router(), "rule add pref 1 iif near "+kind, "rule add pref 1 iif far "+kind)
	default:
		r.tb.Fatalf("pgtest: no fault %q", fault)
	}
	r.cut = fault
}

// Mend is the end of Cut.
func (r *Remote) Mend() {
	r.tb.Helper()
	switch r.cut {
	case LinkDown:
		r.batch(r.router(), "link set near up")
	case Silence, Unreachable:
		r.batch(r.router(), "rule del pref 1 iif near", "rule del pref 1 iif far")
	}
	r.cut = ""
}

// Unacknowledged is how many bytes this machine has sent to the Remote, on all connections, that it has had no answer to.
func (r *Remote) Unacknowledged() (bytes int) {
	r.tb.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		r.tb.Fatalf("pgtest: %v", err)
	}
	raw := r.there.As4()
	there := fmt.Sprintf("%08X:", binary.NativeEndian.Uint32(raw[:]))
	for line := range strings.Lines(string(table)) {
		// sl local_address rem_address st tx_queue:rx_queue ...
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[2], there) {
			continue
		}
		queued, _, _ := strings.Cut(fields[4], ":")
		n, err := hex.DecodeString(queued)
		if err != nil {
			r.tb.Fatalf("pgtest: /proc/net/tcp: %v", err)
		}
		bytes += int(binary.BigEndian.Uint32(n))
	}
	return bytes
}

// Admit has the server listen to nobody new, but trust who comes from the Remote. Its listen_addresses must cover [Remote.Here].
func (s *Server) Admit(r *Remote) {
	r.tb.Helper()
	file, err := os.OpenFile(s.data()+"/pg_hba.conf", os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintf(file, "host all all %s/32 trust\n", r.There())
	}
	if err != nil {
		r.tb.Fatalf("pgtest: %v", err)
	}
	if err := file.Close(); err != nil {
		r.tb.Fatalf("pgtest: %v", err)
	}
	Exec(r.tb, s.URL(), "SELECT pg_reload_conf()")
}

// watch starts the guard.
func (r *Remote) watch() {
	r.tb.Helper()
	r.guard = exec.Command("sh", "-c", remoteGuard, "guard", r.router(), r.host()) //nolint:noctx // until remove dismisses it
	r.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                      // the terminal's ^C is not for the guard
	var err error
	if r.line, err = r.guard.StdinPipe(); err == nil {
		err = r.guard.Start()
	}
	if err != nil {
		r.guard = nil
		r.tb.Fatalf("pgtest: guard: %v", err)
	}
}

// remove takes all away. Connections of processes that were killed there may hold the namespace for a while, without a
// name or a link.
func (r *Remote) remove() {
	for _, name := range []string{r.router(), r.host()} {
		if _, err := os.Stat("/run/netns/" + name); err != nil {
			continue // building it failed half-way
		}
		if out, err := exec.Command("ip", "netns", "del", name).CombinedOutput(); err != nil { //nolint:noctx // takes milliseconds
			r.tb.Errorf("pgtest: ip netns del %s: %v: %s", name, err, out)
		}
	}
	if r.guard != nil {
		_, _ = io.WriteString(r.line, "\n") // dismissed; if it died first there is nothing to tell it
		_ = r.guard.Wait()
	}
}

// batch runs commands of ip in a namespace, or here.
func (r *Remote) batch(namespace string, commands ...string) {
	r.tb.Helper()
	args := []string{"-batch", "-"}
	if namespace != "" {
		args = append([]string{"-n", namespace}, args...)
	}
	cmd := exec.CommandContext(r.tb.Context(), "ip", args...)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		r.tb.Fatalf("pgtest: ip: %v: %s\n%s", err, out, strings.Join(commands, "\n"))
	}
}

func (r *Remote) run(name string, args ...string) {
	r.tb.Helper()
	if out, err := exec.CommandContext(r.tb.Context(), name, args...).CombinedOutput(); err != nil {
		r.tb.Fatalf("pgtest: %s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}
