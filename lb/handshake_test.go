//go:debug x509usefallbackroots=1

package lb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/leastrequest"
	"github.com/lbd-dev/lbd/lb/pickfirst"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/ringhash"
	"github.com/lbd-dev/lbd/lb/weightedroundrobin"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/resource"
)

// system is the authority that the system trusts while the tests run.
var system = sync.OnceValue(func() *authority {
	a := newAuthority(new(testing.T), "system")
	x509.SetFallbackRoots(a.pool())
	return a
})

// newTLSDialer is a Dialer that leaves servers all the time that they want to
// refuse a certificate.
func newTLSDialer(t *testing.T, c Certificates) *Dialer {
	d := NewDialer(c, overload.Budget{}, nil, nil)
	d.verdictTime = time.Minute
	t.Cleanup(d.Close)
	return d
}

// connectTo starts an attempt and returns its result.
func connectTo(d *Dialer, mode resource.ConnectMode, s *resource.Security, hostname string, addresses ...string) (<-chan Connection, func()) {
	reports := make(chan Connection, 16)
	c := d.Connectors(mode)[mode].(tcpConnector) //nolint:errcheck // a test of Connectors that dial
	c.security = s
	return reports, c.named(hostname).Start(addresses, func(c Connection) { reports <- c })
}

func names(change func(c *x509.Certificate)) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.DNSNames = nil
		change(c)
	}
}

