package probe

import (
	"errors"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxEvents limits the sockets that one call of epoll_wait returns.
const maxEvents = 128

// Poller probes addresses with non-blocking sockets, and watches connections for their
// end, with one goroutine, which waits for all of them with one epoll instance. Its methods are safe for concurrent use.
type Poller struct {
	permit func(netip.AddrPort) error // may be nil
	epoll  int
	// file is the epoll instance. Go's netpoller waits for it, as it does for a
	// socket, so that no thread is blocked.
	file  *os.File
	raw   syscall.RawConn
	ended chan struct{}

	mu     sync.Mutex // guards the rest
	queue  []request
	parked bool // the goroutine waits, and must be woken for the queue
	closed bool
	// held are the connections that are watched, by the number in the event; those
	// without a connection are free.
	held     []held
	freeHeld []int32

	// Of the goroutine.
	flights []flight // by the number in the event; those without a target are free
	free    []int32
	events  [maxEvents]unix.EpollEvent
	// discarded is what held connections have received.
	discarded [4096]byte
}

// request is a probe that has no socket yet.
type request struct {
	address netip.AddrPort
	limit   time.Duration
	target  Target
}

// flight is a probe under way.
type flight struct {
	address  netip.AddrPort
	fd       int
	deadline time.Time
	target   Target
}

// NewPoller returns a Poller that probes only addresses for which permit returns nil.
// permit may be nil. The caller closes the Poller.
func NewPoller(permit func(netip.AddrPort) error) (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // os.NewFile requires it
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := &Poller{permit: permit, epoll: fd, file: os.NewFile(uintptr(fd), "epoll"), ended: make(chan struct{})}
	if err = p.file.SetReadDeadline(time.Time{}); err == nil { // it fails if the netpoller does not wait for it
		p.raw, err = p.file.SyscallConn()
	}
	if err != nil {
		_ = p.file.Close()
		return nil, err
	}
	go p.run()
	return p, nil
}

// Probe connects to an address, for limit at most, and calls t with the result, from
// another goroutine. It returns at once. After Close, t is not called.
func (p *Poller) Probe(address netip.AddrPort, limit time.Duration, t Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, request{address, limit, t})
	p.wake()
}

// Close cancels all probes, whose targets are not called, closes all held connections,
// whose holders are not called, and waits for the goroutine.
func (p *Poller) Close() {
	p.mu.Lock()
	p.closed = true
	p.wake()
	p.mu.Unlock()
	<-p.ended
}

// wake ends park. The caller holds mu.
func (p *Poller) wake() {
	if p.parked {
		p.parked = false
		_ = p.file.SetReadDeadline(time.Unix(1, 0))
	}
}

