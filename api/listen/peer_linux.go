package listen

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerOf returns the credentials that the process on the other end had when it
// connected (SO_PEERCRED).
func peerOf(c *net.UnixConn) (cred credentials, ok bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return cred, false
	}
	err = raw.Control(func(fd uintptr) {
		u, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			cred, ok = credentials{uid: u.Uid, gid: u.Gid, pid: u.Pid}, true
		}
	})
	return cred, ok && err == nil
}
