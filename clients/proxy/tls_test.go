package main

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/clients/conformance/stand"
)

// credentials writes a certificate for localhost and its key, and returns their files, and that of the authority.
func credentials(t testing.TB) (chain, key, ca string) {
	t.Helper()
	dir := t.TempDir()
	c, err := stand.WriteCredentials(dir)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "tls.pem"), filepath.Join(dir, "key.pem"), c.CA
}

// content returns those of a file.
func content(t testing.TB, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// served returns the certificate of a listener, in PEM.
func served(t testing.TB, address string) []byte {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: conn.ConnectionState().PeerCertificates[0].Raw})
}

// TestCertificateIsReloaded: new files are used for new connections, and what is not valid never.
func TestCertificateIsReloaded(t *testing.T) {
	chain, key, _ := credentials(t)
	newChain, newKey, _ := credentials(t)
	first, second := content(t, chain), content(t, newChain)
	p := start(t, "--map=127.0.0.1:0="+push(t, upstream(t, show)), "--tls-cert="+chain, "--tls-key="+key)
	write := func(file string, content []byte) {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(chain, second) // with the key of the first
	until(t, "it is invalid", func() bool { return p.log.has("files are invalid: their last valid version stays in use") })
	if !bytes.Equal(served(t, p.mapped), first) {
		t.Error("not the last valid version")
	}
	write(key, content(t, newKey))
	until(t, "the new one is in use", func() bool { return bytes.Equal(served(t, p.mapped), second) })
	if !p.log.has(`reloaded files" files="certificates of the listeners"`) {
		t.Error("it is not logged")
	}

	c := &certificate{chain: newChain, key: newKey, log: p.proxy.log}
	if err := c.open(); err != nil {
		t.Fatal(err)
	}
	old := c.current.Load()
	write(newChain, certificateFor(t, newKey, time.Hour))
	c.check()
	if c.current.Load() != old {
		t.Error("what may be incomplete is in use")
	}
	if c.check(); c.current.Load() == old {
		t.Error("what two checks have found is not in use")
	}

	expired := certificateFor(t, newKey, -time.Hour)
	write(chain, expired)
	until(t, "it has expired", func() bool { return p.log.has(chain + ": the certificate expired at ") })
	if !bytes.Equal(served(t, p.mapped), second) {
		t.Error("not the last valid version")
	}
	p = start(t, "--map=127.0.0.1:0="+push(t, upstream(t, show)), "--tls-cert="+chain, "--tls-key="+key)
	if !bytes.Equal(served(t, p.mapped), expired) {
		t.Error("not the only version")
	}
	until(t, "the operator sees it", func() bool { return p.log.has("the certificate expired at ") })
}

// certificateFor returns one for a key that ends after a time.
func certificateFor(t testing.TB, keyFile string, end time.Duration) []byte {
	t.Helper()
	block, _ := pem.Decode(content(t, keyFile))
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(end)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.(crypto.Signer).Public(), key) //nolint:errcheck,forcetypeassert // it is one
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestHandshakes: those that are slow or fail cost a connection for --header-timeout, and others go on.
func TestHandshakes(t *testing.T) {
	chain, key, ca := credentials(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(content(t, ca))
	trusting := &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	p := start(t, "--map=127.0.0.1:0="+push(t, upstream(t, show)), "--tls-cert="+chain, "--tls-key="+key, "--header-timeout=2s")
	write := func(text string) func(net.Conn) {
		return func(conn net.Conn) { _, _ = io.WriteString(conn, text) }
	}
	bad := map[string]func(net.Conn){
		"nothing": write(""), "half a hello": write("\x16\x03\x01\x02\x00\x01"), "garbage": write(strings.Repeat("\x16", 100)), "no TLS": write("GET / HTTP/1.1\r\n\r\n"),
		"no end": func(conn net.Conn) { _ = tls.Client(&once{Conn: conn}, trusting).HandshakeContext(t.Context()) },
		"no trust": func(conn net.Conn) {
			_ = tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS12, ServerName: "localhost"}).HandshakeContext(t.Context())
		},
	}
	ended := make(chan string, len(bad))
	for name, do := range bad {
		conn, err := net.Dial("tcp", p.mapped)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
		do(conn)
		go func() {
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				name += " lasts"
			}
			ended <- name
		}()
	}
	transport := &http.Transport{TLSClientConfig: trusting, ForceAttemptHTTP2: true}
	response, body := get(t, &http.Client{Transport: transport}, "https://"+p.mapped+"/")
	if response.StatusCode != http.StatusOK || response.TLS.NegotiatedProtocol != "h2" {
		t.Errorf("%s %s", response.TLS.NegotiatedProtocol, body)
	}
	for range bad {
		if name := <-ended; strings.HasSuffix(name, " lasts") {
			t.Error(name)
		}
	}
	transport.CloseIdleConnections()
	until(t, "all connections are closed", func() bool { return p.metric(t, "connections") == "0" })
}

// once is a connection that sends what is written at first.
type once struct {
	net.Conn

	written bool
}

// Write sends p, or nothing.
func (c *once) Write(p []byte) (int, error) {
	if c.written {
		return len(p), nil
	}
	c.written = true
	return c.Conn.Write(p)
}
