// SPDX-License-Identifier: MIT

package integration

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" that wait.ForSQL opens
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	pgPort   = "5432/tcp"
	password = "sesame"
	database = "app"

	// bridge is the engine's default network, which the containers are on.
	bridge = "bridge"
	// label marks every container of these tests, so that what a killed run left behind can be found.
	label = "leader.test"
)

// server is one PostgreSQL container. Its host port is chosen by the test, since the engine would choose another one
// at each start.
type server struct {
	t      *testing.T
	ctr    *testcontainers.DockerContainer
	docker *client.Client
	host   string
	port   int
}

// startServer starts a container and removes it at the end of the test, paused or not.
func startServer(t *testing.T, image string) *server {
	t.Helper()
	docker, err := connect()
	require.NoError(t, err)
	t.Cleanup(func() { docker.Close() })
	s := &server{t: t, docker: docker, port: freePort(t)}
	s.ctr, err = testcontainers.Run(t.Context(), image,
		testcontainers.WithLogger(discard{}),
		testcontainers.WithLabels(map[string]string{label: t.Name()}),
		testcontainers.WithEnv(map[string]string{"POSTGRES_PASSWORD": password, "POSTGRES_DB": database}),
		testcontainers.WithExposedPorts(pgPort),
		testcontainers.WithHostConfigModifier(func(c *container.HostConfig) {
			binding := network.PortBinding{HostPort: strconv.Itoa(s.port)} // on every address, if we come from elsewhere
			if os.Getenv(hostOverride) == loopback {
				binding.HostIP = netip.MustParseAddr(loopback)
			}
			c.PortBindings = network.PortMap{network.MustParsePort(pgPort): {binding}}
		}),
		testcontainers.WithCmd("-c", "fsync=off", "-c", "max_connections=50"),
		// A connection, not a line of the log: the official image says twice that it is ready, and a server that is
		// started again says it once more.
		testcontainers.WithWaitStrategyAndDeadline(time.Minute, wait.ForSQL(pgPort, "pgx", dsn)),
	)
	if s.ctr != nil {
		t.Cleanup(s.remove)
	}
	require.NoError(t, err, "start a container of %s", image)
	s.host, err = s.ctr.Host(t.Context())
	require.NoError(t, err)
	return s
}

// remove goes through the engine itself, by force: a paused container cannot be stopped.
func (s *server) remove() {
	if s.t.Failed() {
		s.log()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := s.docker.ContainerRemove(ctx, s.id(), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil {
		s.t.Errorf("container %s is left behind: %v", s.id(), err)
	}
}

func (s *server) id() string { return s.ctr.GetContainerID() }

// url is the server's address as users give it, by way of the host port.
func (s *server) url() string { return dsnAt(s.host, s.port) }

// address is the container's own address, which bypasses the engine's port forwarding.
func (s *server) address(ctx context.Context) (string, error) { return s.ctr.ContainerIP(ctx) }

// pause freezes every process of the server. Its kernel still acknowledges what is sent to it.
func (s *server) pause() {
	s.t.Helper()
	_, err := s.docker.ContainerPause(s.t.Context(), s.id(), client.ContainerPauseOptions{})
	require.NoError(s.t, err)
}

func (s *server) unpause() {
	s.t.Helper()
	_, err := s.docker.ContainerUnpause(s.t.Context(), s.id(), client.ContainerUnpauseOptions{})
	require.NoError(s.t, err)
}

// kill ends the server as a crash of its machine's power supply would, apart from the disk.
func (s *server) kill() {
	s.t.Helper()
	_, err := s.docker.ContainerKill(s.t.Context(), s.id(), client.ContainerKillOptions{Signal: "KILL"})
	require.NoError(s.t, err)
}

// stop is a fast shutdown: both images ask for SIGINT. It returns the exit code of the server.
func (s *server) stop() int {
	s.t.Helper()
	timeout := 30 * time.Second
	require.NoError(s.t, s.ctr.Stop(s.t.Context(), &timeout))
	state, err := s.ctr.State(s.t.Context())
	require.NoError(s.t, err)
	return state.ExitCode
}

// start starts a killed or stopped server again and returns when it answers.
func (s *server) start() {
	s.t.Helper()
	require.NoError(s.t, s.ctr.Start(s.t.Context()))
}

// cut takes the container off its network.
func (s *server) cut() {
	s.t.Helper()
	_, err := s.docker.NetworkDisconnect(s.t.Context(), bridge, client.NetworkDisconnectOptions{Container: s.id()})
	require.NoError(s.t, err)
}

// mend puts it back.
func (s *server) mend() {
	s.t.Helper()
	_, err := s.docker.NetworkConnect(s.t.Context(), bridge, client.NetworkConnectOptions{Container: s.id()})
	require.NoError(s.t, err)
}

// query returns the one number that statement selects.
func (s *server) query(statement string) int {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.url())
	require.NoError(s.t, err)
	defer conn.Close(s.t.Context())
	var n int
	require.NoError(s.t, conn.QueryRow(s.t.Context(), statement).Scan(&n))
	return n
}

// log shows the end of the server's log.
func (s *server) log() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	logs, err := s.docker.ContainerLogs(ctx, s.id(), client.ContainerLogsOptions{
		ShowStdout: true, ShowStderr: true, Tail: "40",
	})
	if err != nil {
		s.t.Logf("log of the server: %v", err)
		return
	}
	defer logs.Close()
	s.t.Logf("log of the server:\n%s", plain(logs))
}

func dsn(host string, port network.Port) string { return dsnAt(host, int(port.Num())) }

func dsnAt(host string, port int) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", password), Path: database,
		Host: net.JoinHostPort(host, strconv.Itoa(port)), RawQuery: "sslmode=disable&connect_timeout=5",
	}
	return u.String()
}

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// discard silences testcontainers: it logs each step.
type discard struct{}

func (discard) Printf(string, ...any) {}
