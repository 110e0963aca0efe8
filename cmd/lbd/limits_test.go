package main

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
)

// lbd's own listeners are no endpoints: on one address, or on all of this machine.
func TestOwnListenersAreDenied(t *testing.T) {
	open := func(address string) (*listen.Listener, uint16) {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
		noError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return &listen.Listener{Listener: l}, netip.MustParseAddrPort(l.Addr().String()).Port()
	}
	one, port := open("127.0.0.1:0")
	all, shared := open(":0")
	own := new(listenerAddresses)
	p, err := new(Config).permit(own)
	noError(t, err)
	if err := p.Check(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)); err != nil {
		t.Errorf("before lbd listens: %v", err)
	}
	own.set([]*listen.Listener{one, all})
	for _, tt := range []struct {
		address string
		port    uint16
		denied  bool
	}{
		{"127.0.0.1", port, true},
		{"127.0.0.2", port, false},
		{"127.0.0.1", shared, true},
		{"127.0.0.2", shared, true},
		{"::1", shared, true},
		{"192.0.2.1", shared, false},
	} {
		if err := p.Check(netip.AddrPortFrom(netip.MustParseAddr(tt.address), tt.port)); (err != nil) != tt.denied {
			t.Errorf("%s: %v", tt.address, err)
		}
	}
}

func TestNetworks(t *testing.T) {
	for flags, want := range map[string]string{
		"allow 10.0.0.0/8":         "",
		"allow 2001:db8::1":        "",
		"deny none":                "",
		"deny 10.0.0.0/8":          "",
		"allow 10.0.0.1/8":         "--allow-endpoints: \"10.0.0.1/8\" has bits beyond its length: write 10.0.0.0/8",
		"deny example.org":         "--deny-endpoints: \"example.org\" is not a network such as 10.0.0.0/8",
		"deny fe80::1%eth0":        "is not a network",
		"deny 10.0.0.0/8,none":     "none denies nothing",
		"deny none,none":           "none denies nothing",
		"allow 10.0.0.0/8,nowhere": "\"nowhere\" is not a network",
	} {
		kind, list, _ := strings.Cut(flags, " ")
		c := Config{}
		if kind == "allow" {
			c.AllowEndpoints = strings.Split(list, ",")
		} else {
			c.DenyEndpoints = strings.Split(list, ",")
		}
		p, err := c.permit(new(listenerAddresses))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", flags, err)
		}
		if flags == "deny none" && (len(p.Denied) != 0 || p.Own != nil) || flags == "allow 2001:db8::1" && len(p.Denied) != len(lb.DefaultDenied) {
			t.Errorf("%s: denied are %v", flags, p.Denied)
		}
	}
}

// Streams that end in portions are reported once.
func TestEndedStreamsAreReportedOnce(t *testing.T) {
	portions := []int{0, 500, 20, 0, 0, 3, 0}
	var reports []int
	end := endStreams(func() int {
		n := portions[0]
		portions = portions[1:]
		return n
	}, func(n int) { reports = append(reports, n) })
	for len(portions) > 0 {
		end()
	}
	if !slices.Equal(reports, []int{520, 3}) {
		t.Errorf("reports %v", reports)
	}
}

func TestMaxPeerConnections(t *testing.T) {
	for _, tt := range []struct {
		flag, connections int
		share             float64
		want              int
	}{
		{0, 512, 0, 256},
		{0, 512, 0.5, 256},
		{0, 512, 1, 512},
		{0, 1, 0.1, 1},
		{400, 512, 0.5, 400},
	} {
		c := Config{MaxPeerConns: tt.flag, CallerShare: tt.share}
		if got := c.maxPeerConnections(overload.Budget{Connections: tt.connections}); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}
