package eventloop

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lbd-dev/lbd/api/connections"
)

// Supported says that loops are supported on this system.
const Supported = true

// listener is a listening socket that Go's poller does not know: it would wake a thread for each new
// connection.
type listener struct {
	fd     int // open until every loop has left it
	addr   net.Addr
	path   string // of a unix socket, which Close removes; empty for none
	closed chan struct{}
	once   sync.Once
}

// Take returns a listener for [Server.Serve], with the socket of l, which it closes. Closing the result
// removes the file of a unix socket unless inherited: another process has created it.
func Take(l net.Listener, inherited bool) (net.Listener, error) {
	socket, ok := l.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%T: %w", l, errors.ErrUnsupported)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	taken := &listener{fd: -1, addr: l.Addr(), closed: make(chan struct{})}
	if controlErr := raw.Control(func(fd uintptr) {
		taken.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	}); controlErr != nil || err != nil {
		return nil, errors.Join(controlErr, os.NewSyscallError("fcntl", err))
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
		if path := l.Addr().String(); !inherited && !strings.HasPrefix(path, "@") {
			taken.path = path
		}
	} else {
		keepAlive(taken.fd)
	}
	if err := l.Close(); err != nil {
		_ = unix.Close(taken.fd)
		return nil, err
	}
	return taken, nil
}

// keepAlive sets the options of connections, which inherit those of their listener, as Go sets them.
// Without them, they work as well.
func keepAlive(fd int) {
	const period, probes = 15, 9
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, period)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, period)
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, probes)
}

// Accept is not supported: loops accept connections.
func (*listener) Accept() (net.Conn, error) { return nil, errors.ErrUnsupported }

// Addr returns the address.
func (l *listener) Addr() net.Addr { return l.addr }

// Close stops accepting connections.
func (l *listener) Close() error {
	l.once.Do(func() {
		if l.path != "" {
			_ = os.Remove(l.path)
		}
		close(l.closed)
	})
	return nil
}

// queue is a listener of connections that were handed over.
type queue struct {
	addr    net.Addr
	limiter *connections.Limiter
	mu      sync.Mutex
	cond    sync.Cond
	conns   []*conn
	closed  bool
}

// push adds a connection. It does not wait.
func (q *queue) push(c *conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		_ = c.admitted.Close()
		return
	}
	q.conns = append(q.conns, c)
	q.cond.Signal()
}

// Accept returns the next connection.
func (q *queue) Accept() (net.Conn, error) {
	for {
		c := q.next()
		if c == nil {
			return nil, net.ErrClosed
		}
		err := c.Detach()
		if err == nil {
			return c.admitted, nil
		}
		q.limiter.Report(err) // no descriptors are left
		_ = c.admitted.Close()
	}
}

func (q *queue) next() *conn {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.conns) == 0 && !q.closed {
		q.cond.Wait()
	}
	if q.closed {
		return nil
	}
	c := q.conns[0]
	q.conns = q.conns[1:]
	return c
}

// Addr returns the address of the listener that accepted the connections.
func (q *queue) Addr() net.Addr { return q.addr }

// Close closes the connections that were not accepted.
func (q *queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, c := range q.conns {
		_ = c.admitted.Close()
	}
	q.conns = nil
	q.cond.Broadcast()
	return nil
}
