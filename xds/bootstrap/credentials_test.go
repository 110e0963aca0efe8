package bootstrap

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// certificateAuthority is one of the tests'.
type certificateAuthority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newCertificateAuthority(t *testing.T, name string) certificateAuthority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	noError(t, err)
	certificate, err := x509.ParseCertificate(der)
	noError(t, err)
	return certificateAuthority{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noError(t, err)
	return key
}

// issue makes a certificate for localhost, as PEM.
func (a certificateAuthority) issue(t *testing.T, name string) (certificate, key []byte) {
	t.Helper()
	private := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &private.PublicKey, a.key)
	noError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(private)
	noError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

func (a certificateAuthority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// write lays the authority's files, and a certificate's, where a bootstrap names
// them.
func (a certificateAuthority) write(t *testing.T, dir, name string) {
	t.Helper()
	certificate, key := a.issue(t, name)
	for file, content := range map[string][]byte{"ca.pem": a.pem, "cert.pem": certificate, "key.pem": key} {
		lay(t, filepath.Join(dir, file), content)
	}
}

func lay(t *testing.T, file string, content []byte) {
	t.Helper()
	noError(t, os.WriteFile(file, content, 0o600))
}

// management is a gRPC server that answers any call with who called and what
// authorization it sent, after a megabyte of filler for each that was asked for.
type management struct {
	uri    string
	config atomic.Pointer[tls.Config]
}

func startManagement(t *testing.T, network, address string, options ...grpc.ServerOption) *management {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), network, address)
	noError(t, err)
	m := &management{uri: "unix:" + address}
	if network == "tcp" {
		_, port, err := net.SplitHostPort(lis.Addr().String())
		noError(t, err)
		m.uri = "localhost:" + port
	}
	s := grpc.NewServer(append(options, grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		asked := &wrapperspb.UInt32Value{}
		if err := stream.RecvMsg(asked); err != nil {
			return err
		}
		answer := fmt.Sprintf("%s; %v", caller(stream.Context()), metadata.ValueFromIncomingContext(stream.Context(), "authorization"))
		return stream.SendMsg(wrapperspb.String(answer + strings.Repeat(" ", int(asked.GetValue())<<20)))
	}))...)
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return m
}

func caller(ctx context.Context) string {
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	switch {
	case !ok:
		return "no TLS"
	case len(info.State.PeerCertificates) == 0:
		return "unknown"
	default:
		return info.State.PeerCertificates[0].Subject.CommonName
	}
}

// startTLS starts a management server with TLS.
func startTLS(t *testing.T) *management {
	t.Helper()
	m := &management{}
	m.uri = startManagement(t, "tcp", "localhost:0", grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return m.config.Load(), nil },
	}))).uri
	return m
}

// present is the server's own rotation: a certificate of a, and trust in clients of
// a, where it asks for them.
func (m *management) present(t *testing.T, a certificateAuthority, ask tls.ClientAuthType) {
	t.Helper()
	certificate, key := a.issue(t, "management")
	pair, err := tls.X509KeyPair(certificate, key)
	noError(t, err)
	m.config.Store(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: a.pool(), ClientAuth: ask, NextProtos: []string{"h2"},
	})
}

// call makes a new connection, and one call on it.
func call(t *testing.T, s Server, megabytes uint32) (answer string, err error) {
	t.Helper()
	cc, err := s.Dial()
	noError(t, err)
	defer func() {
		if err := cc.Close(); err != nil {
			t.Error(err)
		}
	}()
	reply := &wrapperspb.StringValue{}
	err = cc.Invoke(t.Context(), "/test/call", wrapperspb.UInt32(megabytes), reply)
	return strings.TrimSpace(reply.GetValue()), err
}

func wantAnswer(t *testing.T, s Server, want string) {
	t.Helper()
	if got, err := call(t, s, 0); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func wantUnavailable(t *testing.T, s Server, why string) {
	t.Helper()
	if _, err := call(t, s, 0); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want Unavailable: %s", err, why)
	}
}

const insecureCreds = `"channel_creds": [{"type": "insecure"}]`

// tlsCreds are credentials with the files of a directory, read at each connection.
func tlsCreds(dir string, files ...string) string {
	config := []string{`"refresh_interval": "0.000000001s"`}
	for _, f := range files {
		names := map[string]string{"ca.pem": "ca_certificate_file", "cert.pem": "certificate_file", "key.pem": "private_key_file"}
		config = append(config, quote(names[f])+": "+quote(filepath.Join(dir, f)))
	}
	return `"channel_creds": [{"type": "tls", "config": {` + strings.Join(config, ", ") + `}}]`
}

