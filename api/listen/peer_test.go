package listen

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// from is a connection from an address.
type from struct {
	net.Conn
	address net.Addr
}

func (c from) RemoteAddr() net.Addr { return c.address }

func TestPeer(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:1":              "192.0.2.1",
		"[::ffff:192.0.2.1]:1":     "192.0.2.1",
		"[2001:db8:0:1:2:3:4:5]:1": "2001:db8:0:1::/64",
		"[2001:db8:0:1:9::1]:1":    "2001:db8:0:1::/64",
		"[fe80::1%eth0]:1":         "fe80::/64",
		"127.0.0.2:1":              "",
		"[::1]:1":                  "",
		"[::ffff:127.0.0.1]:1":     "",
	} {
		if got := Peer(from{address: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))}); got != want {
			t.Errorf("%s: %q; want %q", address, got, want)
		}
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	noError(t, err)
	defer func() { _ = l.Close() }()
	c, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
	noError(t, err)
	defer func() { _ = c.Close() }()
	accepted, err := l.Accept()
	noError(t, err)
	defer func() { _ = accepted.Close() }()
	want := fmt.Sprintf("uid %d", os.Getuid())
	if runtime.GOOS != "linux" {
		want = ""
	}
	if got := Peer(accepted); got != want {
		t.Errorf("unix: %q; want %q", got, want)
	}
}

// The name of a peer for its account is the same, whether it is known since the connection or not.
func TestPeerOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:1":              " 192.0.2.1",
		"127.0.0.1:1":              " 127.0.0.1",
		"[::ffff:192.0.2.1]:1":     " 192.0.2.1",
		"[2001:db8:0:1:2:3:4:5]:1": " 2001:db8:0:1::/64",
		"[fe80::1%eth0]:1":         " fe80::/64",
	} {
		a := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))
		r := &http.Request{RemoteAddr: a.String()}
		if got, known := PeerOf(r), PeerOf(r.WithContext(ConnContext(t.Context(), from{address: a}))); got != want || known != want {
			t.Errorf("%s: %q and %q; want %q", address, got, known, want)
		}
	}
	for name, want := range map[string]string{"@": " unix", "": " unix", "/run/client.sock": " unix"} {
		r := &http.Request{RemoteAddr: name}
		if got, known := PeerOf(r), PeerOf(r.WithContext(ConnContext(t.Context(), from{address: &net.UnixAddr{Name: name, Net: "unix"}}))); got != want || known != want {
			t.Errorf("%q: %q and %q; want %q", name, got, known, want)
		}
	}
}
