package listen

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority signs certificates of tests.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.sign("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign writes NAME.pem and NAME.key.
func (a *authority) sign(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	noError(a.t, err)
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-time.Hour)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	noError(a.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	noError(a.t, err)
	a.write(name+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
	a.write(name+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600)
	cert, err := x509.ParseCertificate(der)
	noError(a.t, err)
	return cert, key
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) write(name string, data []byte, mode os.FileMode) {
	a.t.Helper()
	noError(a.t, errors.Join(os.WriteFile(a.path(name), data, mode), os.Chmod(a.path(name), mode)))
}

// serve serves a listener, and answers callers with the role pick with their name
// and roles, and others with the error. It returns the listener's address.
func serve(t *testing.T, c *Callers, spec string, config *tls.Config) string {
	t.Helper()
	listener := parse(t, spec)
	network, address := "tcp", listener.Address
	if listener.IsUnix() {
		network, address = "unix", strings.TrimPrefix(address, UnixPrefix)
	}
	inner, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	noError(t, err)
	served := inner
	if config != nil {
		served = tls.NewListener(inner, config)
	}
	l := &Listener{Listener: served, Spec: listener, Policy: listener.Policy(c.Identities != nil, false)}
	server := &http.Server{
		BaseContext: BaseContext, ConnContext: ConnContext, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			caller, policy, err := c.Identify(r, time.Now())
			if err == nil {
				err = Require(caller, policy, access.Pick)
			}
			if err != nil {
				fmt.Fprintf(w, "%s: %v", codeOf(err), err)
				return
			}
			fmt.Fprintf(w, "%s %v %s", caller.Name, caller.Roles&policy.Roles, r.Proto)
		}),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return inner.Addr().String()
}

// call calls a server and returns what it answers.
func call(t *testing.T, network, address string, config *tls.Config, edit func(*http.Request)) string {
	t.Helper()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
		TLSClientConfig:   config,
		ForceAttemptHTTP2: true,
	}
	defer transport.CloseIdleConnections()
	scheme := "http"
	if config != nil {
		scheme = "https"
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, scheme+"://localhost/", nil)
	noError(t, err)
	if edit != nil {
		edit(r)
	}
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	var b strings.Builder
	noError(t, answer.Write(&b))
	_, body, _ := strings.Cut(b.String(), "\r\n\r\n")
	return body
}

// parse parses one listener.
func parse(t *testing.T, value string) Spec {
	t.Helper()
	specs, err := Parse([]string{value})
	noError(t, err)
	return specs[0]
}

func identities(t *testing.T, file string) func() *access.Identities {
	t.Helper()
	i, err := access.Parse([]byte(file))
	noError(t, err)
	return func() *access.Identities { return i }
}

func authorization(values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header["Authorization"] = values }
}

func TestTokens(t *testing.T) {
	token, sum := access.NewToken()
	c := &Callers{Identities: identities(t, "tokens: [{name: web, roles: [pick, read], sha256: "+sum+"}]")}
	address := serve(t, c, "127.0.0.1:0,anonymous=metrics", nil)
	for name, test := range map[string]struct {
		edit func(*http.Request)
		want string
	}{
		"valid":                 {authorization("Bearer " + token), "web pick+read HTTP/1.1"},
		"scheme in lower case":  {authorization("bearer  " + token + " "), "web pick+read HTTP/1.1"},
		"none":                  {nil, "unauthenticated: role pick is required: callers without identity have the roles metrics"},
		"unknown":               {authorization("Bearer " + token + "x"), "unauthenticated: the token is unknown"},
		"empty":                 {authorization("Bearer "), "the Authorization header must be: Bearer TOKEN"},
		"other scheme":          {authorization("Basic " + token), "the Authorization header must be: Bearer TOKEN"},
		"two headers":           {authorization("Bearer "+token, "Bearer "+token), "more than one Authorization header"},
		"too long":              {authorization("Bearer " + strings.Repeat("x", 1<<16)), "the token is unknown"},
		"host of somebody else": {func(r *http.Request) { r.Host = "attacker.example:80" }, `misdirected_request: host "attacker.example:80" is not allowed`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := call(t, "tcp", address, nil, test.edit); !strings.Contains(got, test.want) {
				t.Errorf("%s; want %s", got, test.want)
			}
		})
	}
}