func TestHandshake(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	between := ca.authority(t, "between")
	spiffe, err := url.Parse("spiffe://example/orders")
	noError(t, err)
	ps := providers{
		"roots":    {roots: ca.pool()},
		"own":      {identity: []tls.Certificate{ca.issue(t)}},
		"strange":  {identity: []tls.Certificate{other.issue(t)}},
		"no files": {err: errors.New("ca_certificate_file /ca.pem: no such file")},
	}
	roots := func(change ...func(*resource.Security)) *resource.Security {
		s := &resource.Security{RootInstance: "roots"}
		for _, f := range change {
			f(s)
		}
		return s
	}
	sans := func(ms ...resource.StringMatch) func(*resource.Security) {
		return func(s *resource.Security) { s.SANs = ms }
	}
	identity := func(instance string) func(*resource.Security) {
		return func(s *resource.Security) { s.IdentityInstance = instance }
	}
	autoName := func(s *resource.Security) {
		s.SNI, s.AutoHostSNI, s.AutoSANValidation = "configured.example", true, true
	}
	asks := func(kind tls.ClientAuthType) func(*tls.Config) {
		return func(c *tls.Config) { c.ClientAuth, c.ClientCAs = kind, ca.pool() }
	}
	all := []resource.ConnectMode{resource.ConnectTCP, resource.ConnectTCPHold, resource.ConnectTLS}
	tlsOnly := all[2:]

	for _, tt := range []struct {
		name     string
		modes    []resource.ConnectMode
		security *resource.Security
		hostname string
		shows    tls.Certificate
		server   []func(*tls.Config)
		want     []string // parts of the error; none for success
		sni      string   // that the server sees
	}{
		{name: "good", security: roots(), shows: ca.issue(t)},
		{name: "the name does not count", security: roots(), hostname: "elsewhere.example", shows: ca.issue(t)},
		{name: "an authority between", security: roots(), shows: between.issue(t)},
		{name: "TLS 1.2", security: roots(), shows: ca.issue(t), server: []func(*tls.Config){func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }}},
		{name: "a server that knows only HTTP/1.1", security: roots(), shows: ca.issue(t), server: []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}},
		{
			name: "unknown authority", security: roots(), shows: other.issue(t),
			want: []string{`the server's certificate, of DNS "orders.example", checked with the roots of certificate provider "roots": x509: certificate signed by unknown authority`},
		},
		{
			name: "expired", security: roots(), shows: ca.issue(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }),
			want: []string{`certificate provider "roots": x509: certificate has expired`},
		},
		{
			name: "no certificate of servers", security: roots(), shows: ca.issue(t, func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }),
			want: []string{"incompatible key usage"},
		},
		{name: "SAN", security: roots(sans(resource.StringMatch{Value: "x"}, resource.StringMatch{Value: "orders.example"})), shows: ca.issue(t)},
		{
			name: "SAN mismatch", security: roots(sans(resource.StringMatch{Value: "x"}, resource.StringMatch{Kind: resource.MatchPrefix, Value: "y"})),
			shows: ca.issue(t, func(c *x509.Certificate) {
				c.DNSNames, c.URIs = append(c.DNSNames, "b.example"), []*url.URL{spiffe}
				c.IPAddresses, c.EmailAddresses = []net.IP{net.IPv4(10, 0, 0, 1)}, []string{"a@b"}
			}),
			want: []string{`the server's certificate is of DNS "orders.example", DNS "b.example", email "a@b", IP "10.0.0.1", URI "spiffe://example/orders": wanted exact "x" or prefix "y"`},
		},
		{
			name: "SAN wanted, none there", security: roots(sans(resource.StringMatch{Value: "x"})), shows: ca.issue(t, names(func(*x509.Certificate) {})),
			want: []string{`the server's certificate is of no name: wanted exact "x"`},
		},
		{name: "SNI", security: roots(func(s *resource.Security) { s.SNI = "configured.example" }), shows: ca.issue(t), sni: "configured.example"},
		{name: "the hostname as SNI", security: roots(autoName), hostname: "orders.example:443", shows: ca.issue(t), sni: "orders.example"},
		{
			name: "no hostname for SNI", security: roots(autoName), shows: ca.issue(t),
			want: []string{`the server's certificate is of DNS "orders.example": wanted DNS "configured.example", the name that was sent`},
		},
		{
			name: "the name that was sent goes before SANs", security: roots(autoName, sans(resource.StringMatch{Value: "x"})), hostname: "orders.example", shows: ca.issue(t),
			sni: "orders.example",
		},
		{
			name: "SANs where no name was sent", security: roots(func(s *resource.Security) { s.AutoSANValidation = true }, sans(resource.StringMatch{Value: "x"})), shows: ca.issue(t),
			want: []string{`wanted exact "x"`},
		},
		{name: "a certificate is asked for and there is none", security: roots(), shows: ca.issue(t), server: []func(*tls.Config){asks(tls.VerifyClientCertIfGiven)}},
		{
			name: "a certificate is required and there is none", security: roots(), shows: ca.issue(t), server: []func(*tls.Config){asks(tls.RequireAndVerifyClientCert)},
			want: []string{"remote error: tls: certificate required: it asked for a certificate, and the cluster has none"},
		},
		{
			name: "a certificate is required in TLS 1.2", security: roots(), shows: ca.issue(t),
			server: []func(*tls.Config){asks(tls.RequireAndVerifyClientCert), func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }},
			want:   []string{"remote error: tls: ", ": it asked for a certificate, and the cluster has none"},
		},
		{name: "a certificate is required and shown", security: roots(identity("own")), shows: ca.issue(t), server: []func(*tls.Config){asks(tls.RequireAndVerifyClientCert)}},
		{
			name: "a certificate is required in TLS 1.2 and shown", security: roots(identity("own")), shows: ca.issue(t),
			server: []func(*tls.Config){asks(tls.RequireAndVerifyClientCert), func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }},
		},
		{
			name: "the server requires a certificate of another authority", security: roots(identity("strange")), shows: ca.issue(t),
			server: []func(*tls.Config){asks(tls.RequireAndVerifyClientCert)},
			want:   []string{`remote error: tls: certificate required: it asked for a certificate, and accepts none of provider "strange"`},
		},
		{
			name: "the server rejects the certificate", security: roots(identity("strange")), shows: ca.issue(t),
			server: []func(*tls.Config){asks(tls.RequireAnyClientCert), func(c *tls.Config) {
				c.ClientCAs = nil
				c.VerifyConnection = func(tls.ConnectionState) error { return errors.New("not you") }
			}},
			want: []string{`remote error: tls: bad certificate: it rejected the certificate of provider "strange"`},
		},
		{
			name: "roots that are not there", security: &resource.Security{RootInstance: "no files"}, shows: ca.issue(t),
			want: []string{`certificate provider "no files": ca_certificate_file /ca.pem: no such file`},
		},
		{
			name: "a certificate that is not there", security: roots(identity("no files")), shows: ca.issue(t),
			want: []string{`certificate provider "no files": ca_certificate_file /ca.pem: no such file`},
		},
		{ // never the system's roots in their place
			name: "a provider without roots", security: &resource.Security{RootInstance: "own"}, shows: system().issue(t),
			want: []string{`certificate provider "own" has no roots to check the server's certificate with: add ca_certificate_file to it in the bootstrap`},
		},
		{name: "no such provider", security: &resource.Security{RootInstance: "x"}, shows: ca.issue(t), want: []string{`certificate provider "x": there is none`}},
		{name: "the system's roots", security: &resource.Security{SystemRoots: true}, shows: system().issue(t)},
		{
			name: "not the system's roots", security: &resource.Security{SystemRoots: true}, shows: ca.issue(t),
			want: []string{"checked with the roots of the system: x509: certificate signed by unknown authority"},
		},

		{name: "tls alone", modes: tlsOnly, hostname: "orders.example:443", shows: system().issue(t), sni: "orders.example"},
		{name: "tls alone, by address", modes: tlsOnly, shows: system().issue(t, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })},
		{name: "tls alone, another name", modes: tlsOnly, hostname: "b.example", shows: system().issue(t), want: []string{"x509: certificate is valid for orders.example, not b.example"}},
		{name: "tls alone, another address", modes: tlsOnly, shows: system().issue(t), want: []string{"x509: cannot validate certificate for 127.0.0.1"}},
		{name: "tls alone, unknown authority", modes: tlsOnly, hostname: "orders.example", shows: ca.issue(t), want: []string{"x509: certificate signed by unknown authority"}},
		{
			name: "tls alone, a certificate is required", modes: tlsOnly, hostname: "orders.example", shows: system().issue(t), server: []func(*tls.Config){asks(tls.RequireAnyClientCert)},
			want: []string{"certificate required"},
		},
	} {
		modes := tt.modes
		if modes == nil {
			modes = all
		}
		for _, mode := range modes {
			t.Run(tt.name+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				u := newUpstream(t, func() *tls.Config {
					c := &tls.Config{Certificates: []tls.Certificate{tt.shows}, NextProtos: []string{"h2"}}
					for _, f := range tt.server {
						f(c)
					}
					return c
				})
				d := newTLSDialer(t, ps)
				if tt.want == nil && mode != resource.ConnectTCP { // a server that says nothing takes what it is shown
					d.verdictTime = time.Millisecond
				}
				reports, stop := connectTo(d, mode, tt.security, tt.hostname, u.address)
				defer stop()
				c := <-reports
				if tt.want == nil {
					if c.Err != nil || c.Address != u.address {
						t.Fatalf("reported %+v", c)
					}
					if saw := <-u.handshook; saw.ServerName != tt.sni || saw.NegotiatedProtocol == "" {
						t.Errorf("the server saw SNI %q, want %q, and agreed on %q", saw.ServerName, tt.sni, saw.NegotiatedProtocol)
					}
					return
				}
				if c.Err == nil || !strings.HasPrefix(c.Err.Error(), "tls handshake with "+u.address+": ") {
					t.Fatalf("reported %+v", c)
				}
				for _, part := range tt.want {
					if !strings.Contains(c.Err.Error(), part) {
						t.Errorf("error %q, want one with %q", c.Err, part)
					}
				}
			})
		}
	}
}

