package parity_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
)

// securityDifferences are those of TLS to endpoints.
var securityDifferences = []difference{
	byDuel("a cluster's security that changes", "makes 1 connections", "makes 2 connections", func(d *duel) func() string {
		u := secureUpstream(d)
		w := d.leaves[0]
		w.asked = securedBy(&tlsv3.UpstreamTlsContext{})
		d.serve()
		d.wait(d.oneAsk, "u0")
		w.asked = securedBy(&tlsv3.UpstreamTlsContext{}, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "orders.example"}})
		d.serve()
		return func() string {
			u.mu.Lock()
			defer u.mu.Unlock()
			return fmt.Sprintf("makes %d connections", len(u.first))
		}
	}, secured),
	byDuel("ALPN to endpoints", "offers h2", "offers h2 http/1.1", func(d *duel) func() string {
		u := secureUpstream(d)
		d.leaves[0].asked = securedBy(&tlsv3.UpstreamTlsContext{})
		d.serve()
		d.wait(d.oneAsk, "u0")
		return func() string { return "offers " + strings.Join(u.lastHello().SupportedProtos, " ") }
	}, secured),
	byDuel("security of a cluster without xDS credentials", "speaks plain text", "speaks TLS", func(d *duel) func() string {
		u := secureUpstream(d)
		d.leaves[0].asked = securedBy(&tlsv3.UpstreamTlsContext{})
		d.serve()
		return u.speaks
	}, secured, func(d *duel) { d.creds = insecure.NewCredentials() }),
	byDuel("`system_root_certs`, `sni`, `auto_host_sni`, `auto_sni_san_validation`", `sends the name ""`, `sends the name "orders.example"`, func(d *duel) func() string {
		u := secureUpstream(d)
		d.leaves[0].asked = securedBy(&tlsv3.UpstreamTlsContext{Sni: "orders.example"})
		d.serve()
		d.wait(d.oneAsk, "u0")
		return func() string { return fmt.Sprintf("sends the name %q", u.lastHello().ServerName) }
	}, secured),
	byDuel("a certificate provider without roots", "trusts the system's roots", "trusts none", func(d *duel) func() string {
		secureUpstream(d)
		d.leaves[0].asked = securedBy(&tlsv3.UpstreamTlsContext{})
		d.serve()
		return func() string {
			switch text := d.failure(); {
			case strings.Contains(text, "x509: certificate signed by unknown authority"): // the system has not signed it
				return "trusts the system's roots"
			case strings.Contains(text, `certificate provider "roots" has no roots`):
				return "trusts none"
			default:
				return text
			}
		}
	}, secured, rootless),
}

// certificate is a self-signed one of orders.example.
var certificate = sync.OnceValues(func() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"orders.example"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
})

// secured gives a duel the provider "roots", and grpc-go xDS credentials.
func secured(d *duel) {
	own, err := certificate()
	if err != nil {
		d.t.Fatal(err)
	}
	d.provider = fmt.Sprintf(`"ca_certificate_file": %q`, d.file("ca.pem", "CERTIFICATE", own.Certificate[0]))
	if d.creds, err = xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()}); err != nil {
		d.t.Fatal(err)
	}
}

// rootless gives the provider "roots" a certificate to show instead of roots.
func rootless(d *duel) {
	own, err := certificate()
	if err != nil {
		d.t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		d.t.Fatal(err)
	}
	certificate := d.file("cert.pem", "CERTIFICATE", own.Certificate[0])
	private := filepath.Join(filepath.Dir(certificate), "key.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	if err := os.WriteFile(private, text, 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.provider = fmt.Sprintf(`"certificate_file": %q, "private_key_file": %q`, certificate, private)
}

// file writes a PEM file in a directory of its own.
func (d *duel) file(name, kind string, der []byte) string {
	d.t.Helper()
	path := filepath.Join(d.t.TempDir(), name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return path
}

// securedBy is a Cluster whose endpoints' certificates are checked by the provider.
func securedBy(c *tlsv3.UpstreamTlsContext, sans ...*matcherv3.StringMatcher) *clusterv3.Cluster {
	c.CommonTlsContext = &tlsv3.CommonTlsContext{ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{
		ValidationContext: &tlsv3.CertificateValidationContext{
			CaCertificateProviderInstance: &tlsv3.CertificateProviderPluginInstance{InstanceName: "roots"},
			MatchSubjectAltNames:          sans,
		},
	}}
	return &clusterv3.Cluster{TransportSocket: &corev3.TransportSocket{
		Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: packed(c)},
	}}
}

// tlsUpstream is a gRPC server over TLS that notes how it is spoken to.
type tlsUpstream struct {
	net.Listener

	mu     sync.Mutex
	first  []byte // of each connection
	hellos []*tls.ClientHelloInfo
	conns  []net.Conn
}

// secureUpstream listens where the first upstream of a duel would, in its place.
func secureUpstream(d *duel) *tlsUpstream {
	own, err := certificate()
	if err != nil {
		d.t.Fatal(err)
	}
	d.net.all[0].want = false
	d.leaves[0].localities = d.leaves[0].localities[:1]
	l, err := net.Listen("tcp", d.net.all[0].address)
	if err != nil {
		d.t.Fatal(err)
	}
	u := &tlsUpstream{Listener: l}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.hellos = append(u.hellos, h)
			return nil, nil //nolint:nilnil // the config is as it is
		},
	})))
	d.t.Cleanup(func() {
		u.hangUp() // Stop would wait for lbd, which says nothing after the handshake
		server.Stop()
	})
	go func() { _ = server.Serve(u) }() // ends with the server
	return u
}

func (u *tlsUpstream) Accept() (net.Conn, error) {
	c, err := u.Listener.Accept()
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.conns = append(u.conns, c)
	return &peekedConn{Conn: c, from: bufio.NewReader(c), of: u}, nil
}

func (u *tlsUpstream) hangUp() {
	_ = u.Close()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.conns {
		_ = c.Close()
	}
}

// speaks tells what the last client begins with.
func (u *tlsUpstream) speaks() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case len(u.first) == 0:
		return "says nothing"
	case u.first[len(u.first)-1] == 0x16: // a handshake record
		return "speaks TLS"
	}
	return "speaks plain text"
}

func (u *tlsUpstream) lastHello() *tls.ClientHelloInfo {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hellos[len(u.hellos)-1]
}

// peekedConn notes the first byte that comes.
type peekedConn struct {
	net.Conn

	from *bufio.Reader
	of   *tlsUpstream
	once sync.Once
}

func (c *peekedConn) Read(p []byte) (int, error) {
	c.once.Do(func() {
		if b, err := c.from.Peek(1); err == nil {
			c.of.mu.Lock()
			defer c.of.mu.Unlock()
			c.of.first = append(c.of.first, b[0])
		}
	})
	return c.from.Read(p)
}
