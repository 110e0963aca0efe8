package listen

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"strconv"
)

// Peer returns the name of the peer of a connection for a limit on its connections: its address, for
// IPv6 its /64 network, or the user of a process on a unix socket. It is empty for loopback addresses,
// which callers of this machine share, and for a user that is not known.
func Peer(c net.Conn) string {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok && a.IP.IsLoopback() {
		return ""
	}
	cred, known := credentialsOf(c)
	return peerName(c.RemoteAddr(), cred, known)
}

// peerName returns the name of the peer of a connection; empty if it is not known.
func peerName(a net.Addr, cred credentials, known bool) string {
	if a, ok := a.(*net.TCPAddr); ok {
		return Network(a.AddrPort().Addr().Unmap())
	}
	if !known {
		return ""
	}
	return "uid " + strconv.FormatUint(uint64(cred.uid), 10)
}

// Network returns the name of the network whose addresses count as one caller: a /64 network of IPv6,
// or one address of IPv4.
func Network(a netip.Addr) string {
	if a.Is6() && !a.Is4In6() {
		if network, err := a.WithZone("").Prefix(64); err == nil {
			return network.String()
		}
	}
	return a.String()
}

// credentialed is a connection that is no net.UnixConn.
type credentialed interface {
	Credentials() (uid, gid uint32, pid int32, ok bool)
}

// credentialsOf returns who is on the other end of a unix socket.
func credentialsOf(c net.Conn) (credentials, bool) {
	switch c := c.(type) {
	case credentialed:
		uid, gid, pid, ok := c.Credentials()
		return credentials{uid, gid, pid}, ok
	case *net.UnixConn:
		return peerOf(c)
	default:
		return credentials{}, false
	}
}

// origin is who is on the other end of a connection.
type origin struct {
	credentials

	known bool // the credentials are
	name  string
}

func originOf(c net.Conn) *origin {
	o := new(origin)
	o.credentials, o.known = credentialsOf(c)
	o.name = " " + cmp.Or(peerName(c.RemoteAddr(), o.credentials, o.known), "unix")
	return o
}

// PeerOf returns the name of the peer of a request, for its account: its address, for IPv6 its /64
// network, or the user of a process on a unix socket. It begins with a space, which no name of an
// identity has.
func PeerOf(r *http.Request) string {
	if o, _ := r.Context().Value(peerKey{}).(*origin); o != nil {
		return o.name
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return " unix"
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() { // IPv4 without a conversion
		return " " + Network(a)
	}
	return " " + host
}