// TestPlainServer: a server that does not speak TLS is distinguished from one that is not
// there.
func TestPlainServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer l.Close()
	serving.Go(func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = conn.Write([]byte("220 mail.example ESMTP\r\n"))
			_, _ = conn.Read(make([]byte, 1024))
			_ = conn.Close()
		}
	})
	reports, stop := connectTo(newTLSDialer(t, nil), resource.ConnectTLS, nil, "a.example", l.Addr().String())
	defer stop()
	if c := <-reports; c.Err == nil || !strings.Contains(c.Err.Error(), "does not look like a TLS handshake") {
		t.Errorf("reported %+v", c)
	}
}

// TestHungUp: a server that asks for a certificate and then ends the connection
// without a word has taken it where the connection was not to be held, and is not
// connected where it was.
func TestHungUp(t *testing.T) {
	ca := newAuthority(t, "ca")
	shows := ca.issue(t)
	u := newUpstream(t, func() *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{shows}, ClientAuth: tls.RequestClientCert}
	})
	d := newTLSDialer(t, providers{"roots": {roots: ca.pool()}})
	for mode, want := range map[resource.ConnectMode]string{resource.ConnectTCP: "", resource.ConnectTCPHold: ": connection lost: EOF"} {
		reports, stop := connectTo(d, mode, &resource.Security{RootInstance: "roots"}, "", u.address)
		_ = (<-u.conns).Close()
		if c := <-reports; (c.Err == nil) != (want == "") || c.Err != nil && !strings.Contains(c.Err.Error(), want) {
			t.Errorf("%s: reported %+v, want %q", mode, c, want)
		}
		stop()
	}
}

