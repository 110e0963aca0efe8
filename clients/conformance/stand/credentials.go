package stand

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

const (
	caFile     = "ca.pem"
	certFile   = "tls.pem"
	keyFile    = "key.pem"
	tokensFile = "tokens.yaml"
)

// The tokens of the daemon, apart from those that SetTokens adds: scenarios.json has them.
const (
	validToken     = "lbd_valid_token_of_a_test"              //nolint:gosec // of the daemon of a test only
	expiredToken   = "lbd_expired_token_of_a_test"            //nolint:gosec // of the daemon of a test only
	elsewhereToken = "lbd_token_of_a_test_for_other_clusters" //nolint:gosec // of the daemon of a test only
)

// Credentials are the certificate of lbd, and one for its name that LBD_CA does not sign.
type Credentials struct {
	CA    string // a PEM file
	Other tls.Certificate
}

// WriteCredentials writes what a daemon in the directory starts with; valid are further tokens.
func WriteCredentials(dir string, valid ...string) (Credentials, error) {
	ca, key, err := certificate(nil, nil, "lbd tests")
	if err != nil {
		return Credentials{}, err
	}
	issuer, err := x509.ParseCertificate(ca)
	if err != nil {
		return Credentials{}, err
	}
	own, ownKey, err := certificate(issuer, key, "localhost")
	if err != nil {
		return Credentials{}, err
	}
	other, otherKey, err := certificate(nil, nil, "localhost")
	if err != nil {
		return Credentials{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(ownKey)
	if err != nil {
		return Credentials{}, err
	}
	c := Credentials{
		CA:    filepath.Join(dir, caFile),
		Other: tls.Certificate{Certificate: [][]byte{other}, PrivateKey: otherKey},
	}
	for name, block := range map[string]*pem.Block{
		caFile: {Type: "CERTIFICATE", Bytes: ca}, certFile: {Type: "CERTIFICATE", Bytes: own}, keyFile: {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return Credentials{}, err
		}
	}
	return c, SetTokens(dir, valid...)
}

// certificate makes one for a name, and for signing if there is no issuer.
func certificate(issuer *x509.Certificate, issuerKey *ecdsa.PrivateKey, name string) ([]byte, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: issuer == nil, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if issuer == nil {
		c.KeyUsage |= x509.KeyUsageCertSign
		issuer, issuerKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, issuer, &key.PublicKey, issuerKey)
	return der, key, err
}

// SetTokens replaces the identity file of the daemon in the directory: its usual tokens,
// and these, which are valid.
func SetTokens(dir string, valid ...string) error {
	var text bytes.Buffer
	text.WriteString("tokens:\n")
	entry := func(token, rest string) {
		sum := sha256.Sum256([]byte(token))
		fmt.Fprintf(&text, "- {name: %.8s, sha256: %q, roles: [pick, read]%s}\n", hex.EncodeToString(sum[:]), hex.EncodeToString(sum[:]), rest)
	}
	entry(validToken, "")
	entry(expiredToken, ", expires: 2020-01-01T00:00:00Z")
	entry(elsewhereToken, ", clusters: [elsewhere]")
	for _, token := range valid {
		entry(token, "")
	}
	fresh := filepath.Join(dir, tokensFile+".new")
	if err := os.WriteFile(fresh, text.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(dir, tokensFile))
}
