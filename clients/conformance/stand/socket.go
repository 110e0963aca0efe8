package stand

import (
	"fmt"
	"net"
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
func newSocket(silent bool) (*socket, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	s := &socket{fd: fd}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
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