// TestVerdictTime: a server that took a certificate and says nothing is waited for
// where the connection is to be held; otherwise it hangs up, and no attempt waits.
func TestVerdictTime(t *testing.T) {
	for mode, want := range map[resource.ConnectMode]time.Duration{resource.ConnectTCP: 0, resource.ConnectTCPHold: verdictTime} {
		synctest.Test(t, func(t *testing.T) {
			ca := newAuthority(t, "ca")
			shows := ca.issue(t)
			d := NewDialer(providers{"all": {roots: ca.pool(), identity: []tls.Certificate{ca.issue(t)}}}, overload.Budget{}, nil, nil)
			defer d.Close()
			d.connect = func(_ context.Context, _, address string) (net.Conn, error) {
				if address != "a:1" {
					t.Errorf("%s is dialed while a server has only its verdict to send", address)
				}
				near, far := net.Pipe()
				go func() {
					_, _ = io.Copy(io.Discard, tls.Server(far, &tls.Config{Certificates: []tls.Certificate{shows}, ClientAuth: tls.RequireAnyClientCert}))
					_ = far.Close()
				}()
				return near, nil
			}
			start := time.Now()
			reports, stop := connectTo(d, mode, &resource.Security{RootInstance: "all", IdentityInstance: "all"}, "", "a:1", "b:1")
			defer stop()
			if c := <-reports; c.Err != nil || time.Since(start) != want {
				t.Errorf("%s: reported %+v after %v, want %v", mode, c, time.Since(start), want)
			}
		})
	}
}

// TestNoCertificates: without a bootstrap there are no providers.
func TestNoCertificates(t *testing.T) {
	u := newUpstream(t, func() *tls.Config { return &tls.Config{} })
	reports, stop := connectTo(newTLSDialer(t, nil), resource.ConnectTCP, &resource.Security{RootInstance: "roots"}, "", u.address)
	defer stop()
	if c := <-reports; c.Err == nil || !strings.Contains(c.Err.Error(), `certificate provider "roots": lbd has no bootstrap`) {
		t.Errorf("reported %+v", c)
	}
}

// TestSilentServer: what accepts and never speaks TLS takes the time of its address,
// and no more.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDialer(nil, overload.Budget{}, nil, nil)
		defer d.Close()
		d.connect = func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(500 * time.Millisecond) // it takes its time to connect, too
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far) }()
			return near, nil
		}
		start := time.Now()
		reports, stop := connectTo(d, resource.ConnectTLS, nil, "a.example", "a:1", "b:1")
		defer stop()
		c := <-reports
		if took, want := time.Since(start), ConnectTimeout+policy.AttemptDelay; took != want {
			t.Errorf("took %v, want %v", took, want)
		}
		if want := "tls handshake with b:1: not done within 20s"; c.Err == nil || !strings.Contains(c.Err.Error(), want) {
			t.Errorf("reported %v, want %q", c.Err, want)
		}
		synctest.Wait()
		if n := busyDials(d); n != 0 {
			t.Errorf("%d slots are still taken", n)
		}
	})
}

func busyDials(d *Dialer) int {
	d.slots.mu.Lock()
	defer d.slots.mu.Unlock()
	return d.slots.attempts.busy + d.slots.rechecks.busy
}