func codeOf(err error) fault.Code {
	e, _ := errors.AsType[*fault.Error](err)
	return e.Code
}

func TestRoleErrors(t *testing.T) {
	web, err := identities(t, "unix_peers: [{name: web, roles: [pick], uid: 1}]")().Peer(1, 1, time.Now())
	noError(t, err)
	for _, c := range []struct {
		spec       string
		caller     *access.Caller
		identities bool
		code       fault.Code
		want       string
	}{
		{"127.0.0.1:1", web, true, PermissionDenied, "role push is required: web has the roles pick"},
		{"127.0.0.1:1,roles=pick+read", web, true, PermissionDenied, "role push is required: the listener has the roles pick+read"},
		{"127.0.0.1:1", nil, true, Unauthenticated, "role push is required: callers without identity have no roles"},
		{"0.0.0.0:1", nil, false, PermissionDenied, "role push is required: other machines can connect to the listener, and TLS or identities are missing. Add the option tls and --tokens, or, in a trusted network, --insecure"},
		{"0.0.0.0:1,tls", nil, false, PermissionDenied, "role push is required: other machines can connect to the listener"},
		{"0.0.0.0:1,tls,anonymous=push", nil, true, Unauthenticated, "role push is required: other machines can connect to the listener"},
	} {
		listener := parse(t, c.spec)
		p := listener.Policy(c.identities, false)
		caller := c.caller
		if caller == nil {
			caller = anonymous[p.Anonymous]
		}
		err = Require(caller, p, access.Push)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || codeOf(err) != c.code {
			t.Errorf("%s: %s: %v; want %s: %s", c.spec, codeOf(err), err, c.code, c.want)
		}
		if err := Require(caller, p, access.Pick); (err == nil) != caller.Roles.Has(access.Pick) {
			t.Errorf("%s: pick: %v", c.spec, err)
		}
	}
}

func TestUnixPeer(t *testing.T) {
	known := identities(t, fmt.Sprintf("unix_peers: [{name: me, roles: [pick], uid: %d}]", os.Getuid()))
	path := filepath.Join(t.TempDir(), "s")
	serve(t, &Callers{Identities: known}, UnixPrefix+path, nil)
	if got := call(t, "unix", path, nil, func(r *http.Request) { r.Host = "anything.example" }); got != "me pick HTTP/1.1" {
		t.Errorf("a known peer: %s", got)
	}
	other := identities(t, fmt.Sprintf("unix_peers: [{name: other, roles: [pick], uid: %d}]", os.Getuid()+1))
	path = filepath.Join(t.TempDir(), "s")
	serve(t, &Callers{Identities: other}, UnixPrefix+path, nil)
	if got := call(t, "unix", path, nil, nil); !strings.Contains(got, "callers without identity have no roles") {
		t.Errorf("an unknown peer: %s", got)
	}
}

