package bootstrap

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// CertificateProvider reads certificates from files: gRPC's file_watcher plugin
// (gRFC A29). Its methods are safe for concurrent use. It has no goroutine: a call reads the
// files again if its data is older than refresh_interval.
type CertificateProvider struct {
	// fixed after Parse
	certificateFile, privateKeyFile string // both or none
	caCertificateFile               string // may be empty
	refresh                         time.Duration
	logger                          *slog.Logger

	// guarded by mu
	mu       sync.Mutex
	identity material[[]tls.Certificate]
	roots    material[*x509.CertPool]
}

// Instances returns a function that reports whether an instance has a certificate provider,
// and whether that has roots and an identity. It returns nil for a nil Config.
func (c *Config) Instances() func(instance string) (roots, identity, ok bool) {
	if c == nil {
		return nil
	}
	return func(instance string) (roots, identity, ok bool) {
		p, ok := c.CertificateProviders[instance]
		return ok && p.caCertificateFile != "", ok && p.certificateFile != "", ok
	}
}

// Certificates returns the certificates of an instance's provider. A missing provider is an
// error.
func (c *Config) Certificates(instance string) (identity []tls.Certificate, roots *x509.CertPool, err error) {
	if c == nil || c.CertificateProviders[instance] == nil {
		return nil, nil, errors.New("the bootstrap does not have it")
	}
	return c.CertificateProviders[instance].Certificates()
}

// Certificates returns the identity and the trusted roots, each nil if no file is
// configured. They must not be changed.
//
// If a file is missing or invalid, the last good version is returned, and the error is
// logged once; without one, the error is returned. The next call reads the file again.
func (p *CertificateProvider) Certificates() (identity []tls.Certificate, roots *x509.CertPool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	var identityErr, rootsErr error
	if p.certificateFile != "" {
		identity, identityErr = p.identity.get(p, now, p.readIdentity)
	}
	if p.caCertificateFile != "" {
		roots, rootsErr = p.roots.get(p, now, p.readRoots)
	}
	if err = errors.Join(identityErr, rootsErr); err != nil {
		return nil, nil, err
	}
	return identity, roots, nil
}

// String names the files.
func (p *CertificateProvider) String() string {
	return fmt.Sprintf("certificate_file %q, private_key_file %q, ca_certificate_file %q, refresh_interval %v",
		p.certificateFile, p.privateKeyFile, p.caCertificateFile, p.refresh)
}

func (p *CertificateProvider) readIdentity() ([]tls.Certificate, error) {
	certificate, err := readFile(p.certificateFile)
	if err != nil {
		return nil, fmt.Errorf("certificate_file %s: %w", p.certificateFile, err)
	}
	key, err := readFile(p.privateKeyFile)
	if err != nil {
		return nil, fmt.Errorf("private_key_file %s: %w", p.privateKeyFile, err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("certificate_file %s with private_key_file %s: %w", p.certificateFile, p.privateKeyFile, err)
	}
	return []tls.Certificate{pair}, nil
}

func (p *CertificateProvider) readRoots() (*x509.CertPool, error) {
	pem, err := readFile(p.caCertificateFile)
	if err != nil {
		return nil, fmt.Errorf("ca_certificate_file %s: %w", p.caCertificateFile, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca_certificate_file %s: has no certificate in PEM", p.caCertificateFile)
	}
	return pool, nil
}

// material is the last valid content of a file.
type material[T any] struct {
	value  T
	valid  bool
	at     time.Time
	logged string // the last logged error
}

// get returns the value. It reads the file again if the value is too old.
func (m *material[T]) get(p *CertificateProvider, now time.Time, read func() (T, error)) (T, error) {
	if m.valid && now.Sub(m.at) < p.refresh {
		return m.value, nil
	}
	value, err := read()
	switch {
	case err == nil:
		*m = material[T]{value: value, valid: true, at: now}
	case !m.valid:
		return value, err
	case err.Error() != m.logged:
		m.logged = err.Error()
		p.logger.Error("cannot read a certificate again: the last good version stays in use", "error", err, "read", m.at)
	}
	return m.value, nil
}
