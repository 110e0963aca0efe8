package main

import (
	"net"
	"testing"

	"github.com/lbd-dev/lbd/api/listen"
)

// TestAdvertised: other daemons get an address that they can reach, with the scheme of its listener.
func TestAdvertised(t *testing.T) {
	at := func(ip string, tls bool) *listen.Listener {
		return &listen.Listener{Listener: fakeListener{&net.TCPAddr{IP: net.ParseIP(ip), Port: 8080}}, Spec: listen.Spec{TLS: tls}}
	}
	unix := &listen.Listener{Listener: fakeListener{&net.UnixAddr{Net: "unix", Name: "/run/lbd"}}}
	for _, tt := range []struct {
		name      string
		advertise string
		listeners []*listen.Listener
		want      string
	}{
		{"the flag", "https://lbd-1:8443", []*listen.Listener{at("10.0.0.1", false)}, "https://lbd-1:8443"},
		{"a TCP listener", "", []*listen.Listener{unix, at("10.0.0.1", false), at("10.0.0.2", false)}, "http://10.0.0.1:8080"},
		{"with TLS", "", []*listen.Listener{at("2001:db8::1", true)}, "https://[2001:db8::1]:8080"},
		{"all interfaces", "", []*listen.Listener{at("0.0.0.0", false)}, "http://127.0.0.1:8080"}, // from which etcd is reached
		{"a unix socket only", "", []*listen.Listener{unix}, ""},
	} {
		c := Config{Store: "etcd://127.0.0.1:2379/lbd", Advertise: tt.advertise}
		if got, err := c.advertised(t.Context(), tt.listeners); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.name, got, err, tt.want)
		}
	}
}

type fakeListener struct{ addr net.Addr }

func (f fakeListener) Addr() net.Addr          { return f.addr }
func (fakeListener) Close() error              { return nil }
func (fakeListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }

func TestFleetFlags(t *testing.T) {
	for _, c := range []Config{
		{Advertise: "http://a:1"},
		{Store: "etcd://a:1/lbd", Advertise: "a:1"},
		{Store: "etcd://a:1/lbd", Advertise: "http://a:1/path"},
	} {
		if c.validateFleet() == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}