func TestInsecure(t *testing.T) {
	wantAnswer(t, server(t, startManagement(t, "tcp", "localhost:0").uri, insecureCreds), "no TLS; []")
	wantAnswer(t, server(t, startManagement(t, "unix", filepath.Join(t.TempDir(), "xds")).uri, insecureCreds), "no TLS; []")
}

func TestLargeMessages(t *testing.T) {
	s := server(t, startManagement(t, "tcp", "localhost:0").uri, insecureCreds)
	if _, err := call(t, s, 6); err != nil { // grpc's default is 4
		t.Error(err)
	}
}

func TestRotatedCertificates(t *testing.T) {
	dir := t.TempDir()
	before, after := newCertificateAuthority(t, "before"), newCertificateAuthority(t, "after")
	m := startTLS(t)
	m.present(t, before, tls.RequireAndVerifyClientCert)
	before.write(t, dir, "old")
	s := server(t, m.uri, tlsCreds(dir, "ca.pem", "cert.pem", "key.pem"))
	wantAnswer(t, s, "old; []")

	m.present(t, after, tls.RequireAndVerifyClientCert)
	wantUnavailable(t, s, "certificate signed by unknown authority")
	after.write(t, dir, "new")
	wantAnswer(t, s, "new; []")
}

func TestTLSWithoutClientCertificate(t *testing.T) {
	dir := t.TempDir()
	ca := newCertificateAuthority(t, "ca")
	m := startTLS(t)
	m.present(t, ca, tls.VerifyClientCertIfGiven)
	ca.write(t, dir, "unused")
	wantAnswer(t, server(t, m.uri, tlsCreds(dir, "ca.pem")), "unknown; []")
	wantUnavailable(t, server(t, m.uri, tlsCreds(dir)), "certificate signed by unknown authority") // the system's roots
	wantUnavailable(t, server(t, m.uri, insecureCreds), "")
	m.present(t, ca, tls.RequireAndVerifyClientCert)
	if _, err := call(t, server(t, m.uri, tlsCreds(dir, "ca.pem")), 0); status.Code(err) != codes.Unavailable {
		t.Errorf("without the certificate that is asked for: %v", err)
	}
}

// TestCertificatesThatComeLater starts with files that are missing or bad.
func TestCertificatesThatComeLater(t *testing.T) {
	dir := t.TempDir()
	ca := newCertificateAuthority(t, "ca")
	m := startTLS(t)
	m.present(t, ca, tls.RequireAndVerifyClientCert)
	s := server(t, m.uri, tlsCreds(dir, "ca.pem", "cert.pem", "key.pem"))
	wantUnavailable(t, s, "certificate_file "+filepath.Join(dir, "cert.pem")+": no such file or directory")
	wantUnavailable(t, s, "ca_certificate_file "+filepath.Join(dir, "ca.pem")+": no such file or directory")

	ca.write(t, dir, "late")
	_, otherKey := ca.issue(t, "other")
	key, err := os.ReadFile(filepath.Join(dir, "key.pem"))
	noError(t, err)
	lay(t, filepath.Join(dir, "key.pem"), otherKey)
	lay(t, filepath.Join(dir, "ca.pem"), []byte("not PEM"))
	wantUnavailable(t, s, "private key does not match public key")
	lay(t, filepath.Join(dir, "key.pem"), key)
	wantUnavailable(t, s, "ca_certificate_file "+filepath.Join(dir, "ca.pem")+": has no certificate in PEM")
	lay(t, filepath.Join(dir, "ca.pem"), ca.pem)
	wantAnswer(t, s, "late; []")
}

func TestToken(t *testing.T) {
	dir := t.TempDir()
	ca := newCertificateAuthority(t, "ca")
	ca.write(t, dir, "unused")
	m := startTLS(t)
	m.present(t, ca, tls.NoClientCert)
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	token := part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"exp":%d}`, time.Now().Add(time.Hour).Unix())) + "." + part("signature")
	file := filepath.Join(dir, "token")
	s := server(t, m.uri, tlsCreds(dir, "ca.pem")+`, "call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": `+quote(file)+`}}]`)
	wantUnavailable(t, s, "no such file or directory")

	lay(t, file, []byte(token))
	s = server(t, m.uri, tlsCreds(dir, "ca.pem")+`, "call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": `+quote(file)+`}}]`)
	wantAnswer(t, s, "unknown; [Bearer "+token+"]")
}
