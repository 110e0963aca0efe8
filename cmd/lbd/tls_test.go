package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// issuer is a certificate authority with a certificate for orders.example.
type issuer struct {
	roots  *x509.CertPool
	issued tls.Certificate
	files  map[string][]byte // both, and the key, in PEM
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noError(t, err)
	sign := func(c *x509.Certificate) []byte {
		c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		authority := &x509.Certificate{SerialNumber: c.SerialNumber, IsCA: true}
		der, err := x509.CreateCertificate(rand.Reader, c, authority, key.Public(), key)
		noError(t, err)
		return der
	}
	block := func(of string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: of, Bytes: der}) }
	ca := sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	leaf := sign(&x509.Certificate{DNSNames: []string{"orders.example"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	private, err := x509.MarshalPKCS8PrivateKey(key)
	noError(t, err)
	i := &issuer{roots: x509.NewCertPool(), files: map[string][]byte{
		"ca.pem": block("CERTIFICATE", ca), "cert.pem": block("CERTIFICATE", leaf), "key.pem": block("PRIVATE KEY", private),
	}}
	i.roots.AppendCertsFromPEM(i.files["ca.pem"])
	if i.issued, err = tls.X509KeyPair(i.files["cert.pem"], i.files["key.pem"]); err != nil {
		t.Fatal(err)
	}
	return i
}

// write replaces the files in a directory.
func (i *issuer) write(t *testing.T, dir string) {
	t.Helper()
	for name, body := range i.files {
		next := filepath.Join(dir, "next")
		writeFile(t, next, body)
		noError(t, os.Rename(next, filepath.Join(dir, name)))
	}
}

// mutual serves mutual TLS with certificates of the current issuer.
func mutual(t *testing.T, of *atomic.Pointer[issuer]) (address string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		i := of.Load()
		return &tls.Config{Certificates: []tls.Certificate{i.issued}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: i.roots}, nil
	}, Certificates: []tls.Certificate{of.Load().issued}})
	noError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var conns []net.Conn
		for {
			conn, err := l.Accept()
			if err != nil {
				break
			}
			conns = append(conns, conn)
			go func() {
				_, _ = io.Copy(io.Discard, conn) // the handshake first
				_ = conn.Close()
			}()
		}
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return l.Addr().String()
}

// securedBy returns a Cluster with TLS by a certificate provider.
func securedBy(instance, name string) string {
	return fmt.Sprintf(`{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "orders", "type": "EDS", "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": {
		"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
		"common_tls_context": {
			"tls_certificate_provider_instance": {"instance_name": %[1]q},
			"validation_context": {"ca_certificate_provider_instance": {"instance_name": %[1]q}, "match_subject_alt_names": [{"exact": %[2]q}]}}}}}`, instance, name)
}

// TestTLSToEndpoints: connections use the files of the bootstrap, also after a change of the files.
// Picks, state and events have the reason of a failure.
func TestTLSToEndpoints(t *testing.T) {
	t.Parallel()
	first, second := newIssuer(t), newIssuer(t)
	dir := t.TempDir()
	first.write(t, dir)
	var serving atomic.Pointer[issuer]
	serving.Store(first)
	upstream := mutual(t, &serving)
	provider := func(dir string) string {
		return fmt.Sprintf(`{"plugin_name": "file_watcher", "config": {"refresh_interval": "0.000000001s",
			"ca_certificate_file": "%[1]s/ca.pem", "certificate_file": "%[1]s/cert.pem", "private_key_file": "%[1]s/key.pem"}}`, dir)
	}
	bootstrap := filepath.Join(dir, "xds.json")
	if err := os.WriteFile(bootstrap, fmt.Appendf(nil, `{
		"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}],
		"certificate_providers": {"mesh": %s, "gone": %s}}`, provider(dir), provider(dir+"/gone")), 0o600); err != nil {
		t.Fatal(err)
	}
	resources := t.TempDir()
	writeFile(t, filepath.Join(resources, "a.json"), []byte(strings.Replace(securedBy("mesh", "a"), `"orders"`, `"from-file"`, 1)))
	url := "http://" + startServe(t, Config{Bootstrap: bootstrap, Resources: resources, Connect: "tcp", PickWait: patience, OnDemand: 1, OnDemandIdle: time.Hour})[0]
	push := func(config string) {
		t.Helper()
		if a := do(t, "PUT", url+"/v1/clusters/orders/config", config); a.status/100 != 2 || !strings.Contains(a.body, `"warnings":[]`) {
			t.Fatalf("push: %+v", a)
		}
	}
	refused := func(words string) {
		t.Helper()
		untilRefused(t, url, "orders", words)
		for _, path := range []string{"/v1/clusters/orders", "/v1/events?cluster=orders"} {
			expect(t, http.StatusOK, "GET", url+path, "", words)
		}
	}

	push(securedBy("mesh", "orders.example"))
	pushEndpoints(t, url, "orders", upstream)
	expectPick(t, url, "cluster=orders", upstream)
	const state = `"security":{"root":"mesh","identity":"mesh","san":["exact \"orders.example\""]}`
	expect(t, http.StatusOK, "GET", url+"/v1/clusters/orders", "", state)

	snapshot := `{"resources": [` + strings.Replace(securedBy("mesh", "a"), `"orders"`, `"from-snapshot"`, 1) + `]}`
	if a := do(t, "POST", url+"/v1/snapshot", snapshot); a.status/100 != 2 {
		t.Fatalf("push: %+v", a)
	}
	for _, name := range []string{"from-file", "from-snapshot"} {
		expect(t, http.StatusOK, "GET", url+"/v1/clusters/"+name, "", `"security":{"root":"mesh"`)
	}

	serving.Store(second)
	refused("x509: certificate signed by unknown authority")
	second.write(t, dir)
	expectPick(t, url, "cluster=orders&wait_for_ready=true", upstream)

	push(securedBy("mesh", "b.example"))
	refused(`the server's certificate is of DNS \"orders.example\": wanted exact \"b.example\"`)
	push(securedBy("gone", "orders.example"))
	refused(`certificate provider \"gone\": certificate_file ` + dir + "/gone/cert.pem: ")
}