// TestRecheckHandshakes: connect mode tcp looks again by a whole handshake, and
// reports why one failed; a server that stops to speak is lost within NoticeTime.
func TestRecheckHandshakes(t *testing.T) {
	for _, tt := range []struct{ name, want string }{
		{"roots that cannot be read", "tls handshake with a:1: certificate provider \"roots\": no ca.pem"},
		{"silence", "not done within 3s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca := newAuthority(t, "ca")
				shows := ca.issue(t)
				roots := &provider{roots: ca.pool()}
				d := NewDialer(providers{"roots": roots}, overload.Budget{}, nil, nil)
				defer d.Close()
				var silent atomic.Bool
				d.connect = func(context.Context, string, string) (net.Conn, error) {
					near, far := net.Pipe()
					if silent.Load() {
						return near, nil
					}
					go func() {
						conn := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{shows}})
						_ = conn.Handshake()
						_, _ = conn.Read(make([]byte, 1))
						_ = far.Close()
					}()
					return near, nil
				}
				reports, stop := connectTo(d, resource.ConnectTCP, &resource.Security{RootInstance: "roots"}, "", "a:1")
				defer stop()
				if c := <-reports; c.Err != nil {
					t.Fatalf("reported %+v", c)
				}
				time.Sleep(time.Minute)
				if len(reports) != 0 {
					t.Fatalf("reported %+v", <-reports)
				}
				if tt.name == "silence" {
					silent.Store(true)
				} else {
					roots.set(func(p *provider) { p.err = errors.New("no ca.pem") })
				}
				changed := time.Now()
				c := <-reports
				if c.Err == nil || !strings.Contains(c.Err.Error(), tt.want) || time.Since(changed) > NoticeTime(resource.ConnectTCP) {
					t.Errorf("reported %v after %v, want %q", c.Err, time.Since(changed), tt.want)
				}
			})
		})
	}
}

// TestHeldOverTLS: the connection stays, what the server sends is thrown away, and
// its end is noticed.
func TestHeldOverTLS(t *testing.T) {
	ca := newAuthority(t, "ca")
	shows := ca.issue(t)
	u := newUpstream(t, func() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{shows}} })
	d := newTLSDialer(t, providers{"roots": {roots: ca.pool()}})
	for _, mode := range []resource.ConnectMode{resource.ConnectTCPHold, resource.ConnectTLS} {
		reports, stop := connectTo(d, mode, &resource.Security{RootInstance: "roots"}, "", u.address)
		if c := <-reports; c.Err != nil {
			t.Fatalf("reported %+v", c)
		}
		conn := <-u.conns
		if _, err := conn.Write(make([]byte, 1<<16)); err != nil {
			t.Error(err)
		}
		if len(reports) != 0 {
			t.Errorf("reported %+v", <-reports)
		}
		_ = conn.Close()
		if c := <-reports; c.Err == nil || c.Address != "" || !strings.Contains(c.Err.Error(), "connection lost: ") {
			t.Errorf("reported %+v, want a loss", c)
		}
		stop()
	}
}

// TestRotation: each handshake uses the certificates that there are then.
func TestRotation(t *testing.T) {
	before, after := newAuthority(t, "before"), newAuthority(t, "after")
	var now atomic.Pointer[authority]
	now.Store(before)
	u := newUpstream(t, func() *tls.Config {
		a := now.Load()
		return &tls.Config{Certificates: []tls.Certificate{a.issue(t)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool()}
	})
	all := &provider{roots: before.pool(), identity: []tls.Certificate{before.issue(t)}}
	d := newTLSDialer(t, providers{"all": all})
	try := func() error {
		reports, stop := connectTo(d, resource.ConnectTCP, &resource.Security{RootInstance: "all", IdentityInstance: "all"}, "", u.address)
		defer stop()
		return (<-reports).Err
	}
	noError(t, try())
	now.Store(after)
	if err := try(); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("err %v, want an unknown authority", err)
	}
	all.set(func(p *provider) { p.roots = after.pool() })
	if err := try(); err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("err %v, want a certificate to be required", err)
	}
	all.set(func(p *provider) { p.identity = []tls.Certificate{after.issue(t)} })
	if err := try(); err != nil {
		t.Error(err)
	}
}

