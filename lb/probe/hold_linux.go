package probe

import (
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// isHeld is the Pad of the events of held connections.
const isHeld = 1

// held is a connection that is watched for its end.
type held struct {
	conn   *net.TCPConn
	holder Holder
}

// Hold watches a connection until it ends, discards what it receives, and calls h with
// the error once; see [Holder]. Until then, the caller closes the connection only after
// Release. ok is false if the connection cannot be watched. Close closes it.
func (p *Poller) Hold(conn *net.TCPConn, h Holder) (number int32, ok bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, false
	}
	if last := len(p.freeHeld) - 1; last >= 0 {
		number, p.freeHeld = p.freeHeld[last], p.freeHeld[:last]
	} else {
		number = int32(len(p.held))
		p.held = append(p.held, held{})
	}
	p.held[number] = held{conn, h}
	if controlErr := raw.Control(func(fd uintptr) {
		err = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN, Fd: number, Pad: isHeld})
	}); controlErr != nil || err != nil {
		p.release(number)
		return 0, false
	}
	return number, true
}

// Release ends the watch of a connection for h, if it has not ended.
func (p *Poller) Release(number int32, h Holder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[number].holder == h {
		p.ignore(p.held[number].conn)
		p.release(number)
	}
}

func (p *Poller) release(number int32) {
	p.held[number] = held{}
	p.freeHeld = append(p.freeHeld, number)
}

// ignore ends the events of a connection.
func (p *Poller) ignore(conn *net.TCPConn) {
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, int(fd), nil) })
	}
}

// read reads from a connection that has data, or has ended.
func (p *Poller) read(number int32) {
	p.mu.Lock()
	h := p.held[number]
	p.mu.Unlock()
	if h.conn == nil {
		return // released since the event
	}
	raw, err := h.conn.SyscallConn()
	if err != nil {
		return
	}
	if raw.Read(func(fd uintptr) bool {
		var n int
		if n, err = unix.Read(int(fd), p.discarded[:]); n == 0 && err == nil {
			err = io.EOF
		}
		return true
	}) != nil {
		return // it is closed
	}
	if err == nil || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return
	}
	p.mu.Lock()
	current := p.held[number].holder == h.holder
	if current {
		p.ignore(h.conn)
		p.release(number)
	}
	p.mu.Unlock()
	if !current {
		return
	}
	if !errors.Is(err, io.EOF) {
		err = &net.OpError{Op: "read", Net: "tcp", Source: h.conn.LocalAddr(), Addr: h.conn.RemoteAddr(), Err: os.NewSyscallError("read", err)}
	}
	h.holder.Lost(err)
}
