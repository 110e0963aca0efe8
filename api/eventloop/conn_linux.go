package eventloop

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-dev/lbd/api/connections"
)

// conn is a connection of a loop, until Detach. Then it is one of Go's, whose methods may be called
// from any goroutine.
type conn struct {
	listener *serving
	remote   net.Addr
	cred     *unix.Ucred // nil without

	mu     sync.Mutex // guards the following, so that no other goroutine uses a descriptor that the loop closes
	fd     int        // -1 once it is closed or detached
	inner  net.Conn   // after Detach
	reader io.Reader  // of what inner has, after prefix
	prefix []byte     // what was received, but not served

	// The following belongs to the loop.

	socket   int // fd, until the loop has closed or handed over the connection
	admitted connections.Conn
	peer     peer
	received []byte     // requests that are not yet served
	unsent   []byte     // responses that the caller has not read
	stream   *streaming // the current response; nil for none
	served   bool       // a request
	ending   bool       // the connection closes after unsent
	watched  bool       // by epoll
	waits    bool       // for another turn
	deadline time.Duration
}

// Read reads from a detached connection.
func (c *conn) Read(p []byte) (int, error) {
	if _, err := c.detached(); err != nil {
		return 0, err
	}
	return c.reader.Read(p)
}

// Write writes to a detached connection.
func (c *conn) Write(p []byte) (int, error) {
	inner, err := c.detached()
	if err != nil {
		return 0, err
	}
	return inner.Write(p)
}

func (c *conn) detached() (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		return nil, net.ErrClosed
	}
	return c.inner, nil
}

// Detach makes the connection one of Go's. A loop must no longer use it.
func (c *conn) Detach() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return net.ErrClosed
	}
	f := os.NewFile(uintptr(c.fd), "connection")
	c.fd = -1
	inner, err := net.FileConn(f)
	_ = f.Close() // inner has a descriptor of its own
	if err != nil {
		return fmt.Errorf("detach a connection: %w", err)
	}
	c.inner, c.reader, c.prefix = inner, io.MultiReader(bytes.NewReader(c.prefix), inner), nil
	return nil
}

// Close closes the connection.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner != nil {
		return c.inner.Close()
	}
	if c.fd < 0 {
		return net.ErrClosed
	}
	err := unix.Close(c.fd)
	c.fd = -1
	return err
}

// CloseRead ends the reading side.
func (c *conn) CloseRead() error { return c.shutdown(unix.SHUT_RD) }

// CloseWrite ends the writing side.
func (c *conn) CloseWrite() error { return c.shutdown(unix.SHUT_WR) }

func (c *conn) shutdown(how int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if half, ok := c.inner.(interface {
		CloseRead() error
		CloseWrite() error
	}); ok {
		if how == unix.SHUT_RD {
			return half.CloseRead()
		}
		return half.CloseWrite()
	}
	if c.fd < 0 {
		return net.ErrClosed
	}
	return unix.Shutdown(c.fd, how)
}

// send sends as much of b as there is room for. It may be called from any goroutine.
func (c *conn) send(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return 0, net.ErrClosed
	}
	for {
		switch n, errno := send(c.fd, b); errno {
		case 0:
			return n, nil
		case unix.EAGAIN:
			return 0, nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// LocalAddr returns the address of the connection, or of its listener while a loop serves it.
func (c *conn) LocalAddr() net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner != nil {
		return c.inner.LocalAddr()
	}
	return c.listener.Addr()
}

// RemoteAddr returns the address of the peer. Only a detached connection has the name of its zone.
func (c *conn) RemoteAddr() net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner != nil {
		return c.inner.RemoteAddr()
	}
	return c.remote
}

// Credentials returns who is on the other end of a unix socket.
func (c *conn) Credentials() (uid, gid uint32, pid int32, ok bool) {
	if c.cred == nil {
		return 0, 0, 0, false
	}
	return c.cred.Uid, c.cred.Gid, c.cred.Pid, true
}

// SetDeadline is that of a detached connection.
func (c *conn) SetDeadline(t time.Time) error { return c.setDeadline(net.Conn.SetDeadline, t) }

// SetReadDeadline is that of a detached connection.
func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadline(net.Conn.SetReadDeadline, t) }

func (c *conn) setDeadline(set func(net.Conn, time.Time) error, t time.Time) error {
	inner, err := c.detached()
	if err != nil {
		return err
	}
	return set(inner, t)
}

// SetWriteDeadline is that of a detached connection. While a loop serves the connection, a deadline
// that has passed ends it.
func (c *conn) SetWriteDeadline(t time.Time) error {
	inner, err := c.detached()
	if err == nil {
		return inner.SetWriteDeadline(t)
	}
	if time.Until(t) <= 0 {
		return c.shutdown(unix.SHUT_RDWR)
	}
	return os.ErrNoDeadline
}
