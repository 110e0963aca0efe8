package stand

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// socket has an address that nobody else gets, and accepts no connection.
type socket struct {
	address string
	fd      int
	filling []net.Conn
}

// newSocket returns one that refuses connections, or that is silent: its queue of new
// connections is full, and Linux drops any further SYN.
func newSocket(silent bool) (*socket, error) { return newSocketAt("127.0.0.1:0", silent) }

func newSocketAt(address string, silent bool) (*socket, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	s := &socket{fd: fd}
	_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) // connections that were there before
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}); err != nil {
		s.close()
		return nil, err
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		s.close()
		return nil, err
	}
	s.address = fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port) //nolint:errcheck // it was bound to IPv4
	if !silent {
		return s, nil
	}
	if err := syscall.Listen(fd, 0); err != nil {
		s.close()
		return nil, err
	}
	for range 8 {
		conn, err := net.DialTimeout("tcp", s.address, 100*time.Millisecond) //nolint:noctx // it has a timeout
		if err != nil {
			return s, nil //nolint:nilerr // the queue is full, as it should be
		}
		s.filling = append(s.filling, conn)
	}
	s.close()
	return nil, fmt.Errorf("%s still accepts connections", s.address)
}

func (s *socket) close() {
	for _, conn := range s.filling {
		_ = conn.Close()
	}
	_ = syscall.Close(s.fd)
}
