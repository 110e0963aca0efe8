package main

import (
	"net"
	"testing"
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
