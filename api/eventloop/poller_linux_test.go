package eventloop

import (
	"testing"

	"golang.org/x/sys/unix"
)

// With one processor and with more, a poller returns events, also those that were there before, and
// returns without events after the timeout.
func TestPoller(t *testing.T) {
	for _, processors := range []int{1, 2} {
		p, err := newPollerOf(processors)
		noError(t, err)
		fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		noError(t, err)
		noError(t, p.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN))
		wait := func(busy bool, timeout, want int) {
			t.Helper()
			if n, err := p.wait(busy, timeout); n != want || err != nil || n > 0 && p.events[0].Fd != int32(fd) {
				t.Errorf("%d processors: %d events, %v; want %d", processors, n, err, want)
			}
		}
		write := func() {
			if _, err := unix.Write(fd, []byte{7: 1}); err != nil {
				t.Error(err)
			}
		}
		wait(false, 1, 0)
		wait(true, 1, 0)
		write()
		wait(false, -1, 1)
		wait(true, -1, 1) // it was not read
		if _, err := unix.Read(fd, make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		wait(false, 0, 0)
		go write()
		wait(false, -1, 1)
		_ = unix.Close(fd)
		p.close()
	}
}
