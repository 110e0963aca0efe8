package parity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
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
		h := secureUpstream(d, &tlsv3.UpstreamTlsContext{})
		d.wait(d.oneAsk, "u0")
		d.leaves[0].asked = securedBy(&tlsv3.UpstreamTlsContext{}, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "orders.example"}})
		d.serve()
		return h.see(func() string { return fmt.Sprintf("makes %d connections", len(h.speaks)) })
	}, secured),
	byDuel("ALPN to endpoints", "offers h2", "offers h2 http/1.1", func(d *duel) func() string {
		h := secureUpstream(d, &tlsv3.UpstreamTlsContext{})
		d.wait(d.oneAsk, "u0")
		return h.see(func() string { return "offers " + strings.Join(h.hello.SupportedProtos, " ") })
	}, secured),
	byDuel("security of a cluster without xDS credentials", "speaks plain text", "speaks TLS", func(d *duel) func() string {
		h := secureUpstream(d, &tlsv3.UpstreamTlsContext{})
		return h.see(func() string { return "speaks " + strings.Join(slices.Compact(slices.Clone(h.speaks)), ", then ") })
	}, secured, func(d *duel) { d.creds = insecure.NewCredentials() }),
	byDuel("`system_root_certs`, `sni`, `auto_host_sni`, `auto_sni_san_validation`", `sends the name ""`, `sends the name "orders.example"`, func(d *duel) func() string {
		h := secureUpstream(d, &tlsv3.UpstreamTlsContext{Sni: "orders.example"})
		d.wait(d.oneAsk, "u0")
		return h.see(func() string { return fmt.Sprintf("sends the name %q", h.hello.ServerName) })
	}, secured),
	byDuel("a certificate provider without roots", "trusts the system's roots", "trusts none", func(d *duel) func() string {
		secureUpstream(d, &tlsv3.UpstreamTlsContext{})
		return d.failsWith("x509: certificate signed by unknown authority", "trusts the system's roots", // the system has not signed it
			`certificate provider "roots" has no roots`, "trusts none")
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
	must(d.t, err)
	d.provider = fmt.Sprintf(`"ca_certificate_file": %q`, d.file("CERTIFICATE", own.Certificate[0]))
	if d.creds, err = xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()}); err != nil {
		d.t.Fatal(err)
	}
}

// rootless gives the provider "roots" a certificate of its own instead of roots.
func rootless(d *duel) {
	own, err := certificate()
	must(d.t, err)
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	must(d.t, err)
	d.provider = fmt.Sprintf(`"certificate_file": %q, "private_key_file": %q`, d.file("CERTIFICATE", own.Certificate[0]), d.file("PRIVATE KEY", key))
}

// file writes a PEM file.
func (d *duel) file(kind string, der []byte) string {
	d.t.Helper()
	path := filepath.Join(d.files, kind+".pem")
	must(d.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
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

// handshakes is TLS of a server that records the handshakes.
type handshakes struct {
	credentials.TransportCredentials

	mu     sync.Mutex
	speaks []string // by connection
	hello  *tls.ClientHelloInfo
}

func (h *handshakes) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ServerHandshake(c)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		h.speaks = append(h.speaks, "plain text")
	} else {
		h.speaks = append(h.speaks, "TLS")
	}
	return conn, info, err
}

// see reads what was recorded.
func (h *handshakes) see(read func() string) func() string {
	return func() string {
		h.mu.Lock()
		defer h.mu.Unlock()
		return read()
	}
}

// secureUpstream has the first upstream of a duel speak TLS, and serves the security of the
// cluster.
func secureUpstream(d *duel, security *tlsv3.UpstreamTlsContext) *handshakes {
	own, err := certificate()
	must(d.t, err)
	h := &handshakes{}
	h.TransportCredentials = credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.hello = hello
			return nil, nil //nolint:nilnil // the config is as it is
		},
	})
	u := d.net.all[0]
	u.server = grpc.NewServer(grpc.Creds(h))
	d.t.Cleanup(func() {
		u.stop() // Stop would wait for lbd, which sends nothing after the handshake
		u.server.Stop()
	})
	d.leaves[0].localities = d.leaves[0].localities[:1]
	d.leaves[0].asked = securedBy(security)
	d.serve()
	return h
}
