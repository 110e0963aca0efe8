package listen

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/lbd-dev/lbd/service/access"
)

// TLSFiles are the files of listeners with TLS, in PEM.
type TLSFiles struct {
	Certificate, Key string
	// ClientCA has the roots of client certificates; if empty, no client
	// certificate is requested.
	ClientCA string
}

// Open reads the files, and reads them again when they change. While they are
// invalid, the last valid version stays in use.
func (f TLSFiles) Open(logger *slog.Logger, transient func(error) bool) (*access.Reloading[*tls.Config], error) {
	return access.Reload(access.ReloadOptions[*tls.Config]{
		Name:      "certificates of the listeners",
		Read:      f.read,
		Load:      func(contents [][]byte) (*tls.Config, error) { return f.config(contents, time.Now()) },
		Logger:    logger,
		Transient: transient,
	})
}

// ServerConfig returns the configuration of a TLS listener, which uses the files'
// latest valid version for each handshake.
func ServerConfig(current func() *tls.Config) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current(), nil },
	}
}

func (f TLSFiles) read() (contents [][]byte, err error) {
	certificate, err := os.ReadFile(f.Certificate)
	if err != nil {
		return nil, err
	}
	key, err := access.SecretFile(f.Key).Read()
	if err != nil {
		return nil, err
	}
	contents = [][]byte{certificate, key}
	if f.ClientCA != "" {
		ca, err := os.ReadFile(f.ClientCA)
		if err != nil {
			return nil, err
		}
		contents = append(contents, ca)
	}
	return contents, nil
}

func (f TLSFiles) config(contents [][]byte, now time.Time) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w", f.Certificate, f.Key, err)
	}
	if end := pair.Leaf.NotAfter; now.After(end) {
		return nil, fmt.Errorf("%s: the certificate expired at %s", f.Certificate, end.UTC().Format(time.RFC3339))
	}
	c := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{"h2", "http/1.1"},
	}
	if f.ClientCA != "" {
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(contents[2]) {
			return nil, fmt.Errorf("%s: %w", f.ClientCA, errors.New("no certificate in PEM"))
		}
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return c, nil
}
