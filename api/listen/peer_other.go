//go:build !linux

package listen

import "net"

// peerOf knows no credentials on this system.
func peerOf(*net.UnixConn) (cred credentials, ok bool) { return cred, false }