// TestSecurityReachesConnections: from a cluster's config to its endpoints'
// connections, and why they fail to events and picks. A Security that says the
// same reconnects nothing.
func TestSecurityReachesConnections(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	shows := ca.issue(t)
	u := newUpstream(t, func() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{shows}} })
	d := newTLSDialer(t, providers{"roots": {roots: ca.pool()}, "others": {roots: other.pool()}})
	failures := make(chan error, 256)
	c := NewChannel(Options{
		Registry: Policies(), Counters: policy.NewCounters(), Draw: rand.Uint64, Connectors: d.Connectors(resource.ConnectTCPHold),
		Report: func(events []policy.Event) {
			for _, e := range events {
				if changed, ok := e.(policy.ConnectionChanged); ok && changed.To == connectivity.TransientFailure {
					failures <- changed.Err
				}
			}
		},
	})
	t.Cleanup(c.Close)
	endpoints := []*resource.Endpoint{{Addresses: []string{u.address}, Weight: 1}}
	secured := func(s *resource.Security, hostname string) *resource.Config {
		e := *endpoints[0]
		e.Hostname = hostname
		config := cluster("c", []*resource.Endpoint{&e})
		own := *config.Clusters.Get("c").Cluster
		own.Security = s
		config.Clusters.Get("c").Cluster = &own
		return config
	}
	pick := func() error {
		return c.Pick(&policy.Call{Context: t.Context(), Cluster: "c", WaitForReady: true}, time.Minute)
	}
	byRoots := func() *resource.Security {
		return &resource.Security{RootInstance: "roots", SANs: []resource.StringMatch{{Kind: resource.MatchRegex, Regex: regexp.MustCompile("^orders")}}}
	}

	send(t, c, secured(byRoots(), ""))
	noError(t, pick())
	first := <-u.conns

	// The same, and a hostname that is not used: no other connection.
	send(t, c, secured(byRoots(), "b.example"))
	if err := pick(); err != nil || len(u.conns) != 0 {
		t.Fatalf("%v, and %d more connections", err, len(u.conns))
	}

	// Another one: a new connection, and the old one ends.
	named := byRoots()
	named.AutoHostSNI = true
	send(t, c, secured(named, "b.example"))
	if saw := <-u.handshook; saw.ServerName != "" {
		t.Errorf("the first handshake had SNI %q", saw.ServerName)
	}
	second := <-u.conns
	if saw := <-u.handshook; saw.ServerName != "b.example" {
		t.Errorf("SNI %q", saw.ServerName)
	}
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Error("the connection before is still open")
	}

	// Another name that TLS goes by: the same.
	send(t, c, secured(named, "c.example"))
	<-u.conns
	if saw := <-u.handshook; saw.ServerName != "c.example" {
		t.Errorf("SNI %q", saw.ServerName)
	}
	if _, err := second.Read(make([]byte, 1)); err == nil {
		t.Error("the connection before is still open")
	}

	// And one that cannot be had.
	send(t, c, secured(&resource.Security{RootInstance: "others"}, ""))
	const why = `certificate provider "others": x509: certificate signed by unknown authority`
	if err := <-failures; err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("the event says %v", err)
	}
	for g := c.Generation(); c.State() == connectivity.Ready; g = c.Generation() {
		c.WaitForGeneration(t.Context(), g)
	}
	err := c.Pick(&policy.Call{Context: t.Context(), Cluster: "c"}, time.Minute)
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("a pick is answered %v", err)
	}
}

// TestHostnamesReachConnections: whichever policy keeps an endpoint's connection,
// one that TLS goes by the hostname of is made again with another.
func TestHostnamesReachConnections(t *testing.T) {
	ca := newAuthority(t, "ca")
	shows := ca.issue(t)
	for _, p := range []resource.Policy{
		resource.RoundRobinPolicy(),
		{Name: weightedroundrobin.Name, Config: `{"weightUpdatePeriod":"1s"}`},
		{Name: leastrequest.Name, Config: `{"choiceCount":2}`},
		{Name: ringhash.Name, Config: `{"maxRingSize":8,"minRingSize":1}`},
		{Name: pickfirst.Name},
	} {
		t.Run(string(p.Name), func(t *testing.T) {
			u := newUpstream(t, func() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{shows}} })
			c := dialed(t, newTLSDialer(t, providers{"roots": {roots: ca.pool()}}), resource.ConnectTCPHold)
			for _, hostname := range []string{"b.example", "c.example"} {
				config := cluster("c", []*resource.Endpoint{{Addresses: []string{u.address}, Weight: 1, Hostname: hostname}})
				own := *config.Clusters.Get("c").Cluster
				own.Policy, own.Security = p, &resource.Security{RootInstance: "roots", AutoHostSNI: true}
				config.Clusters.Get("c").Cluster = &own
				send(t, c, config)
				noError(t, c.Pick(&policy.Call{Context: t.Context(), Cluster: "c", WaitForReady: true}, time.Minute))
				if saw := <-u.handshook; saw.ServerName != hostname {
					t.Errorf("SNI %q, want %q", saw.ServerName, hostname)
				}
			}
		})
	}
}
