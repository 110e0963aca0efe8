package fleet

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// An authority signs certificates, and writes them to a directory.
type authority struct {
	dir         string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.certificate, a.key = a.sign(t, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, time.Hour)
	return a
}

// sign writes NAME.pem and NAME.key, valid for a time from an hour ago.
func (a *authority) sign(t *testing.T, name string, c *x509.Certificate, valid time.Duration) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noError(t, err)
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore = time.Now().Add(-time.Hour)
	c.NotAfter = c.NotBefore.Add(time.Hour + valid)
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	noError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	noError(t, err)
	write(t, a.path(name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, a.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
	signed, err := x509.ParseCertificate(der)
	noError(t, err)
	return signed, key
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// TestTLS: etcd requires client certificates. What is wrong with a certificate is reported.
func TestTLS(t *testing.T) {
	t.Parallel()
	a, other := newAuthority(t), newAuthority(t)
	a.sign(t, "server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, time.Hour)
	a.sign(t, "client", &x509.Certificate{}, time.Hour)
	a.sign(t, "expired", &x509.Certificate{}, -time.Minute)
	other.sign(t, "client", &x509.Certificate{}, time.Hour)
	m := &member{dir: t.TempDir(), client: freePort(t), peer: freePort(t), tls: &transport.TLSInfo{
		CertFile: a.path("server.pem"), KeyFile: a.path("server.key"), TrustedCAFile: a.path("ca.pem"), ClientCertAuth: true,
	}}
	m.start(t)
	t.Cleanup(m.stop)
	flags := func(ca, certificate *authority, name string) []string {
		return []string{
			"--store-ca=" + ca.path("ca.pem"), "--store-cert=" + certificate.path(name+".pem"), "--store-key=" + certificate.path(name+".key"),
		}
	}
	mustRun(t, "created fleet", append([]string{"store", "init", "etcd://" + m.client + "/lbd"}, flags(a, a, "client")...)...)
	d := startDaemon(t, "etcd://"+m.client+"/lbd", flags(a, a, "client")...)
	d.untilReady(t, http.StatusOK)
	d.mustPush(t, "orders", 1)
	// A certificate is read for each connection.
	a.sign(t, "client", &x509.Certificate{}, -time.Minute)
	m.stop()
	m.start(t)
	d.untilReady(t, http.StatusOK, "expired")
	a.sign(t, "client", &x509.Certificate{}, time.Hour)
	until(t, "a push succeeds", func() bool { status, _ := d.push("orders", 2); return status == http.StatusOK })
	for name, c := range map[string]struct {
		flags []string
		says  string
	}{
		"without a client certificate":  {[]string{"--store-ca=" + a.path("ca.pem")}, "certificate required"},
		"an expired client certificate": {flags(a, a, "expired"), "expired"},
		"a client of another authority": {flags(a, other, "client"), "unknown certificate authority"},
		"a server of another authority": {flags(other, a, "client"), "signed by unknown authority"},
		"without TLS":                   {nil, "did not respond"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDaemon(t, "etcd://"+m.client+"/lbd", c.flags...)
			d.untilReady(t, http.StatusServiceUnavailable, c.says)
		})
	}
}
