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
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

// write replaces a file.
func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestTokens is about a listener with TLS and tokens.
func TestTokens(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	permit := func(tokens ...string) {
		var list strings.Builder
		list.WriteString("tokens:\n")
		for i, token := range tokens {
			list.WriteString(fmt.Sprintf("- {name: %q, sha256: \"%x\", roles: [pick, read], clusters: [orders]}\n", fmt.Sprint(i), sha256.Sum256([]byte(token))))
		}
		write(t, path("identities.yaml"), list.String())
	}
	first, second := "lbd_first"+rand.Text(), "lbd_second"+rand.Text()
	certificate, key := authority(t)
	write(t, path("cert.pem"), certificate)
	write(t, path("key.pem"), key)
	permit(first)
	address := refused(t)
	d := lbdtest.Start(t, "--listen="+address+",tls", "--tokens="+path("identities.yaml"), "--tls-cert="+path("cert.pem"), "--tls-key="+path("key.pem"))
	want := upstream(t, nil)
	d.Push(t, "orders", "", want)
	d.Push(t, "other", "", want)

	config := lbdclient.Config{Address: "https://" + address, CA: path("cert.pem"), TokenFile: path("token"), MaxAge: 50 * time.Millisecond}
	write(t, path("token"), first+"\n")
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
	write(t, path("token"), second)
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
		{Address: "http://localhost?x"},
		{Address: "http://lbd:secret@localhost:8080"},
		{Address: "http://lbd:secret%@localhost:8080"},
		{Mode: "often"},
		{CA: "/nonexistent"},
		{CA: "access_test.go"},
		{MaxAge: -1},
	} {
		if _, err := lbdclient.New(config); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: error %v", config, err)
		}
	}
}

// TestTokenOfConfig has another token in the environment.
func TestTokenOfConfig(t *testing.T) {
	t.Setenv("LBD_TOKEN", "environment")
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "file")
	sent := make(chan string, 1)
	address := standIn(t, func(w http.ResponseWriter, r *http.Request) {
		sent <- r.Header.Get("Authorization")
		fmt.Fprint(w, `{"address":"127.0.0.1:1"}`)
	})
	for _, test := range []struct {
		config lbdclient.Config
		want   string
	}{
		{lbdclient.Config{}, "environment"},
		{lbdclient.Config{TokenFile: file}, "file"},
		{lbdclient.Config{Token: "config"}, "config"},
	} {
		test.config.Address, test.config.Mode = address, lbdclient.ModePick
		client, _ := connect(t, test.config)
		if _, err := client.Pick(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if got := <-sent; got != "Bearer "+test.want {
			t.Errorf("%q, want the token %q", got, test.want)
		}
	}
}
