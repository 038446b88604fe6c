// SPDX-License-Identifier: MIT

package leader

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresTLS repeats what depends on the driver's own reading and writing: under TLS an interrupt, an end and a
// goodbye take another way.
func TestPostgresTLS(t *testing.T) {
	server, _ := startTLS(t)
	dsn := withTLS(server, "require")
	flat(t, dsn)
	t.Run("Session", func(t *testing.T) {
		for _, c := range sessionTests {
			t.Run(c.name, func(t *testing.T) { c.test(t, postgresPlace(dsn)) })
		}
	})
	t.Run("Kill", func(t *testing.T) { testPostgresKill(t, dsn, 10) })
	t.Run("Holes", func(t *testing.T) {
		for _, h := range holes {
			t.Run(h.name, func(t *testing.T) {
				t.Parallel()
				testPostgresBlackHole(t, dsn, h)
			})
		}
	})
	t.Run("Bounded", func(t *testing.T) { // C22
		for _, h := range holes {
			if !h.up || !h.down {
				continue
			}
			t.Run("Resign"+h.name, func(t *testing.T) { t.Parallel(); testPostgresResignBounded(t, dsn, h) })
			t.Run("Run"+h.name, func(t *testing.T) { t.Parallel(); testPostgresRunBounded(t, dsn, h) })
		}
	})
	t.Run("RST", func(t *testing.T) { testPostgresCut(t, dsn, (*pgtest.Proxy).Reset) })
	t.Run("FIN", func(t *testing.T) { testPostgresCut(t, dsn, (*pgtest.Proxy).CutFIN) })
}

// TestPostgresTLSIsWhatTheURLAsksFor has a server that lets nobody in without TLS, and clients that check who it is.
func TestPostgresTLSIsWhatTheURLAsksFor(t *testing.T) {
	server, root := startTLS(t)
	flat(t, server.SocketURL())
	admin := pgtest.Connect(t, server.SocketURL())
	var hba string
	require.NoError(t, admin.QueryRow(t.Context(), "SHOW hba_file").Scan(&hba))
	require.NoError(t, os.WriteFile(hba, []byte("local all all trust\nhostssl all all 127.0.0.1/32 trust\n"), 0o600))
	_, err := admin.Exec(t.Context(), "SELECT pg_reload_conf()")
	require.NoError(t, err)
	poll(t, soon, "the server insists", func() bool {
		conn, err := pgx.Connect(t.Context(), server.URL())
		if err == nil {
			conn.Close(t.Context())
		}
		return err != nil
	})
	file := func(text []byte) string {
		name := filepath.Join(t.TempDir(), "root.crt")
		require.NoError(t, os.WriteFile(name, text, 0o600))
		return url.QueryEscape(name)
	}
	stranger, _ := newCert(t)
	full := withTLS(server, "verify-full")
	known := full + "&sslrootcert=" + file(root)

	r := &recorder{}
	a, b := newLeader(t, Postgres(known), faultOptions(t, "a")), newLeader(t, Postgres(withTLS(server, "require")), faultOptions(t, "b"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	goRun(ctx, a, "x", r.task("a", "x", nil))
	r.await(t, "x", "a")
	goRun(t.Context(), b, "x", r.task("b", "x", nil))
	poll(t, soon, "b contends", contends(b, "x"))
	stop()
	r.await(t, "x", "b")
	assert.Zero(t, r.overlap())
	var plain int
	require.NoError(t, admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
		WHERE application_name LIKE 'leader/%' AND NOT ssl`).Scan(&plain))
	assert.Zero(t, plain)

	for what, c := range map[string]struct{ dsn, says string }{
		"a server that nobody vouches for": {full + "&sslrootcert=" + file(stranger), "certificate"},
		"another name in the certificate":  {strings.Replace(known, "127.0.0.1", "localhost", 1), "certificate"},
		"no TLS":                           {server.URL(), "pg_hba.conf"},
	} {
		l := newLeader(t, Postgres(c.dsn), faultOptions(t, "c"))
		run := goRun(t.Context(), l, "y", obey)
		poll(t, soon, what, func() bool { return l.Status().Err != nil })
		assert.ErrorContains(t, l.Status().Err, c.says, what)
		never(t, 2*faultRetry, what, func() bool { return l.IsLeading("y") || run.returned() }) // it is tried again
	}
}

// withTLS returns the URL of server with an sslmode.
func withTLS(server *pgtest.Server, mode string) string {
	return strings.Replace(server.URL(), "sslmode=disable", "sslmode="+mode, 1)
}

// newCert returns a certificate for 127.0.0.1 that vouches for itself, and its key, in PEM.
func newCert(t *testing.T) (cert, private []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "leader test"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err = x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err = x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}

// startTLS starts a server that speaks TLS, and returns its certificate.
func startTLS(t *testing.T) (*pgtest.Server, []byte) {
	t.Helper()
	cert, private := newCert(t)
	server := pgtest.Start(t)
	conn := pgtest.Connect(t, server.URL())
	for file, text := range map[string][]byte{"server.crt": cert, "server.key": private} {
		// By the server, whose user must own them. A PEM file has nothing that COPY would escape.
		lines := "'" + strings.Join(strings.Split(strings.TrimSpace(string(text)), "\n"), "'),('") + "'"
		_, err := conn.Exec(t.Context(), "COPY (VALUES ("+lines+")) TO PROGRAM 'umask 077; cat > "+file+"'")
		require.NoError(t, err)
	}
	for _, sql := range []string{"ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()"} {
		_, err := conn.Exec(t.Context(), sql)
		if err != nil && strings.Contains(err.Error(), "not supported by this build") {
			t.Skip("the server was built without TLS")
		}
		require.NoError(t, err)
	}
	poll(t, soon, "the server speaks TLS", func() bool { return speaksTLS(t, withTLS(server, "require")) })
	return server, cert
}

func speaksTLS(t *testing.T, dsn string) bool {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		return false
	}
	defer conn.Close(t.Context())
	var on bool
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&on))
	return on
}
