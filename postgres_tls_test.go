// SPDX-License-Identifier: MIT

package leader

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oxygenhub/leader/internal/pgtest"
)

// TestPostgresTLS repeats what depends on the driver's own reading and writing: under TLS an interrupt, an end and a
// goodbye take another way.
func TestPostgresTLS(t *testing.T) {
	dsn := startTLS(t)
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
	t.Run("RST", func(t *testing.T) { testPostgresCut(t, dsn, (*pgtest.Proxy).Reset) })
	t.Run("FIN", func(t *testing.T) { testPostgresCut(t, dsn, (*pgtest.Proxy).CutFIN) })
}

// startTLS starts a server that speaks TLS, and returns a URL that insists on it.
func startTLS(t *testing.T) string {
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
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)

	server := pgtest.Start(t)
	conn := pgtest.Connect(t, server.URL())
	for file, block := range map[string]*pem.Block{
		"server.crt": {Type: "CERTIFICATE", Bytes: cert},
		"server.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		// By the server, whose user must own them. A PEM file has nothing that COPY would escape.
		lines := "'" + strings.Join(strings.Split(strings.TrimSpace(string(pem.EncodeToMemory(block))), "\n"), "'),('") + "'"
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
	dsn := strings.Replace(server.URL(), "sslmode=disable", "sslmode=require", 1)
	poll(t, soon, "the server speaks TLS", func() bool { return speaksTLS(t, dsn) })
	return dsn
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
