// Package probe finds out whether addresses accept TCP connections, and whether
// connections last, without a goroutine for each connection.
//
// On Linux, a probe is the handshake without its last segment, as HAProxy's checks
// do it: the system holds back the ACK of the SYN-ACK, and the probe closes the socket
// with a reset before that is sent. The system of the endpoint drops the connection,
// so the server does not accept it, logs no error, and no side has a socket in
// TIME_WAIT. Where the ACK was sent nevertheless, the server may have accepted the
// connection: the probe closes it as usual, because a reset would be an error there.
package probe

import (
	"net"
	"net/netip"
)

// Target is what is probed.
type Target interface {
	// Probed is called with the result of a probe: nil if the connection was
	// established, else the error that [net.Dialer] returns. It must not block.
	Probed(err error)
}

// Holder has a connection that is watched.
type Holder interface {
	// Lost is called, when the connection is no longer watched, with the error of its
	// Read: io.EOF if the other end closed it. It must not block.
	Lost(err error)
}

// dialError returns the error of net.Dialer.
func dialError(a netip.AddrPort, err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(a), Err: err}
}
