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
// (gRFC A29). Its methods may be called at the same time.
//
// It has no goroutine: files are read again when certificates are asked for and
// what is at hand is older than refresh_interval.
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

// Instances returns a function that describes the certificate provider of an
// instance: whether there is one, whether it has roots to trust and a certificate
// to show. A nil Config, which is that of no bootstrap, returns nil.
func (c *Config) Instances() func(instance string) (roots, identity, ok bool) {
	if c == nil {
		return nil
	}
	return func(instance string) (roots, identity, ok bool) {
		p, ok := c.CertificateProviders[instance]
		if !ok {
			return false, false, false
		}
		return p.caCertificateFile != "", p.certificateFile != "", true
	}
}

// Certificates returns what the provider of an instance has now, as its own
// Certificates does. A provider that there is not is an error.
func (c *Config) Certificates(instance string) (identity []tls.Certificate, roots *x509.CertPool, err error) {
	if c == nil || c.CertificateProviders[instance] == nil {
		return nil, nil, errors.New("the bootstrap does not have it")
	}
	return c.CertificateProviders[instance].Certificates()
}

// Certificates returns the certificate to show and the roots to trust, each nil if
// no file is configured for it. They must not be changed.
//
// Files that cannot be read, or are no good, are read again at the next call. While
// there is something good from before, that is returned, and the logger is told
// once; else the error names the file.
func (p *CertificateProvider) Certificates() (identity []tls.Certificate, roots *x509.CertPool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.certificateFile != "" {
		var failed error
		identity, failed = p.identity.get(p, now, p.readIdentity)
		err = errors.Join(err, failed)
	}
	if p.caCertificateFile != "" {
		var failed error
		roots, failed = p.roots.get(p, now, p.readRoots)
		err = errors.Join(err, failed)
	}
	if err != nil {
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
		return nil, fmt.Errorf("ca_certificate_file %s: holds no certificate in PEM", p.caCertificateFile)
	}
	return pool, nil
}

// material is what was last read, and is good.
type material[T any] struct {
	value T
	good  bool
	at    time.Time
	told  string // the error that the logger knows of
}

// get returns the value, read anew where it is too old.
func (m *material[T]) get(p *CertificateProvider, now time.Time, read func() (T, error)) (T, error) {
	if m.good && now.Sub(m.at) < p.refresh {
		return m.value, nil
	}
	value, err := read()
	switch {
	case err == nil:
		*m = material[T]{value: value, good: true, at: now}
	case !m.good:
		return value, err
	case err.Error() != m.told:
		m.told = err.Error()
		p.logger.Error("cannot read a certificate again: what was read before stays in use", "error", err, "read", m.at)
	}
	return m.value, nil
}
