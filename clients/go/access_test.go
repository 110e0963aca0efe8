package lbdclient_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

// TestTokens is about a listener with TLS and tokens.
func TestTokens(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(path(name)+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path(name)+".new", path(name)); err != nil {
			t.Fatal(err)
		}
	}
	permit := func(tokens ...string) {
		var list strings.Builder
		list.WriteString("tokens:\n")
		for i, token := range tokens {
			list.WriteString(fmt.Sprintf("- {name: %q, sha256: \"%x\", roles: [pick, read], clusters: [orders]}\n", fmt.Sprint(i), sha256.Sum256([]byte(token))))
		}
		write("identities.yaml", list.String())
	}
	first, second := "lbd_first"+rand.Text(), "lbd_second"+rand.Text()
	certificate, key := authority(t)
	write("cert.pem", certificate)
	write("key.pem", key)
	permit(first)
	address := refused(t)
	d := lbdtest.Start(t, "--listen="+address+",tls", "--tokens="+path("identities.yaml"), "--tls-cert="+path("cert.pem"), "--tls-key="+path("key.pem"))
	want := upstream(t, nil)
	d.Push(t, "orders", "", want)
	d.Push(t, "other", "", want)

	config := lbdclient.Config{Address: "https://" + address, CA: path("cert.pem"), TokenFile: path("token"), MaxAge: 50 * time.Millisecond}
	write("token", first+"\n")
	_, client := connect(t, config)
	mustGet(t, client, "http://orders.lbd/")
	if _, _, err := get(client, "http://other.lbd/"); !errors.Is(err, lbdclient.ErrPermissionDenied) && !errors.Is(err, lbdclient.ErrUnknownCluster) {
		t.Errorf("cluster of another caller: %v", err)
	}

	picking := config
	picking.Mode = lbdclient.ModePick
	_, picker := connect(t, picking)
	mustGet(t, picker, "http://orders.lbd/")
	permit(second)
	lbdtest.Until(t, "the token is rejected", func() bool {
		_, _, err := get(picker, "http://orders.lbd/")
		return errors.Is(err, lbdclient.ErrPermissionDenied)
	})
	mustGet(t, client, "http://orders.lbd/") // with the batch
	write("token", second)
	mustGet(t, picker, "http://orders.lbd/")
	moved := upstream(t, nil)
	d.Push(t, "orders", "", moved)
	lbdtest.Until(t, "the batch is fetched with the new token", func() bool { body, _ := getBody(client); return body == moved })

	config.CA = ""
	if _, client := connect(t, config); client != nil {
		if _, _, err := get(client, "http://orders.lbd/"); !errors.Is(err, lbdclient.ErrUnavailable) {
			t.Errorf("a certificate of no known authority: %v", err)
		}
	}
}

// authority returns a certificate for 127.0.0.1 that signs itself, and its key.
func authority(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"orders.lbd"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
}

func TestInvalidSettings(t *testing.T) {
	for _, config := range []lbdclient.Config{
		{Address: "localhost:8080"},
		{Address: "ftp://localhost"},
		{Address: "http://localhost/lbd"},
		{Mode: "often"},
		{CA: "/nonexistent"},
		{CA: "access_test.go"},
		{MaxAge: -1},
	} {
		if _, err := lbdclient.New(config); err == nil {
			t.Errorf("no error for %+v", config)
		}
	}
}
