package listen

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
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
// invalid, or the certificate has expired or is not yet valid, the last valid version stays in use.
//
// Such a certificate is no error when lbd starts: other listeners do not need it.
func (f TLSFiles) Open(logger *slog.Logger, transient func(error) bool) (*access.Reloading[*tls.Config], error) {
	started := false
	return access.Reload(access.ReloadOptions[*tls.Config]{
		Name: "certificates of the listeners",
		Read: f.read,
		Load: func(contents [][]byte) (*tls.Config, error) {
			c, err := f.config(contents)
			if err == nil && started {
				err = f.Invalid(c, time.Now())
			}
			started = true
			return c, err
		},
		Invalid:   f.Invalid,
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

func (f TLSFiles) read() ([][]byte, error) {
	certificate, err1 := access.ReadFile(f.Certificate)
	key, err2 := access.ReadSecret(f.Key)
	contents := [][]byte{certificate, key}
	var err3 error
	if f.ClientCA != "" {
		var ca []byte
		ca, err3 = access.ReadFile(f.ClientCA)
		contents = append(contents, ca)
	}
	return contents, cmp.Or(err1, err2, err3)
}

// Invalid returns an error if the certificate of a configuration has expired, or an
// [access.EarlyError] if it is not yet valid.
func (f TLSFiles) Invalid(c *tls.Config, now time.Time) error {
	leaf := c.Certificates[0].Leaf
	if now.After(leaf.NotAfter) {
		return fmt.Errorf("%s: the certificate expired at %s", f.Certificate, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if now.Before(leaf.NotBefore) {
		return &access.EarlyError{Name: f.Certificate + ": the certificate", At: leaf.NotBefore}
	}
	return nil
}

func (f TLSFiles) config(contents [][]byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w", f.Certificate, f.Key, err)
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
