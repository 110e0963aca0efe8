package work

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ports are listening sockets that accept connections without memory of this process: the
// kernel does it, up to the backlog.
type ports struct {
	numbers []int
	sockets []int
}

func openPorts(n int) (p *ports, err error) {
	p = &ports{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	for range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("socket: %w", err)
		}
		p.sockets = append(p.sockets, fd)
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return nil, fmt.Errorf("bind: %w", err)
		}
		if err := unix.Listen(fd, 512); err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
		name, err := unix.Getsockname(fd)
		if err != nil {
			return nil, fmt.Errorf("getsockname: %w", err)
		}
		if address, ok := name.(*unix.SockaddrInet4); ok {
			p.numbers = append(p.numbers, address.Port)
		}
	}
	return p, nil
}

func (p *ports) close() {
	for _, fd := range p.sockets {
		_ = unix.Close(fd) // nothing was written
	}
}
