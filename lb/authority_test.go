package lb

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	chain       [][]byte // of an intermediate authority
}

func newAuthority(t testing.TB, name string) *authority {
	return (*authority)(nil).authority(t, name)
}

// authority returns one that a signed; nil signs itself.
func (a *authority) authority(t testing.TB, name string) *authority {
	t.Helper()
	own := a.issue(t, func(c *x509.Certificate) {
		c.Subject, c.DNSNames, c.ExtKeyUsage = pkix.Name{CommonName: name}, nil, nil
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	out := &authority{certificate: own.Leaf, key: own.PrivateKey.(*ecdsa.PrivateKey)} //nolint:errcheck // issue makes no other
	if a != nil {
		out.chain = [][]byte{own.Leaf.Raw}
	}
	return out
}

// pool is the authority as roots.
func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.certificate)
	return p
}

// issue signs a certificate of orders.example.
func (a *authority) issue(t testing.TB, change ...func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noError(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "not looked at"}, DNSNames: []string{"orders.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, f := range change {
		f(c)
	}
	parent, signer, chain := c, key, [][]byte(nil)
	if a != nil {
		parent, signer, chain = a.certificate, a.key, a.chain
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	noError(t, err)
	leaf, err := x509.ParseCertificate(der)
	noError(t, err)
	return tls.Certificate{Certificate: append([][]byte{der}, chain...), PrivateKey: key, Leaf: leaf}
}

// provider is a certificate provider whose certificates the test changes.
type provider struct {
	mu       sync.Mutex
	identity []tls.Certificate
	roots    *x509.CertPool
	err      error
}

func (p *provider) set(f func(p *provider)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p)
}

// providers are Certificates by instance.
type providers map[string]*provider

func (ps providers) Certificates(instance string) ([]tls.Certificate, *x509.CertPool, error) {
	p := ps[instance]
	if p == nil {
		return nil, nil, errors.New("there is none")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.identity, p.roots, p.err
}

// upstream is a server of TLS on loopback.
type upstream struct {
	address   string
	config    func() *tls.Config
	handshook chan tls.ConnectionState // of each handshake that succeeded
	conns     chan net.Conn            // of the same, still open
}

// newUpstream serves until the test ends. Each connection is read until the
// client ends it.
func newUpstream(t *testing.T, config func() *tls.Config) *upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	u := &upstream{
		address: l.Addr().String(), config: config,
		handshook: make(chan tls.ConnectionState, 256), conns: make(chan net.Conn, 256),
	}
	var running sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	running.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, raw)
			mu.Unlock()
			running.Go(func() { u.serve(raw) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return u
}

func (u *upstream) serve(raw net.Conn) {
	defer raw.Close() //nolint:errcheck // the client has closed it, or the test is over
	conn := tls.Server(raw, u.config())
	if conn.Handshake() != nil {
		return
	}
	u.handshook <- conn.ConnectionState()
	u.conns <- conn
	_, _ = io.Copy(io.Discard, conn)
}
