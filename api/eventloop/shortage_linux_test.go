package eventloop

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-dev/lbd/api/connections"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

// serveShort starts two loops. lacking is called with the errors of accept.
func serveShort(t *testing.T, lacking func(error) bool) (s *Server, l *listener) {
	t.Helper()
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	noError(t, err)
	taken, err := Take(inner, false)
	noError(t, err)
	s, err = New(Options{
		Routes: Routes{Route: func(string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		}, Leaving: func() bool { return false }},
		Loops: 2, Limiter: connections.New(connections.Options{Max: 10, Lacking: lacking}), HandOver: func(net.Listener) error { return nil },
		ReadTimeout: time.Minute, IdleTimeout: time.Minute, WriteTimeout: time.Minute,
	})
	noError(t, err)
	return s, taken.(*listener) //nolint:errcheck,forcetypeassert // Take returns no other
}

func dial(t *testing.T, l *listener) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.addr.String())
	noError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	noError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return c
}

// answered sends a request and reads the response.
func answered(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := c.Write([]byte("GET /pick HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	noError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	noError(t, err)
	noError(t, response.Body.Close())
	if response.StatusCode != http.StatusNoContent {
		t.Error(response.Status)
	}
}

// Serve goes on after an error of accept or of epoll_ctl that is not the listener's.
func TestServeAfterErrors(t *testing.T) {
	for _, shortage := range []bool{false, true} {
		failed := make(chan error, 100)
		s, l := serveShort(t, func(err error) bool {
			failed <- err
			return shortage
		})
		var prepared sync.WaitGroup
		for _, loop := range s.loops { // so that it cannot be watched
			prepared.Add(1)
			loop.post(func() {
				defer prepared.Done()
				if err := loop.epoll.watch(unix.EPOLL_CTL_ADD, l.fd, unix.EPOLLIN); err != nil {
					t.Error(err)
				}
			})
		}
		prepared.Wait()
		done := make(chan error, 1)
		go func() { done <- s.Serve(&listen.Listener{Listener: l}) }()
		for range s.loops {
			if err := <-failed; !errors.Is(err, syscall.EEXIST) {
				t.Errorf("%v; want EEXIST", err)
			}
		}
		answered(t, dial(t, l))
		c := dialWithoutDescriptors(t, s, l, failed)
		answered(t, c)
		noError(t, l.Close())
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve ends with %v", err)
		}
		noError(t, s.Close())
	}
}

// dialWithoutDescriptors returns a connection that the server can accept only after a while.
func dialWithoutDescriptors(t *testing.T, s *Server, l *listener, failed <-chan error) net.Conn {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	noError(t, err)
	var limit unix.Rlimit
	noError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	noError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: limit.Max}))
	var woken sync.WaitGroup
	for _, loop := range s.loops { // for a connection that another loop has taken
		woken.Add(1)
		loop.post(func() {
			defer woken.Done()
			ln := loop.sockets[l.fd]
			accepts := func() bool {
				return errors.Is(loop.epoll.watch(unix.EPOLL_CTL_ADD, l.fd, unix.EPOLLIN), syscall.EEXIST)
			}
			if !accepts() { // it still waits after an earlier error
				loop.pause(ln)
			} else if loop.accept(ln); !accepts() {
				t.Error("a loop stops accepting because no connection waits")
			}
		})
	}
	woken.Wait()
	err = unix.Connect(fd, &unix.SockaddrInet4{Port: l.addr.(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}) //nolint:errcheck,forcetypeassert // it is TCP
	if err == nil {
		err = <-failed
	}
	noError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	if !errors.Is(err, syscall.EMFILE) {
		t.Errorf("%v; want EMFILE", err)
	}
	c := &conn{fd: fd}
	noError(t, c.Detach())
	t.Cleanup(func() { _ = c.Close() })
	noError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return c
}

// An error of the listener itself ends Serve.
func TestServeEnds(t *testing.T) {
	s, l := serveShort(t, func(error) bool { return false })
	noError(t, unix.Shutdown(l.fd, unix.SHUT_RD))
	if err := s.Serve(&listen.Listener{Listener: l}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v; want EINVAL", err)
	}
	noError(t, s.Close())
}
