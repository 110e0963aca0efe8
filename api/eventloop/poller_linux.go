package eventloop

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxEvents is the maximum number of events that one call of epoll_wait returns.
const maxEvents = 128

// poller waits for the events of a loop.
//
// It blocks the thread, which wakes up fastest. With one processor only, other goroutines would have to
// wait until the runtime takes the processor away from the thread, for up to 20 ms: then Go's poller
// waits instead.
type poller struct {
	fd     int
	events [maxEvents]unix.EpollEvent
	file   *os.File // of fd, for Go's poller; nil to block
	raw    syscall.RawConn
}

func newPoller() (*poller, error) { return newPollerOf(runtime.GOMAXPROCS(0)) }

// newPollerOf returns a poller for a number of processors.
func newPollerOf(processors int) (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	p := &poller{fd: fd}
	if processors > 1 {
		return p, nil
	}
	err = unix.SetNonblock(fd, true) // so that NewFile adds it to Go's poller
	p.file = os.NewFile(uintptr(fd), "epoll")
	if err == nil {
		p.raw, err = p.file.SyscallConn()
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *poller) close() {
	if p.file != nil {
		_ = p.file.Close()
	} else {
		_ = unix.Close(p.fd)
	}
}

// watch changes the events of a descriptor.
func (p *poller) watch(op, fd int, events uint32) error {
	return unix.EpollCtl(p.fd, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// wait returns the number of new events, after at most some milliseconds, or -1 for any time. busy
// says that there may be some now.
func (p *poller) wait(busy bool, timeout int) (int, error) {
	if p.file != nil {
		runtime.Gosched() // others have the same processor only
	}
	if busy || p.file != nil || timeout == 0 {
		if n, errno := p.poll(); n > 0 || timeout == 0 || errno != 0 && errno != unix.EINTR {
			return n, errnoErr(errno)
		}
	}
	if p.file != nil {
		return p.park(timeout)
	}
	n, err := unix.EpollWait(p.fd, p.events[:], timeout)
	return max(n, 0), err
}

// park waits for Go's poller.
func (p *poller) park(timeout int) (n int, err error) {
	var deadline time.Time
	if timeout >= 0 {
		deadline = time.Now().Add(time.Duration(timeout) * time.Millisecond)
	}
	if err := p.file.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	var errno unix.Errno
	err = p.raw.Read(func(uintptr) bool {
		n, errno = p.poll()
		return n > 0 || errno != 0
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, nil
	}
	return n, errors.Join(err, errnoErr(errno))
}

func errnoErr(e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// The following functions do not block: the goroutine keeps its processor during the call. The system
// does not keep the pointers.

func (p *poller) poll() (int, unix.Errno) {
	//nolint:gosec // see above
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), maxEvents, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

func receive(fd int, b []byte, flags uintptr) (int, unix.Errno) {
	//nolint:gosec // see above
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT|flags, 0, 0)
	return int(n), errno
}

// ended reports whether nothing more can be received.
func ended(fd int) bool {
	n, errno := receive(fd, make([]byte, 1), unix.MSG_PEEK)
	return errno == 0 && n == 0 || errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR
}

func send(fd int, b []byte) (int, unix.Errno) {
	//nolint:gosec // see above
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}
