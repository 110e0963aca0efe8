package main

import (
	"net"
	"testing"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service/access"
)

// bound is a listener with an address.
type bound struct {
	net.Listener

	at net.Addr
}

func (b bound) Addr() net.Addr { return b.at }

// TestServes: a socket unit may spell an address differently than --listen.
func TestServes(t *testing.T) {
	t.Parallel()
	any6 := &net.TCPAddr{IP: net.IPv6unspecified, Port: 80}
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}
	for _, tt := range []struct {
		at      net.Addr
		address string
		want    bool
	}{
		{any6, ":80", true},
		{any6, "0.0.0.0:80", true},
		{any6, "[::]:80", true},
		{any6, "localhost:80", true},
		{any6, "10.0.0.7:80", true},
		{any6, ":81", false},
		{any6, "orders.example:80", false},
		{loopback, "127.0.0.1:80", true},
		{loopback, "localhost:80", true},
		{loopback, ":80", false},
		{loopback, "10.0.0.7:80", false},
		{loopback, "[::1]:80", false},
		{loopback, "unix:/run/lbd.sock", false},
		{&net.UnixAddr{Name: "/run/lbd.sock", Net: "unix"}, "unix:/run/lbd.sock", true},
		{&net.UnixAddr{Name: "/run/lbd.sock", Net: "unix"}, ":80", false},
	} {
		if got := serves(bound{at: tt.at}, tt.address); got != tt.want {
			t.Errorf("a listener on %v serves %s: %t, want %t", tt.at, tt.address, got, tt.want)
		}
	}
}

// A socket that other machines reach is not local because --listen names a loopback address.
func TestSpecOfASocket(t *testing.T) {
	t.Parallel()
	specs, err := listen.Parse([]string{"127.0.0.1:80,roles=pick+push"})
	noError(t, err)
	for _, tt := range []struct {
		at    net.IP
		local bool
		roles access.Roles
	}{
		{net.IPv6unspecified, false, access.Pick},
		{net.IPv4(127, 0, 0, 1), true, access.Pick | access.Push},
	} {
		spec := specOf(bound{at: &net.TCPAddr{IP: tt.at, Port: 80}}, specs)
		if p := spec.Policy(false, false); p.Local != tt.local || p.Roles != tt.roles {
			t.Errorf("a socket on %v: local %v, roles %v; want %v, %v", tt.at, p.Local, p.Roles, tt.local, tt.roles)
		}
	}
}
