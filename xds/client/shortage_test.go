package client

import (
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lbd-dev/lbd/overload"
)

// failDials makes all dials fail with err, or succeed if it is nil.
func (s *fakeServer) failDials(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = err
}

// TestLocalShortage checks that a shortage of descriptors causes neither fallback nor an
// error, and that lbd connects soon after it.
func TestLocalShortage(t *testing.T) {
	m := (*overload.Monitor)(nil)
	runTest(t, "one two", func(t *testing.T, w *harness) {
		defer m.Close()
		w.servers["one"].failDials(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)})
		w.want(cds, "a")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := m.Current(); len(got) != 1 || got[0].Resource != overload.Descriptors {
			t.Errorf("the monitor has %v", got)
		}
		expectNone(t, w.servers["two"].streams, "stream")
		w.expectNoUpdates()
		if s := w.servers["one"]; s.dials < 300 || s.dials > 1300 {
			t.Errorf("%d connections were tried in 10 minutes", s.dials)
		}
		w.servers["one"].failDials(nil)
		over := time.Now()
		one := w.servers["one"].accept()
		if took := time.Since(over); took > 3*overload.RetryPause/2 {
			t.Errorf("connected %v after the shortage", took)
		}
		one.send("1", "n1", cluster("a"))
		w.expectUpdates("a=1")
	}, func(_ *harness, o *Options) {
		m = overload.NewMonitor(func() error { return nil })
		o.Overload = m
	})
}

// TestServerShortage checks that a shortage of the server makes it unreachable.
func TestServerShortage(t *testing.T) {
	runTest(t, "one two", func(t *testing.T, w *harness) {
		w.want(cds, "a")
		w.servers["one"].accept().end <- status.Error(codes.Unavailable, "accept: "+syscall.EMFILE.Error())
		w.servers["two"].accept()
	})
}