func (p *Poller) run() {
	defer close(p.ended)
	defer p.file.Close() //nolint:errcheck // nothing was written
	var requests []request
	for {
		p.mu.Lock()
		requests, p.queue = p.queue, requests[:0]
		closed := p.closed
		p.mu.Unlock()
		if closed {
			break
		}
		for i := range requests {
			p.start(&requests[i])
		}
		clear(requests)
		n := p.wait()
		if n <= 0 && len(requests) == 0 {
			n = p.park()
		}
		for i := range n {
			if e := &p.events[i]; e.Pad == isHeld {
				p.read(e.Fd)
			} else {
				p.finish(e.Fd, e.Events)
			}
		}
		p.expire()
	}
	for i := range p.flights {
		if p.flights[i].target != nil {
			_ = unix.Close(p.flights[i].fd)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.held {
		if conn := p.held[i].conn; conn != nil {
			_ = conn.Close()
		}
	}
}

// wait returns the number of events that there are.
func (p *Poller) wait() int {
	n, _ := unix.EpollWait(p.epoll, p.events[:], 0)
	return n
}

// park waits for events, the next deadline or a request.
func (p *Poller) park() (events int) {
	p.mu.Lock()
	if p.closed || len(p.queue) > 0 {
		p.mu.Unlock()
		return 0
	}
	p.parked = true
	_ = p.file.SetReadDeadline(p.deadline())
	p.mu.Unlock()
	_ = p.raw.Read(func(uintptr) bool {
		events = p.wait()
		return events != 0
	})
	p.mu.Lock()
	p.parked = false
	p.mu.Unlock()
	return max(events, 0)
}

// deadline returns the earliest deadline of a flight; zero without one.
func (p *Poller) deadline() (first time.Time) {
	for i := range p.flights {
		if f := &p.flights[i]; f.target != nil && (first.IsZero() || f.deadline.Before(first)) {
			first = f.deadline
		}
	}
	return first
}

// expire ends the flights whose time is over.
func (p *Poller) expire() {
	var now time.Time
	for i := range p.flights {
		f := &p.flights[i]
		if f.target == nil {
			continue
		}
		if now.IsZero() {
			now = time.Now()
		}
		if !now.Before(f.deadline) {
			p.end(int32(i), os.ErrDeadlineExceeded)
		}
	}
}

// start begins to connect.
func (p *Poller) start(r *request) {
	a := netip.AddrPortFrom(r.address.Addr().Unmap(), r.address.Port())
	if p.permit != nil {
		if err := p.permit(a); err != nil {
			r.target.Probed(dialError(a, err))
			return
		}
	}
	fd, err := connect(a)
	if err != nil {
		r.target.Probed(dialError(a, err))
		return
	}
	var i int32
	if last := len(p.free) - 1; last >= 0 {
		i, p.free = p.free[last], p.free[:last]
	} else {
		i = int32(len(p.flights))
		p.flights = append(p.flights, flight{})
	}
	p.flights[i] = flight{address: a, fd: fd, deadline: time.Now().Add(r.limit), target: r.target}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLOUT, Fd: i}); err != nil {
		p.end(i, os.NewSyscallError("epoll_ctl", err))
	}
}

// connect returns a socket that connects, and that closes with a reset.
func connect(a netip.AddrPort) (fd int, err error) {
	family := unix.AF_INET6
	var to unix.Sockaddr
	if a.Addr().Is4() {
		family, to = unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	} else {
		to = &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	// Both are refused by no system that matters: then the ACK is sent, see established.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0)
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	for {
		err = unix.Connect(fd, to)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil || errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EALREADY) || errors.Is(err, unix.EISCONN) {
		return fd, nil
	}
	_ = unix.Close(fd)
	return -1, os.NewSyscallError("connect", err)
}

// finish ends a flight that has connected or failed.
func (p *Poller) finish(i int32, events uint32) {
	f := &p.flights[i]
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		errno, err := unix.GetsockoptInt(f.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && errno != 0 {
			err = unix.Errno(errno)
		}
		if err != nil {
			p.end(i, os.NewSyscallError("connect", err))
			return
		}
	}
	connected, err := established(f.fd, f.address)
	if connected || err != nil {
		p.end(i, err)
	}
}

// established reports whether a socket has connected, and changes it to close without
// a reset if the endpoint knows of the connection.
func established(fd int, to netip.AddrPort) (bool, error) {
	const synSent = 2 // TCP_SYN_SENT
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	switch {
	case err == nil && info.State == synSent:
		return false, nil
	case err == nil && info.Segs_out == 1: // the SYN only
		return true, nil
	}
	// A socket that chose the port of the address as its own is connected to itself.
	if own, err := unix.Getsockname(fd); err == nil && addressOf(own) == to {
		return false, os.NewSyscallError("connect", unix.ECONNREFUSED)
	}
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
	return true, nil
}

func addressOf(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// end closes the socket of a flight and calls its target.
func (p *Poller) end(i int32, err error) {
	f := p.flights[i]
	_ = unix.Close(f.fd)
	p.flights[i] = flight{}
	p.free = append(p.free, i)
	if err != nil {
		err = dialError(f.address, err)
	}
	f.target.Probed(err)
}