func TestClientCertificates(t *testing.T) {
	a := newAuthority(t)
	a.sign("server", &x509.Certificate{DNSNames: []string{"localhost"}})
	uri, err := url.Parse("spiffe://prod/web")
	noError(t, err)
	a.sign("web", &x509.Certificate{URIs: []*url.URL{uri}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	a.sign("nameless", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	foreign := newAuthority(t)
	foreign.sign("web", &x509.Certificate{URIs: []*url.URL{uri}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})

	files, err := TLSFiles{Certificate: a.path("server.pem"), Key: a.path("server.key"), ClientCA: a.path("ca.pem")}.Open(slog.New(slog.DiscardHandler), nil)
	noError(t, err)
	defer files.Close()
	token, sum := access.NewToken()
	c := &Callers{Identities: identities(t, "certificates: [{name: web, roles: [pick], san: 'uri:spiffe://prod/*'}]\ntokens: [{name: ci, roles: [push, pick], sha256: "+sum+"}]")}
	address := serve(t, c, "127.0.0.1:0,tls", ServerConfig(files.Current))
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	client := func(of *authority, name string) *tls.Config {
		config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		if name != "" {
			pair, err := tls.LoadX509KeyPair(of.path(name+".pem"), of.path(name+".key"))
			noError(t, err)
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		return config
	}
	for name, test := range map[string]struct {
		config *tls.Config
		edit   func(*http.Request)
		want   string
	}{
		"known":                         {client(a, "web"), nil, "web pick HTTP/2.0"},
		"a token takes precedence":      {client(a, "web"), authorization("Bearer " + token), "ci pick+push HTTP/2.0"},
		"without SAN":                   {client(a, "nameless"), nil, "the client certificate has no SAN that is a DNS name or a URI"},
		"of an unknown authority":       {client(foreign, "web"), nil, `Get "https://localhost/": `},
		"no certificate":                {client(a, ""), nil, "callers without identity have no roles"},
		"TLS 1.1 is not supported":      {&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, nil, "protocol version"},
		"plain HTTP on a TLS listener":  {nil, nil, "Client sent an HTTP request to an HTTPS server."},
		"no certificate, but the token": {client(a, ""), authorization("Bearer " + token), "ci pick+push HTTP/2.0"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := call(t, "tcp", address, test.config, test.edit); !strings.Contains(got, test.want) {
				t.Errorf("%s; want %s", got, test.want)
			}
		})
	}
}

func TestTLSFiles(t *testing.T) {
	a := newAuthority(t)
	a.sign("server", &x509.Certificate{})
	a.sign("other", &x509.Certificate{})
	a.sign("expired", &x509.Certificate{NotAfter: time.Now().Add(-time.Minute)})
	a.write("empty.pem", nil, 0o644)
	key, err := os.ReadFile(a.path("server.key"))
	noError(t, err)
	a.write("public.key", key, 0o644)
	for name, c := range map[string]struct {
		files TLSFiles
		want  string
	}{
		"valid":            {TLSFiles{"server.pem", "server.key", "ca.pem"}, ""},
		"other key":        {TLSFiles{"server.pem", "other.key", ""}, "private key does not match public key"},
		"public key file":  {TLSFiles{"server.pem", "public.key", ""}, "every user can read or write it (mode 0644)"},
		"expired":          {TLSFiles{"expired.pem", "expired.key", ""}, ""},
		"no certificate":   {TLSFiles{"missing.pem", "server.key", ""}, "no such file"},
		"no key":           {TLSFiles{"server.pem", "missing.key", ""}, "no such file"},
		"no roots":         {TLSFiles{"server.pem", "server.key", "missing.pem"}, "no such file"},
		"roots, not PEM":   {TLSFiles{"server.pem", "server.key", "empty.pem"}, "no certificate in PEM"},
		"certificate, PEM": {TLSFiles{"empty.pem", "server.key", ""}, "failed to find any PEM data"},
	} {
		t.Run(name, func(t *testing.T) {
			f := TLSFiles{Certificate: a.path(c.files.Certificate), Key: a.path(c.files.Key)}
			if c.files.ClientCA != "" {
				f.ClientCA = a.path(c.files.ClientCA)
			}
			r, err := f.Open(slog.New(slog.DiscardHandler), nil)
			if err == nil {
				if expired := f.Invalid(r.Current(), time.Now()); (expired != nil) != (name == "expired") {
					t.Errorf("Expired: %v", expired)
				}
				r.Close()
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("Open: %v; want %q", err, c.want)
			}
		})
	}
}