// untilRefused waits until picks of a cluster fail for a reason.
func untilRefused(t *testing.T, url, cluster, words string) {
	t.Helper()
	eventually(t, words, func() bool {
		a := do(t, "GET", url+"/pick?cluster="+cluster+"&wait=0s", "")
		return a.status == http.StatusServiceUnavailable && strings.Contains(a.body, words)
	})
}

// TestTLSFailsClosed: a push with TLS that lbd cannot provide is rejected, unless it also sets plain
// connections. A stored one stays in use, but trusts only the roots that it names.
func TestTLSFailsClosed(t *testing.T) {
	t.Parallel()
	plain, _ := upstream(t)
	serving := new(atomic.Pointer[issuer])
	serving.Store(newIssuer(t))
	secure := mutual(t, serving)

	data := t.TempDir()
	st, err := file.Open(data, file.Options{})
	noError(t, err)
	if _, err := st.Update(t.Context(), func(tx *store.Tx) error {
		for name, address := range map[string]string{"mesh": plain, "own": secure} {
			body := strings.ReplaceAll(securedBy(name, "orders.example"), `"orders"`, `"`+name+`"`)
			d, err := decode.One(resource.TypeCluster, []byte(body), decode.Options{Stored: true})
			if err != nil {
				return err
			}
			e, err := decode.One(resource.TypeAssignment, []byte(envoyFile(name, address)), decode.Options{Format: decode.FormatYAML})
			if err != nil {
				return err
			}
			if err := errors.Join(
				tx.Put(resource.Key{Type: resource.TypeCluster, Name: name}, d.Raw),
				tx.Put(resource.Key{Type: resource.TypeAssignment, Name: name}, e.Raw),
			); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	noError(t, st.Close())

	t.Run("without bootstrap", func(t *testing.T) {
		url := "http://" + startServe(t, Config{Data: data, PickWait: patience})[0]
		a := do(t, "PUT", url+"/v1/clusters/orders/config", securedBy("mesh", "orders.example"))
		const reason = `names the certificate provider instance \"mesh\", which the bootstrap does not have; for connections without TLS write metadata:`
		if a.status != http.StatusUnprocessableEntity || !strings.Contains(a.body, reason) {
			t.Errorf("push: %+v", a)
		}
		asked := strings.Replace(securedBy("mesh", "orders.example"), `"type": "EDS"`, `"type": "EDS", "metadata": {"filter_metadata": {"lbd": {"connect": "tcp"}}}`, 1)
		expect(t, http.StatusCreated, "PUT", url+"/v1/clusters/orders/config", asked, "so connections do not use TLS")
		pushEndpoints(t, url, "orders", plain)
		if a := do(t, "GET", url+"/pick?cluster=orders", ""); a.address() != plain {
			t.Errorf("picked %+v", a)
		}
		if a := do(t, "GET", url+"/v1/clusters/orders", ""); strings.Contains(a.body, `"security"`) {
			t.Errorf("the state shows a security: %s", a.body)
		}
		untilRefused(t, url, "mesh", `certificate provider \"mesh\": the bootstrap does not have it`)
	})

	t.Run("with a bootstrap", func(t *testing.T) {
		dir := t.TempDir()
		serving.Load().write(t, dir)
		file := filepath.Join(dir, "xds.json")
		if err := os.WriteFile(file, fmt.Appendf(nil, `{
			"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}],
			"certificate_providers": {"own": {"plugin_name": "file_watcher", "config": {"certificate_file": "%[1]s/cert.pem", "private_key_file": "%[1]s/key.pem"}}}}`, dir), 0o600); err != nil {
			t.Fatal(err)
		}
		url := "http://" + startServe(t, Config{Bootstrap: file, Data: data, PickWait: patience, OnDemand: 1, OnDemandIdle: time.Hour})[0]
		for name, words := range map[string]string{
			"own":  `certificate provider \"own\" has no roots to check the server's certificate with`,
			"mesh": `certificate provider \"mesh\": the bootstrap does not have it`,
		} {
			untilRefused(t, url, name, words)
		}
		const reason = `has no ca_certificate_file in the bootstrap: add it, or write system_root_certs: {}`
		expect(t, http.StatusUnprocessableEntity, "PUT", url+"/v1/clusters/orders/config", securedBy("own", "orders.example"), reason)
	})
}
