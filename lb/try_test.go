package lb

import (
	"crypto/tls"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestTry: a connection that is tried is made as those of SubConns are, and returns the certificate of the
// server.
func TestTry(t *testing.T) {
	ca := newAuthority(t, "ca")
	shows := ca.issue(t)
	u := newUpstream(t, func() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{shows}} })
	d := newTLSDialer(t, providers{"roots": {roots: ca.pool()}, "others": {roots: newAuthority(t, "other").pool()}})
	at := func(security *resource.Security) Attempt {
		return Attempt{Mode: resource.ConnectTCP, Security: security, Address: u.address}
	}
	got, err := d.Try(t.Context(), at(&resource.Security{RootInstance: "roots"}), time.Minute)
	if err != nil || !got.Equal(shows.Leaf) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := d.Try(t.Context(), at(nil), time.Minute); err != nil || got != nil {
		t.Errorf("without TLS: %v, %v", got, err)
	}
	if _, err := d.Try(t.Context(), at(&resource.Security{RootInstance: "others"}), time.Minute); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("with other roots: %v", err)
	}
	if _, err := d.Try(t.Context(), Attempt{Address: "127.0.0.1:1"}, time.Minute); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a closed port: %v", err)
	}
	limited := NewDialer(nil, overload.Budget{Dials: 1}, nil, &Permit{Denied: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(limited.Close)
	if _, err := limited.Try(t.Context(), at(nil), time.Minute); err == nil {
		t.Error("a denied address was tried")
	} else if _, ok := errors.AsType[*DeniedError](err); !ok {
		t.Errorf("a denied address: %v", err)
	}
}
